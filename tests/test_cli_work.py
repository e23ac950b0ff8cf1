"""replay, minimize and corpus merge on the real pair, each in a process of its own."""

import json
import signal
import subprocess
from pathlib import Path
from random import Random

import pytest
from command import schedfuzz, start
from fabricated import SEED_BUG

from schedfuzz.cli.hunt import seed_corpus
from schedfuzz.corpus import codec
from schedfuzz.corpus.rules import violation
from schedfuzz.corpus.trace import Verdict
from schedfuzz.db import queries, writes
from schedfuzz.db.connect import Store, open_store
from schedfuzz.fuzzer.generate import generate
from schedfuzz.fuzzer.judge import fingerprint, key
from schedfuzz.workers.home import Home

pytestmark = pytest.mark.vllm

PAIR = ("0.28.0", "0.29.0")
RULE = "past-max-model-len"
SIZE = (4, 12)  # requests, engine steps of SEED_BUG on 0.28.0


@pytest.fixture
def env(shared_home: Home, tmp_path: Path, environment_028, environment_029) -> dict[str, str]:
    url = f"sqlite:///{tmp_path / 'work.db'}"
    return {"SCHEDFUZZ_HOME": str(shared_home.root), "SCHEDFUZZ_DB": url}


@pytest.fixture
def store(env: dict[str, str]) -> Store:
    """A database that holds the seed bug as finding 1, as a hunt would have stored it."""
    store = open_store(env["SCHEDFUZZ_DB"])
    identity = key(violation(RULE, "", 0, path="new"))
    verdict = Verdict("fixed", "contract", RULE, fingerprint("fixed", identity), "no room")
    hunt = writes.start_hunt(store, *PAIR, 1, {})
    writes.record_verdict(store, hunt, *PAIR, verdict, SEED_BUG, SIZE[1], 1, 0.5)
    return store


@pytest.fixture
def bug(tmp_path: Path) -> Path:
    file = tmp_path / "bug.json"
    file.write_text(codec.pretty(SEED_BUG))
    return file


def stop_after(process: subprocess.Popen[str], start: str) -> None:
    """Send SIGTERM once a line of standard error begins with `start`."""
    assert process.stderr is not None
    assert any(line.startswith(start) for line in process.stderr)
    process.send_signal(signal.SIGTERM)


def test_replay_shows_the_seed_bug(env, bug) -> None:
    result = schedfuzz("replay", bug, *PAIR, env=env)
    assert result.returncode == 3, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"fixed  contract  {RULE}  ")
    assert any(line.startswith("0.28.0: step 4, r2: contract: ") for line in lines[1:3])
    padded = next(line for line in lines if "r2 new 64+2 (1 draft)" in line)
    assert padded.endswith("r2 new 64+1 ->1")


def test_replay_of_a_finding_as_json(env, store) -> None:
    result = schedfuzz("replay", "1", *PAIR, "--json", env=env)
    assert result.returncode == 3, result.stderr
    value = json.loads(result.stdout)
    assert (value["verdict"], value["kind"], value["rule"]) == ("fixed", "contract", RULE)
    assert [value[side]["outcome"] for side in ("before", "after")] == ["violated", "finished"]
    assert len(value["before"]["steps"]) == SIZE[1]
    assert [output["request"] for output in value["after"]["outputs"]] == [0, 1, 2, 3]


def test_minimize_stops_on_sigterm_with_its_best_and_goes_on_later(env, store) -> None:
    process = start("minimize", "1", env=env)
    stop_after(process, "call ")
    assert process.communicate(timeout=60)[0].startswith("finding 1: partial after ")
    assert process.returncode == 130
    stopped = queries.get_finding(store, 1)
    assert stopped.minimize_state == "partial"
    assert stopped.minimize_calls > 0
    assert (stopped.reproducer_requests, stopped.reproducer_steps) < SIZE

    result = schedfuzz("minimize", "1", env=env)
    assert result.returncode == 0, result.stderr
    row = queries.get_finding(store, 1)
    assert (row.minimize_state, row.confirm_hits, row.status) == ("done", 3, "minimized")
    assert row.minimize_calls > stopped.minimize_calls
    assert (row.reproducer_requests, row.reproducer_steps) == (2, 3)


def test_minimize_of_a_file_keeps_its_best_in_out(env, bug, tmp_path) -> None:
    out = tmp_path / "new" / "small.json"
    result = schedfuzz("minimize", bug, *PAIR, "--out", out, "--calls", "60", env=env)
    assert result.returncode == 0, result.stderr
    assert len(codec.load(out).requests) < SIZE[0]
    assert json.loads(bug.read_text()) == json.loads(codec.pretty(SEED_BUG))


def test_merge_drops_what_lights_nothing_new(env, tmp_path) -> None:
    corpus, other = tmp_path / "corpus", tmp_path / "other"
    corpus.mkdir()
    other.mkdir()
    seats = codec.load(seed_corpus() / "seats_saturated.json")
    chunks = codec.load(seed_corpus() / "chunked_prefill.json")
    for name in ("one", "two"):  # libFuzzer's own names and compact form
        (corpus / name).write_bytes(codec.encode(seats))
    (corpus / "notes").write_text("no scenario, so it stays")
    (other / "more").write_text(codec.pretty(chunks))
    result = schedfuzz("corpus", "merge", *PAIR, other, "--corpus", corpus, env=env)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{corpus}\t2 files, 2 scenarios with the others\tkept 2\n"
    names = {f"{codec.scenario_id(scenario)[:16]}.json" for scenario in (seats, chunks)}
    assert {file.name for file in corpus.iterdir()} == names | {"notes"}
    assert [file.name for file in other.iterdir()] == ["more"]


def test_merge_that_is_stopped_changes_nothing(env, tmp_path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number in range(2000):
        (corpus / f"{number:04}").write_bytes(codec.encode(generate(Random(number))))
    files = sorted(corpus.iterdir())
    process = start("corpus", "merge", *PAIR, "--corpus", corpus, env=env)
    stop_after(process, "running ")
    assert process.communicate(timeout=60)[0] == ""
    assert process.returncode == 130
    assert sorted(corpus.iterdir()) == files
