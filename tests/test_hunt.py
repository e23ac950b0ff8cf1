"""The main job as a user runs it: a hunt from nothing finds, minimizes, stores and exports."""

import json
import subprocess
from pathlib import Path

import pytest
from command import schedfuzz

from schedfuzz.corpus.codec import decode
from schedfuzz.workers.environment import Environment
from schedfuzz.workers.home import Home

pytestmark = pytest.mark.vllm
FAULTS = Path(__file__).parent / "faults" / "faults.py"
KEYS = {
    "id", "before", "after", "verdict", "kind", "rule", "fingerprint", "title", "status", "count",
    "executions_to_find", "seconds_to_find", "reproducer",
}  # fmt: skip


def hunt(home: Home, tmp_path: Path, *arguments: object) -> tuple[int, dict]:
    """Run one hunt from an empty corpus and database; return its exit code and result."""
    result = tmp_path / "result.json"
    answer = schedfuzz(
        "hunt", *arguments, "--corpus", tmp_path / "corpus", "--json", result,
        env={"SCHEDFUZZ_HOME": str(home.root), "SCHEDFUZZ_DB": f"sqlite:///{tmp_path / 'db'}"},
    )  # fmt: skip
    assert result.stat().st_size, answer.stderr
    return answer.returncode, json.loads(result.read_text())


def plain_pytest(environment: Environment, file: Path) -> subprocess.CompletedProcess[str]:
    """Run one exported file as its reader will: no variables, no schedfuzz."""
    return subprocess.run(
        [str(environment.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)],
        capture_output=True, text=True, cwd=file.parent, timeout=600,
    )  # fmt: skip


def test_the_first_hunt_finds_minimizes_and_exports_the_seed_bug(
    shared_home: Home,
    tmp_path: Path,
    environment_028: Environment,
    environment_029: Environment,
) -> None:
    out = tmp_path / "out"
    code, result = hunt(
        shared_home, tmp_path, "0.28.0", "0.29.0", "--runs", 500, "--seed", 1, "--export", out
    )
    assert code == 3
    assert result["executions"] == 500 and result["infra"] == 0 and result["seed"] == 1
    assert all(set(row) >= KEYS for row in result["findings"])
    # A request that is new when it is padded, and one that is resumed, are two findings.
    row, *_ = [
        row
        for row in result["findings"]
        if (row["verdict"], row["rule"]) == ("fixed", "past-max-model-len")
    ]
    assert (row["kind"], row["status"]) == ("contract", "minimized")
    assert row["reproducer"]["requests"] <= 2 and row["reproducer"]["steps"] <= 6
    decode(json.dumps(row["reproducer"]["scenario"]))
    [file] = out.glob(f"test_past_max_model_len_*{row['fingerprint'][:8]}.py")
    assert "schedfuzz" not in file.read_text()
    assert plain_pytest(environment_028, file).returncode == 1
    assert plain_pytest(environment_029, file).returncode == 0
    corpus = list((tmp_path / "corpus").iterdir())
    assert len(corpus) > 50
    for entry in corpus:
        decode(entry.read_bytes(), str(entry))


def test_a_careless_fix_is_found_as_a_regression_to_starvation(
    shared_home: Home, tmp_path: Path
) -> None:
    fault = f"0.29.0+{FAULTS}:careless_fix"
    code, result = hunt(shared_home, tmp_path, "0.29.0", fault, "--runs", 400, "--seed", 2)
    assert code == 3
    starved = [row for row in result["findings"] if row["rule"] == "passed-over"]
    assert [(row["verdict"], row["kind"]) for row in starved] == [("regressed", "starvation")]


def test_a_release_against_itself_gives_no_verdict(shared_home: Home, tmp_path: Path) -> None:
    code, result = hunt(shared_home, tmp_path, "0.28.0", "0.28.0", "--runs", 500, "--seed", 4)
    assert (code, result["findings"], result["infra"]) == (0, [], 0)


def test_a_release_alone_shows_its_own_faults(shared_home: Home, tmp_path: Path) -> None:
    code, result = hunt(shared_home, tmp_path, "0.28.0", "--runs", 600, "--seed", 4)
    assert code == 3
    assert {row["verdict"] for row in result["findings"]} == {"both"}
