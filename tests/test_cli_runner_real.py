"""The verbs on vLLM's own model runner, and both runners of one release side by side."""

import json
import signal
from pathlib import Path

import pytest
from command import schedfuzz, start
from fabricated import SEED_BUG
from faults.real_runner import SWAPPED_SAMPLES
from msgspec.structs import replace
from running import read_to
from test_real_faults import FAULTS, story

from schedfuzz.corpus import codec
from schedfuzz.corpus.rules import violation
from schedfuzz.corpus.trace import Verdict
from schedfuzz.db import queries, writes
from schedfuzz.db.connect import open_store
from schedfuzz.fuzzer import guide
from schedfuzz.fuzzer.judge import fingerprint, key
from schedfuzz.workers.home import Home
from schedfuzz.workers.target.real import limits

pytestmark = pytest.mark.vllm
PAIR = ("0.28.0", "0.29.0")
REAL = ("0.28.0:real", "0.29.0:real")
RULE = "past-max-model-len"
PRINT = fingerprint("fixed", key(violation(RULE, "", 0, path="new")))
BUG = replace(SEED_BUG, engine=replace(SEED_BUG.engine, block_size=limits.KERNEL_BLOCK))


@pytest.fixture
def env(shared_home: Home, tmp_path: Path, environment_028, environment_029) -> dict[str, str]:
    url = f"sqlite:///{tmp_path / 'runner.db'}"
    return {"SCHEDFUZZ_HOME": str(shared_home.root), "SCHEDFUZZ_DB": url}


@pytest.fixture
def bug(tmp_path: Path) -> Path:
    file = tmp_path / "bug.json"
    file.write_text(codec.pretty(BUG))
    return file


def test_replay_of_the_seed_bug_on_the_real_runner(env, bug) -> None:
    # A suffix that says what the option says is no contradiction.
    result = schedfuzz("replay", bug, "0.28.0", "0.29.0:real", "--runner", "real", env=env)
    assert result.returncode == 3, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == f"fixed  contract  {RULE}  {PRINT}"
    assert any(line.startswith("0.28.0:real: step 4, r2: contract: ") for line in lines)
    assert any(line.startswith("0.29.0:real: finished after ") for line in lines)
    assert "the runner's fault" not in result.stdout


def test_replay_tells_the_runners_fault_from_the_schedulers(env, tmp_path) -> None:
    file = tmp_path / "story.json"
    file.write_text(codec.pretty(story(SWAPPED_SAMPLES)))
    broken = f"0.29.0:real+{FAULTS}:faults"
    shown = schedfuzz("replay", file, "0.29.0:real", broken, "--json", env=env)
    assert shown.returncode == 3, shown.stderr
    value = json.loads(shown.stdout)
    assert (value["verdict"], value["rule"], value["component"]) == (
        "regressed", "runner-output", "runner",
    )  # fmt: skip
    assert value["title"].endswith(", the runner's fault")
    assert value["after"]["violations"][0]["component"] == "runner"


def test_minimize_of_a_finding_on_the_real_pair_stays_there(env) -> None:
    store = open_store(env["SCHEDFUZZ_DB"])
    hunt = writes.start_hunt(store, *REAL, 1, {})
    verdict = Verdict("fixed", "contract", RULE, PRINT, "no room", component="scheduler")
    writes.record_verdict(store, hunt, *REAL, verdict, BUG, 12, 1, 0.5)
    result = schedfuzz("minimize", "1", "--calls", "25", env=env)
    assert result.returncode == 0, result.stderr
    row = queries.get_finding(store, 1)
    assert (row.before, row.confirm_hits, row.component) == ("0.28.0:real", 3, "scheduler")
    assert row.reproducer_requests < len(BUG.requests)


@pytest.mark.skipif(not guide.available(), reason="no Atheris on this machine")
def test_a_hunt_on_both_finds_the_seed_bug_on_both(env, bug, tmp_path) -> None:
    corpus, out = tmp_path / "corpus", tmp_path / "out.json"
    corpus.mkdir()
    (corpus / "bug").write_bytes(bug.read_bytes())
    result = schedfuzz(
        "hunt", *PAIR, "--runner", "both", "--runs", 12, "--seed", 5, "--corpus", corpus,
        "--json", out, env=env,
    )  # fmt: skip
    assert result.returncode == 3, result.stderr
    figures = json.loads(out.read_text())
    assert (figures["executions"], figures["infra"], figures["real_infra"]) == (12, 0, 0)
    assert figures["real_executions"] > 0 < figures["real_seconds"]
    found = {row["before"]: row for row in figures["findings"] if row["fingerprint"] == PRINT}
    assert set(found) == {"0.28.0", "0.28.0:real"}, result.stderr
    assert {row["component"] for row in found.values()} == {"scheduler"}


@pytest.mark.skipif(not guide.available(), reason="no Atheris on this machine")
def test_a_hunt_on_the_real_runner_wastes_no_run_on_what_it_cannot_play(env, tmp_path) -> None:
    out = tmp_path / "out.json"
    result = schedfuzz("hunt", *PAIR, "--runner", "real", "--runs", 30, "--seed", 5, "--corpus",
                       tmp_path / "corpus", "--json", out, env=env)  # fmt: skip
    assert result.returncode in (0, 3), result.stderr
    figures = json.loads(out.read_text())
    assert (figures["executions"], figures["infra"]) == (30, 0)
    known = {name for name, _ in limits._LIMITS}
    assert not known & set(figures["left_out"])
    assert all(row["before"] == "0.28.0:real" for row in figures["findings"])


# -- fidelity ------------------------------------------------------------------------------------


def test_fidelity_counts_every_scenario_and_leaves_examples(env, tmp_path) -> None:
    out, result_file = tmp_path / "examples", tmp_path / "x.json"
    result = schedfuzz("bench", "fidelity", "0.29.0", "--scenarios", 25, "--seed", 3, "--out", out,
                       "--json", result_file, env=env)  # fmt: skip
    figures = json.loads(result_file.read_text())
    rows = figures["differences"]
    assert result.returncode == (3 if rows else 0), result.stderr
    assert (figures["compared"], figures["infra"]) == (25, 0)
    assert figures["equal"] + sum(row["count"] for row in rows) == 25
    assert figures["equal"] >= 20, rows
    assert f"{figures['equal']} of 25 scenarios equal on both runners" in result.stdout
    assert len(list(out.iterdir())) == len(rows)
    assert "compared " in result.stderr


def test_fidelity_that_is_interrupted_keeps_what_it_counted(env, tmp_path) -> None:
    result_file = tmp_path / "x.json"
    process = start("bench", "fidelity", "0.29.0", "--scenarios", 10**6, "--json", result_file,
                    env=env)  # fmt: skip
    read_to(process, "compared ")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert json.loads(result_file.read_text())["compared"] > 0
    assert "scenarios equal on both runners" in out and "cut short: " in out


def test_fidelity_of_what_is_no_release_is_one_line(env) -> None:
    result = schedfuzz("bench", "fidelity", "0.29.0:real", env=env)
    assert (result.returncode, result.stdout) == (2, "")
    assert "target '0.29.0:real' is not a release" in result.stderr
