"""The named queries and writes, on both dialects."""

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from found import list_findings

from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.events import Abort
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.trace import Verdict
from schedfuzz.db import queries, writes
from schedfuzz.db.connect import Store

pytest_plugins = ["postgres"]
PAIR = ("0.28.0", "0.29.0")


def scenario(requests: int = 1, events: int = 0, length: int = 5) -> Scenario:
    return Scenario(
        engine=Engine(max_model_len=64, num_blocks=32),
        requests=tuple(
            Request(id=index, prompt=Prompt(length=length), max_tokens=3)
            for index in range(requests)
        ),
        events=tuple(Abort(step=step, request=0) for step in range(events)),
    )


def verdict(fingerprint: str = "f", name: str = "fixed", kind: str = "contract") -> Verdict:
    return msgspec.convert(
        {"verdict": name, "kind": kind, "rule": "bound", "fingerprint": fingerprint,
         "title": f"title of {fingerprint}", "detail": "detail"}, Verdict,
    )  # fmt: skip


def hunt(store: Store) -> int:
    return writes.start_hunt(store, *PAIR, seed=7, options={"workers": 2})


def record(
    store: Store, hunt_id: int, what: Verdict, data: Scenario, steps: int = 9, execution: int = 1
) -> tuple[int, bool]:
    return writes.record_verdict(
        store, hunt_id, *PAIR, what, data, steps, execution, execution / 4
    )  # fmt: skip


def test_a_hunt_runs_and_ends(store: Store) -> None:
    first, second = hunt(store), hunt(store)
    writes.update_hunt(store, first, 10, 1.5)
    writes.finish_hunt(store, second, "interrupted", 30, 2.5)
    newest, oldest = queries.list_hunts(store)
    assert (newest.id, newest.state, newest.executions, newest.seconds) == (
        second, "interrupted", 30, 2.5,
    )  # fmt: skip
    assert (oldest.id, oldest.state, oldest.executions, oldest.ended_at) == (
        first, "running", 10, None,
    )  # fmt: skip
    assert (oldest.before, oldest.after, oldest.seed) == (*PAIR, 7)
    assert oldest.options == {"workers": 2}
    assert newest.ended_at is not None and newest.ended_at.utcoffset() == timedelta(0)
    assert abs(newest.ended_at - datetime.now(UTC)) < timedelta(minutes=1)


def test_a_known_fingerprint_is_counted_not_stored_again(store: Store) -> None:
    one = hunt(store)
    seen = [record(store, one, verdict(), scenario(1 + n), execution=n) for n in range(25)]
    assert seen == [(1, n == 0) for n in range(25)]
    finding = queries.get_finding(store, 1)
    assert (finding.count, finding.executions_to_find, finding.seconds_to_find) == (25, 0, 0)
    assert finding.first_seen_at < finding.last_seen_at
    assert finding.scenario_id == finding.reproducer_id == codec.scenario_id(scenario(1))
    kept = queries.list_occurrences(store, 1)
    assert [row.execution for row in kept] == list(range(20))
    assert queries.get_scenario(store, kept[19].scenario_id) == scenario(20)
    with pytest.raises(InputError, match="not in"):
        queries.get_scenario(store, codec.scenario_id(scenario(21)))


def test_a_finding_belongs_to_its_pair(store: Store) -> None:
    one = hunt(store)
    record(store, one, verdict("f"), scenario())
    record(store, one, verdict("g"), scenario())
    back = writes.record_verdict(
        store, one, *reversed(PAIR), verdict("f", "regressed"), scenario(), 9, 1, 1.0
    )
    assert back == (3, True)  # ids are dense on both dialects


def test_findings_are_filtered(store: Store) -> None:
    one = hunt(store)
    record(store, one, verdict("a", "fixed", "crash"), scenario())
    record(store, one, verdict("b", "changed", "divergence"), scenario())
    writes.record_confirmation(store, 2, 3, 3)

    def ids(**filters: Any) -> list[int]:
        return [row.id for row in list_findings(store, **filters)]

    assert ids() == ids(before=PAIR[0], after=PAIR[1]) == [1, 2]
    assert ids(verdict="fixed") == ids(kind="crash") == ids(status=("new",)) == [1]
    assert ids(verdict="fixed", kind="divergence") == ids(before=PAIR[1]) == []


def test_json_of_a_finding(store: Store) -> None:
    record(store, hunt(store), verdict(), scenario(2, 1), steps=9, execution=4)
    assert queries.finding_as_json(queries.get_finding(store, 1)) == {
        "id": 1, "before": PAIR[0], "after": PAIR[1], "verdict": "fixed", "kind": "contract",
        "rule": "bound", "component": None, "fingerprint": "f", "title": "title of f",
        "status": "new", "count": 1,
        "executions_to_find": 4, "seconds_to_find": 1.0,
        "reproducer": {
            "requests": 2, "events": 1, "steps": 9,
            "scenario": msgspec.json.decode(codec.encode(scenario(2, 1))),
        },
    }  # fmt: skip


