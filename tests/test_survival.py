"""What the machine does to a hunt: kills and no memory. Nothing is lost and nobody stays."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from command import schedfuzz
from fabricated import SEED_BUG, SMALL
from found import list_findings
from running import FOR_EVER, PATIENCE, gone, read_to, until, workers, zygotes

from schedfuzz.corpus.rules import violation
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.trace import Verdict
from schedfuzz.db import queries, writes
from schedfuzz.db.connect import Store, open_store
from schedfuzz.fuzzer.generate import generate
from schedfuzz.fuzzer.judge import fingerprint, key
from schedfuzz.workers.home import LOG_BYTES, Home
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.targets import parse_target

pytestmark = pytest.mark.vllm
PAIR = ("0.28.0", "0.29.0")
FAULTS = Path(__file__).parent / "faults" / "faults.py"
STEPS = 12  # of SEED_BUG on 0.28.0
# Four requests at once; the faults of these tests wait for the third.
BUSY = Scenario(
    Engine(max_model_len=66, num_blocks=40),
    tuple(Request(number, Prompt(33), 9, arrival=2 * number) for number in range(4)),
)


@pytest.fixture
def store(own_home: Home) -> Iterator[Store]:
    store = open_store(own_home.database_url)
    yield store
    store.close()


# -- targets -------------------------------------------------------------------------------------


def test_a_hunt_outlives_its_workers_and_zygotes(start, store, tmp_path) -> None:
    out = tmp_path / "out.json"
    hunt = start("hunt", *PAIR, *FOR_EVER, "--json", out)
    read_to(hunt, "hunting")
    for victims, reason in ((workers, "worker ended by SIGKILL"), (zygotes, "its process ended")):
        os.kill(until(lambda find=victims: find(hunt.pid))[0], signal.SIGKILL)
        [incident] = until(lambda text=reason: incidents(store, text))
        assert incident.what == "worker-lost" and incident.target in PAIR
        assert queries.get_scenario(store, incident.scenario_id).requests
    executions = queries.list_hunts(store)[0].executions
    until(lambda: queries.list_hunts(store)[0].executions > executions)
    hunt.send_signal(signal.SIGTERM)
    err = hunt.communicate(timeout=PATIENCE)[1]
    result = json.loads(out.read_text())
    # A kill in the middle of reading a job costs one more restart.
    assert result["restarts"] == 2 + len(incidents(store, "broken frame"))
    assert result["infra"] == 0
    assert not {"process-died", "wall-limit"} & {row["rule"] for row in result["findings"]}, err
    assert gone(hunt.pid)


def incidents(store: Store, text: str) -> list[Any]:
    return [row for row in queries.list_incidents(store) if text in row.detail]


def test_a_kill_between_two_jobs_mixes_up_no_traces(own_home) -> None:
    scenarios = [generate(Random(seed)) for seed in range(12)]
    target = parse_target("0.29.0")
    descriptors = Path("/proc/self/fd")
    with Pair(target, target, own_home, print) as pair:
        want = [pair.run(scenario) for scenario in scenarios]
        opened = len(list(descriptors.iterdir()))
        for victim in (lambda: pair.before.worker, lambda: zygotes(os.getpid())[0]):
            os.kill(victim(), signal.SIGKILL)
            time.sleep(0.2)
            assert [pair.run(scenario) for scenario in scenarios] == want
        assert pair.restarts >= 2
        assert len(list(descriptors.iterdir())) == opened
    assert gone(os.getpid())
    with pytest.raises(ChildProcessError):  # no zombie either
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize("fault", ["hoarding_schedule", "noisy_schedule"])
def test_a_greedy_and_a_noisy_target(own_home, fault) -> None:
    incidents: list[tuple[str, str]] = []
    target = parse_target(f"0.29.0+{FAULTS}:{fault}")
    with Pair(
        parse_target("0.29.0"), target, own_home, print,
        lambda what, detail, _: incidents.append((what, detail)), recycle_bytes=256 << 20,
    ) as pair:  # fmt: skip
        for _ in range(3):
            before, after = pair.run(BUSY)
            assert before.outcome == "finished"
            if fault == "hoarding_schedule":
                assert (after.outcome, after.reason) == ("infra", "out of memory")
            else:
                assert after.steps == before.steps
            assert pair.run(SMALL)[1].outcome == "finished"
        log = pair.after.log
    if fault == "hoarding_schedule":
        assert incidents == [("not-run", f"{target.name}: out of memory")] * 3
    else:
        assert not incidents
        assert 0 < log.stat().st_size <= 2 * LOG_BYTES


def test_a_transform_that_fails_is_bad_input(own_home) -> None:
    env = {"SCHEDFUZZ_HOME": str(own_home.root)}
    result = schedfuzz("hunt", "0.29.0", f"0.29.0+{FAULTS}:no_transform", env=env)
    assert result.returncode == 2, result.stderr
    last = result.stderr.splitlines()[-1]
    assert f"{FAULTS}:no_transform" in last
    assert "LookupError: nothing to change in vllm.v1." in last
    assert "Traceback" not in result.stderr


# -- the hunt itself -----------------------------------------------------------------------------


def test_a_killed_hunt_leaves_nobody_and_the_next_one_resumes(start, store, tmp_path) -> None:
    hunt = start("hunt", *PAIR, *FOR_EVER, "--seed", 4)
    until(lambda: [row.id for row in unfinished(store)])
    hunt.kill()
    until(lambda: gone(hunt.pid))
    hunt.communicate()
    left = [row.id for row in unfinished(store)]
    found = {row.id for row in list_findings(store)}
    assert left
    while unfinished(store):  # more than once only where a minute is not enough for them
        calls = sum(row.minimize_calls for row in list_findings(store))
        following = start("hunt", *PAIR, "--runs", 0)
        following.communicate(timeout=PATIENCE)
        assert following.returncode == 0
        assert sum(row.minimize_calls for row in list_findings(store)) > calls
    rows = {row.id: row for row in list_findings(store)}
    assert set(rows) >= found
    assert all(rows[number].confirm_runs for number in left)
    states = [row.state for row in queries.list_hunts(store)]
    assert states == ["done"] * (len(states) - 1) + ["running"]


def unfinished(store: Store) -> list[Any]:
    return queries.unfinished_minimizations(store, *PAIR)


def test_a_killed_minimize_resumes_from_its_best(start, store) -> None:
    identity = key(violation("past-max-model-len", "", 0, path="new"))
    verdict = Verdict(
        "fixed", "contract", "past-max-model-len", fingerprint("fixed", identity), "no room"
    )
    number = writes.start_hunt(store, *PAIR, 1, {})
    writes.record_verdict(store, number, *PAIR, verdict, SEED_BUG, STEPS, 1, 0.5)
    first = start("minimize", 1)
    read_to(first, "call ")
    first.kill()
    until(lambda: gone(first.pid))
    row = queries.get_finding(store, 1)
    assert row.minimize_state == "running"
    best = (row.reproducer_requests, row.reproducer_steps, len(row.reproducer.data))
    assert best < (len(SEED_BUG.requests), STEPS, 0)
    second = start("minimize", 1)
    read_to(second, f"from {best[0]} requests, 0 events, {best[1]} steps, {best[2]} bytes")
    out, err = second.communicate(timeout=PATIENCE)
    assert second.returncode == 0, err
    assert out.startswith("finding 1: done after ")
    assert queries.get_finding(store, 1).minimize_calls > row.minimize_calls


# -- repetition ----------------------------------------------------------------------------------


def test_a_seed_repeats_a_hunt(start, tmp_path) -> None:
    places = [tmp_path / "one", tmp_path / "two"]
    hunts = [
        start(
            "hunt", *PAIR, "--runs", 400, "--seed", 4, "--corpus", place / "corpus",
            "--json", place / "result.json", "--db", f"sqlite:///{place / 'db'}",
        )
        for place in places
    ]  # fmt: skip
    for hunt in hunts:
        err = hunt.communicate(timeout=2 * PATIENCE)[1]
        assert hunt.returncode == 3, err
    one, two = (
        {file.name: file.read_bytes() for file in (place / "corpus").iterdir()} for place in places
    )
    assert len(one) > 50 and one == two
    first, second = (json.loads((place / "result.json").read_text()) for place in places)
    assert first["executions"] == second["executions"] == 400
    assert len(first["findings"]) == len(second["findings"]) > 0
    for pair in zip(first["findings"], second["findings"], strict=True):
        left, right = (repeated(row, pair) for row in pair)
        assert left == right


def repeated(row: dict[str, Any], both: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """Return what a seed must repeat of a finding: all but times, and what time cut short."""
    timed = {"seconds_to_find"}
    if any(other["status"] != "minimized" for other in both):
        timed |= {"status", "reproducer"}
    return {name: value for name, value in row.items() if name not in timed}
