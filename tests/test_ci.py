"""A pull request is judged: a branch that breaks, one that does not, one that is no concern."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from clones import NEUTRAL, SCHEDULER, Clone, bring_back, git, make_clone
from command import schedfuzz
from fabricated import SMALL, trace
from junitparser import JUnitXml
from msgspec.structs import replace
from pydantic_sarif.model import StaticAnalysisResultsFormatSarifVersion210JsonSchema as SarifLog
from test_scheduler_class import CLASSES

from schedfuzz.fuzzer.aim import KEPT, Aim
from schedfuzz.workers.change import find_change, sites_of

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """Return a clone of 0.29.0 with branches; each is one commit away from main."""
    made = make_clone(tmp_path_factory.mktemp("ci") / "vllm", commits=3, moved_at=1, mended_at=2)
    text = (made.path / SCHEDULER).read_text()
    place = "        self.num_spec_tokens = "
    assert text.count(place) >= 1
    marked = text.replace(
        place, f"        self.a_name_of_ours = self.__class__.__name__\n{place}", 1
    )
    unused = "\n\ndef nobody_calls_this(number):\n    return number + 1\n"
    for name, path, content in (
        ("breaks", SCHEDULER, bring_back(text).decode()),
        ("harmless", SCHEDULER, marked),
        ("unreached", SCHEDULER, text + unused),
        ("words", SCHEDULER, "# a comment\n" + text),
        ("elsewhere", "vllm/logger.py", (made.path / "vllm/logger.py").read_text() + "\nX = 1\n"),
    ):  # fmt: skip
        made.git("checkout", "--quiet", "-b", name, "main")
        (made.path / path).write_text(content)
        made.git("commit", "--quiet", "-am", name)
    made.git("checkout", "--quiet", "main")
    return made


def ci(clone: Clone, folder: Path, head: str, *options: object) -> subprocess.CompletedProcess[str]:
    return schedfuzz(
        "ci", "--repo", clone.path, "--base", "main", "--head", head, "--out", folder / "out",
        "--db", f"sqlite:///{folder}/ci.db", "--seed", 1, *options,
        env={"GITHUB_STEP_SUMMARY": str(folder / "job.md")},
    )  # fmt: skip


@pytest.mark.vllm
def test_a_branch_that_brings_a_bug_back_fails_with_it(clone: Clone, tmp_path: Path) -> None:
    said = ci(clone, tmp_path, "breaks", "--seconds", 40)
    assert said.returncode == 3, said.stderr
    first = said.stdout.splitlines()[0]
    assert first.startswith(
        "new violations: The change breaks what held before: past-max-model-len"
    )
    out = tmp_path / "out"
    suite = list(JUnitXml.fromstring((out / "schedfuzz.xml").read_bytes()))[0]
    assert suite.failures >= 1 and suite.tests == suite.failures + 1
    log = SarifLog.model_validate_json((out / "schedfuzz.sarif").read_text())
    assert {result.level.value for result in log.runs[0].results or [] if result.level} == {"error"}
    summary = (out / "summary.md").read_text()
    assert "changed blocks reached | 1 of 1" in summary and "past-max-model-len" in summary
    assert (tmp_path / "job.md").read_text() == summary
    cases = [json.loads(path.read_text()) for path in (out / "regressions").iterdir()]
    assert "past-max-model-len" in {case["rule"] for case in cases}
    assert list((out / "tests").glob("test_past_max_model_len_*.py"))


@pytest.mark.vllm
def test_a_harmless_branch_passes(clone: Clone, tmp_path: Path) -> None:
    said = ci(clone, tmp_path, "harmless", "--seconds", 15)
    assert said.returncode == 0, said.stdout + said.stderr
    assert said.stdout.startswith("nothing new: Nothing that held before is broken.\n")
    assert "changed blocks reached | 1 of 1" in (tmp_path / "out" / "summary.md").read_text()
    suite = list(JUnitXml.fromstring((tmp_path / "out" / "schedfuzz.xml").read_bytes()))[0]
    assert (suite.tests, suite.failures) == (1, 0)


@pytest.mark.vllm
def test_code_that_never_runs_is_no_pass(clone: Clone, tmp_path: Path) -> None:
    said = ci(clone, tmp_path, "unreached", "--seconds", 5)
    assert said.returncode == 4, said.stderr
    assert said.stdout.startswith("changed code never reached: None of the 1 changed blocks")


@pytest.mark.vllm
@pytest.mark.parametrize(("head", "more"), [("words", 1), ("elsewhere", 1), ("main", 0)])
def test_what_is_no_schedulers_concern_ends_at_once(
    clone: Clone, tmp_path: Path, head: str, more: int
) -> None:
    said = ci(clone, tmp_path, head)
    assert said.returncode == 0, said.stderr
    rest = f"; {more} other files differ" if more else ""
    word = "nothing to judge: The change touches nothing of the scheduler"
    assert said.stdout.splitlines()[0] == f"{word}{rest}."
    assert "judging" not in said.stderr


@pytest.mark.vllm
def test_a_class_is_judged_against_vllms_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(CLASSES)
    monkeypatch.chdir(tmp_path)
    said = schedfuzz(
        "ci", "--release", "0.29.0", "--scheduler-cls", "mine:Forgetful", "--seconds", 8,
        "--seed", 5, "--out", tmp_path / "out", "--db", f"sqlite:///{tmp_path}/ci.db",
    )  # fmt: skip
    assert said.returncode == 3, said.stderr
    assert "## New" in (tmp_path / "out" / "summary.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "name --repo CLONE and --base REF"),
        (("--repo", "."), "name --repo CLONE and --base REF"),
        (("--scheduler-cls", "a:B"), "goes with --release"),
        (("--repo", "/nowhere", "--base", "main"), "/nowhere: no such directory"),
        (("--corpus", "/nowhere", "--repo", ".", "--base", "x"), "--corpus /nowhere"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, arguments: tuple[str, ...], word: str) -> None:
    said = schedfuzz("ci", *arguments, "--out", tmp_path, "--db", f"sqlite:///{tmp_path}/a.db")
    assert said.returncode == 2
    assert word in said.stderr and said.stderr.count("\n") == 1


def test_the_workflow_is_one_that_github_takes() -> None:
    tool, schema = Path(sys.executable).with_name("check-jsonschema"), "vendor.github-workflows"
    done = subprocess.run(
        [str(tool), "--builtin-schema", schema, str(DOCS / "github-actions.yml")],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


# -- the change ----------------------------------------------------------------------------------


def change(folder: Path, before: str, after: str, path: str = NEUTRAL):  # type: ignore[no-untyped-def]
    """Return the change between two versions of one file."""
    (folder / path).parent.mkdir(parents=True)
    git(folder, "init", "--quiet")
    for text in (before, after):
        (folder / path).write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", "x")
    refs = git(folder, "rev-list", "HEAD").split()
    return find_change(folder, refs[1], refs[0], real=False)


OLD = '''"""Doc."""
import os


def one(x):
    """Doc."""
    if x:
        y = 1
        z = 2
    else:
        y = 3
    return y


def two():
    return 2
'''


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("z = 2", "z = 4", {8}),
        ("y = 3", "y = 5", {11}),
        ("return y", "return -y", {7}),
        ("def one(x):", "def one(x, w=1):", {7}),
        ("        z = 2\n", "", {7, 8}),
        ("return 2", "return 3", {16}),
        ("import os\n", "import os\nimport re\n", set()),
    ],
)
def test_a_change_is_told_by_the_blocks_it_touches(tmp_path: Path, old, new, lines) -> None:
    found = change(tmp_path, OLD, OLD.replace(old, new))
    assert found.files == [NEUTRAL]
    assert found.blocks == {("vllm.v1.core.sched.interface", line) for line in lines}


@pytest.mark.parametrize("text", ["# new\n" + OLD, OLD.replace("Doc.", "Other."), OLD + "\n\n"])
def test_words_are_no_change(tmp_path: Path, text: str) -> None:
    found = change(tmp_path, OLD, text)
    assert (found.files, found.others, found.blocks) == ([], [NEUTRAL], frozenset())


def test_a_file_that_is_no_python_is_a_change(tmp_path: Path) -> None:
    assert change(tmp_path, OLD, "def (").files == [NEUTRAL]


def test_sites_are_found_by_module_and_line(tmp_path: Path) -> None:
    found = change(tmp_path, OLD, OLD.replace("z = 2", "z = 4"))
    module = "vllm.v1.core.sched.interface"
    where = [f"{module}:one:7", f"{module}:one:8", f"{module}x:one:8", "", "odd"]
    assert sites_of(found, where) == {1}


# -- the aim -------------------------------------------------------------------------------------


def test_scenarios_that_run_changed_code_become_parents() -> None:
    from random import Random

    aim = Aim(frozenset({1, 9}))
    cold, hot = replace(trace(), coverage=b"\1\0\1"), replace(trace(), coverage=b"\0\1")
    assert aim.learn(SMALL, cold, {20_000}) == set() and aim.parent(Random(1)) is None
    added = aim.learn(SMALL, hot, {20_000, 20_001})
    assert len(added) == 2 and aim.reached == {1}
    picks = [aim.parent(Random(seed)) for seed in range(200)]
    assert 50 < picks.count(SMALL) < 150
    for number in range(3 * KEPT):
        aim.learn(SMALL, hot, {30_000 + number})
    assert len(aim._parents) <= KEPT
