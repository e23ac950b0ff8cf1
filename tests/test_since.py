"""Since when: releases and commits on which a finding shows, on real releases and a real clone."""

import json
from pathlib import Path

import pytest
from clones import NEUTRAL, Clone, git, make_clone
from command import schedfuzz
from fabricated import SEED_BUG

from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.trace import Verdict
from schedfuzz.db import queries, verifications, writes
from schedfuzz.db.connect import Store, open_store
from schedfuzz.workers import clone as repository
from schedfuzz.workers.targets import parse_target

pytestmark = pytest.mark.vllm
BROKEN = frozenset({30, 134, 135, 138, 139, 170})
MENDED_AT = 137


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    return make_clone(tmp_path_factory.mktemp("clone"), mended_at=MENDED_AT, broken=BROKEN)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A database with the padding bug as a finding of 0.28.0 and 0.29.0."""
    url = f"sqlite:///{tmp_path / 'since.db'}"
    monkeypatch.setenv("SCHEDFUZZ_DB", url)
    monkeypatch.setenv("SCHEDFUZZ_USER", "ann")
    made = open_store(url)
    hunt = writes.start_hunt(made, "0.28.0", "0.29.0", 1, {})
    verdict = Verdict(
        "fixed", "contract", "past-max-model-len", "abf5f39ed9bf8f05", "past-max-model-len"
    )
    writes.record_verdict(made, hunt, "0.28.0", "0.29.0", verdict, SEED_BUG, 12, 1, 1.0)
    writes.record_confirmation(made, 1, 3, 3)
    return made


# -- the clone as a target -----------------------------------------------------------------------


def test_a_commit_is_a_target_by_any_of_its_names(clone: Clone) -> None:
    names = {parse_target(f"{clone.path}#{ref}").name for ref in ("v0.29.0", "main", "HEAD")}
    assert names == {f"0.29.0#{clone.commits[-1][:12]}"}
    older = parse_target(f"{clone.path}#v0.28.0:real")
    assert older.name == f"0.28.0#{clone.commits[0][:12]}:real"
    assert parse_target(older.spelling) == older
    assert parse_target(f"0.28.0:{clone.path}#main").name.startswith("0.28.0#")


def test_working_files_are_a_target_and_are_left_as_they_are(tmp_path: Path) -> None:
    clone = make_clone(tmp_path / "own", commits=2, mended_at=1, moved_at=1)
    unchanged = parse_target(f"{clone.path}#.")
    (clone.path / NEUTRAL).write_text("# mine\n")
    (clone.path / "vllm" / "new.py").write_text("# new\n")
    before = clone.git("status", "--porcelain")
    changed = parse_target(f"{clone.path}#.")
    assert changed.name != unchanged.name
    assert clone.git("status", "--porcelain") == before != ""
    assert changed.clone is not None
    assert "vllm/new.py" in repository.files(*changed.clone)


@pytest.mark.parametrize(
    ("spelling", "word"),
    [("{}#nothing", "has none of that name"), ("{}#--help", "write a branch"),
     ("{}/none#main", "no such directory"), ("{}/vllm/v1#main", "does not read it")],
)  # fmt: skip
def test_what_is_no_commit_of_a_clone_is_refused(clone: Clone, spelling: str, word: str) -> None:
    with pytest.raises(InputError, match=word):
        parse_target(spelling.format(clone.path))


def test_a_repository_of_something_else_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "readme").write_text("no vllm here")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    with pytest.raises(InputError, match="has no directory vllm"):
        parse_target(f"{tmp_path}#HEAD")


def test_lines_that_a_commit_changes(clone: Clone) -> None:
    mended = repository.changed_lines(clone.path, f"{clone.mended}~1", clone.mended)
    assert list(mended) == ["vllm/v1/core/sched/interface.py", "vllm/v1/core/sched/scheduler.py"]
    assert all(lines for lines in mended.values())


# -- releases ------------------------------------------------------------------------------------


def test_a_matrix_says_where_it_is_bad_and_verify_what_is_fixed(store: Store) -> None:
    said = schedfuzz("matrix", 1, "0.28.0", "0.29.0")
    assert said.returncode == 0, said.stderr
    assert "bad on 0.28.0; went between 0.28.0 and 0.29.0" in said.stdout
    assert [(row.target, row.outcome, row.runs) for row in verifications.of(store, 1)] == [
        ("0.28.0", "breaks", 3), ("0.29.0", "keeps", 3),
    ]  # fmt: skip
    assert "on 0.28.0     breaks, 3 of 3 runs" in schedfuzz("show", 1).stdout
    fixed = schedfuzz("verify", "0.29.0")
    assert fixed.stdout == "finding 1\tkeeps\tverified\n", fixed.stderr
    assert queries.get_finding(store, 1).fixed_in == "0.29.0"
    again = schedfuzz("verify", "0.28.0", "--json")
    assert json.loads(again.stdout)[0]["became"] == "confirmed"


# -- commits -------------------------------------------------------------------------------------


def test_bisect_finds_the_commit_among_some_that_cannot_run(store: Store, clone: Clone) -> None:
    said = schedfuzz("bisect", 1, "--repo", clone.path)
    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    assert lines[0] == f"the first good commit: {clone.mended} change {MENDED_AT}", said.stderr
    assert lines[1].startswith("confidence 0.99")
    assert "skipped: " in said.stderr and "nothing_of_that_name" in said.stderr
    assert "bisect by ann: the first good commit" in schedfuzz("show", 1).stdout


def test_bisect_leaves_open_what_it_cannot_tell(store: Store, tmp_path: Path) -> None:
    clone = make_clone(
        tmp_path / "open", commits=6, moved_at=1, mended_at=3, broken=frozenset({2, 3})
    )
    said = schedfuzz("bisect", 1, "--repo", clone.path, "--json")
    result = json.loads(said.stdout)
    assert not result["conclusive"], said.stderr
    assert [row["commit"] for row in result["commits"]] == clone.commits[2:5]
    text = schedfuzz("show", 1).stdout
    assert "inconclusive: the first good commit is one of 3" in text


def test_bisect_finds_it_when_only_most_runs_show_it(store: Store, tmp_path: Path) -> None:
    clone = make_clone(tmp_path / "flaky", mended_at=MENDED_AT, broken=BROKEN, share=0.7)
    oldest = clone.commits[1]
    said = schedfuzz("bisect", 1, "--repo", clone.path, "--bad", oldest, "--json")
    assert said.returncode == 0, said.stderr
    result = json.loads(said.stdout)
    assert [row["commit"] for row in result["commits"]] == [clone.mended], said.stderr
    assert result["confidence"] >= 0.99 and 0.3 < result["rate"] < 0.95


def test_an_end_that_is_not_what_it_should_be_is_named(store: Store, clone: Clone) -> None:
    said = schedfuzz("bisect", 1, "--repo", clone.path, "--bad", clone.commits[-2])
    assert said.returncode == 2
    assert said.stderr.splitlines()[-1].startswith(
        f"schedfuzz: the bad end {clone.commits[-2][:12]}: shows nothing in 20 runs"
    )