def test_text_that_a_database_cannot_hold(store: Store) -> None:
    odd = msgspec.structs.replace(verdict(), detail="nul \0 lone \ud800 end", title="é")
    record(store, hunt(store), odd, scenario())
    finding = queries.get_finding(store, 1)
    assert (finding.detail, finding.title) == ("nul \\x00 lone \\ud800 end", "é")


@pytest.mark.parametrize("name", ["clean", "infra"])
def test_what_is_no_finding_is_refused(store: Store, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        record(store, hunt(store), msgspec.convert({"verdict": name}, Verdict), scenario())
    assert list_findings(store) == []


@pytest.mark.parametrize("finding_id", [0, 1, -1, 10**30])
def test_an_unknown_finding(store: Store, finding_id: int) -> None:
    with pytest.raises(InputError, match=f"finding {finding_id}: not in"):
        queries.get_finding(store, finding_id)


def test_a_reproducer_never_gets_worse(store: Store) -> None:
    one = hunt(store)
    # (scenario, steps), best first: by requests, events, steps, then by the JSON
    ranked = [
        (scenario(1), 9), (scenario(1, 1), 4), (scenario(1, 1), 5), (scenario(1, 1, 10), 5),
        (scenario(2), 3),
    ]  # fmt: skip
    for number, ranks in enumerate(itertools.permutations(range(5)), start=1):
        record(store, one, verdict(str(number)), scenario(3))
        best = 5
        for rank in ranks:
            data, steps = ranked[rank]
            better = writes.save_reproducer(store, number, data, steps, 1, "running")
            assert better == (rank < best)
            best = min(best, rank)
            finding = queries.get_finding(store, number)
            shown = (codec.decode(finding.reproducer.data), finding.reproducer_steps)
            assert shown == ranked[best]
        if number == 30:
            break
    assert finding.scenario_id == codec.scenario_id(scenario(3))
    assert (finding.reproducer_requests, finding.reproducer_events) == (1, 0)


def test_minimizing_is_resumed_until_done(store: Store) -> None:
    one = hunt(store)
    for name in "abcd":
        record(store, one, verdict(name), scenario(3))
    writes.save_reproducer(store, 2, scenario(2), 5, 10, "running")
    writes.save_reproducer(store, 3, scenario(2), 5, 10, "partial")
    writes.save_reproducer(store, 4, scenario(2), 5, 10, "running")
    assert not writes.save_reproducer(store, 4, scenario(2), 5, 40, "done")
    left = queries.unfinished_minimizations(store, *PAIR)
    assert [(row.id, row.minimize_state) for row in left] == [
        (1, "none"), (2, "running"), (3, "partial"),
    ]  # fmt: skip
    assert codec.decode(left[1].reproducer.data) == scenario(2)
    assert queries.get_finding(store, 4).minimize_calls == 40
    assert queries.unfinished_minimizations(store, *reversed(PAIR)) == []


def test_status_follows_confirmation_and_minimization(store: Store) -> None:
    record(store, hunt(store), verdict(), scenario(3))

    def status() -> str:
        return queries.get_finding(store, 1).status

    assert status() == "new"
    writes.record_confirmation(store, 1, 5, 5)
    assert status() == "confirmed"
    writes.save_reproducer(store, 1, scenario(), 5, 10, "done")
    assert status() == "minimized"
    writes.record_confirmation(store, 1, 5, 4)
    assert status() == "flaky"
    finding = queries.get_finding(store, 1)
    assert (finding.confirm_runs, finding.confirm_hits) == (5, 4)


def test_an_export_is_remembered(store: Store) -> None:
    record(store, hunt(store), verdict(), scenario())
    writes.record_export(store, 1, "findings/test_1.py")
    assert queries.get_finding(store, 1).export_path == "findings/test_1.py"


def test_incidents_keep_the_scenario_that_did_it(store: Store) -> None:
    one, two = hunt(store), hunt(store)
    writes.record_incident(store, one, "0.28.0", "killed", "signal 9", scenario(2))
    writes.record_incident(store, two, "0.29.0", "hang", "no step for 5 s")
    newest, oldest = queries.list_incidents(store)
    assert (newest.what, newest.scenario_id, newest.target) == ("hang", None, "0.29.0")
    assert [row.id for row in queries.list_incidents(store, one)] == [oldest.id]
    assert oldest.scenario_id is not None
    assert queries.get_scenario(store, oldest.scenario_id) == scenario(2)
