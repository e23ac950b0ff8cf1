"""The pytest plugin: a folder of scenarios on the vLLM of the environment that pytest runs in."""

import json
import subprocess
from pathlib import Path

import msgspec
import pytest
from fabricated import SEED_BUG, SMALL

from schedfuzz.corpus import case as case_file
from schedfuzz.corpus import codec
from schedfuzz.corpus.case import Case, load, unwrapped
from schedfuzz.corpus.errors import InputError
from schedfuzz.workers.environment import Environment


def corpus(folder: Path) -> Path:
    """Make a folder with a scenario that 0.28.0 breaks, one that holds and a known one."""
    folder.mkdir()
    (folder / "padding.json").write_text(codec.pretty(SEED_BUG))
    (folder / "small.json").write_text(codec.pretty(SMALL))
    known = Case(msgspec.Raw(codec.encode(SEED_BUG)), title="padding", xfail="PR #53962")
    (folder / "known.json").write_text(case_file.encode(known))
    (folder / "notes.txt").write_text("no case")
    return folder


def run(environment: Environment, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    variables = environment.variables() | {"PYTHONPATH": str(Path(__file__).parents[1])}
    return subprocess.run(
        [
            str(environment.python), "-m", "pytest", "-p", "schedfuzz.plugin.cases", "-q", "-rA",
            "-p", "no:cacheprovider", "--schedfuzz-corpus", str(folder), *options,
        ],
        env=variables, cwd=folder.parent, capture_output=True, text=True, timeout=600,
    )  # fmt: skip


@pytest.mark.vllm
def test_a_corpus_runs_on_the_vllm_at_hand(
    tmp_path: Path, environment_028: Environment, environment_029: Environment
) -> None:
    folder = corpus(tmp_path / "corpus")
    (tmp_path / "test_other.py").write_text("def test_other():\n    raise SystemExit(9)\n")
    bad = run(environment_028, folder)
    assert bad.returncode == 1, bad.stdout
    assert "1 failed, 1 passed, 1 xfailed" in bad.stdout
    assert "step 4, request 2: contract past-max-model-len: 64 computed + 2 scheduled" in bad.stdout
    good = run(environment_029, folder)
    assert good.returncode == 0, good.stdout
    assert "2 passed, 1 xpassed" in good.stdout


@pytest.mark.vllm
def test_a_file_that_is_no_case_is_named(tmp_path: Path, environment_029: Environment) -> None:
    folder = corpus(tmp_path / "corpus")
    (folder / "wrong.json").write_text('{"format": "schedfuzz.case/1", "scenario": {"engine": 3}}')
    said = run(environment_029, folder)
    assert said.returncode == 2
    assert "wrong.json: engine = 3: Expected `object`" in said.stdout
    none = run(environment_029, tmp_path / "nothing")
    assert none.returncode == 4 and "nothing: no such directory" in none.stderr


@pytest.mark.parametrize(
    "text",
    [
        codec.pretty(SMALL),
        case_file.encode(Case(msgspec.Raw(codec.encode(SMALL)), title="a")),
        json.dumps({"id": 3, "reproducer": {"scenario": json.loads(codec.encode(SMALL))}}),
    ],
)
def test_a_case_is_read_in_any_of_its_forms(tmp_path: Path, text: str) -> None:
    file = tmp_path / "case.json"
    file.write_text(text)
    assert load(file).story("it") == SMALL == codec.decode(unwrapped(text.encode()))


@pytest.mark.parametrize(
    "text", ['{"format": "schedfuzz.case/9"}', '{"format": "schedfuzz.case/1", "size": 3}']
)
def test_a_case_of_another_format_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "case.json"
    file.write_text(text)
    with pytest.raises(InputError, match="is no case of format"):
        load(file)
