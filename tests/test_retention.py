"""What pruning deletes, what it leaves, and what it does beside writers, on both dialects."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import insert, select, update
from test_db import PAIR, hunt, record, scenario, verdict
from test_db_samples import campaign

from schedfuzz.corpus import codec
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.db import (
    poison,
    queries,
    rows,
    samples,
    shared_corpus,
    verifications,
    writes,
)
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Base, Finding, Hunt, Incident, Occurrence, StoredScenario
from schedfuzz.db.retention import policy, prune
from schedfuzz.db.service_models import Campaign, CorpusEntry, Job, Node, NodeTarget, Poison, Sample

pytest_plugins = ["postgres"]
NOW = datetime(2030, 6, 30, 18, tzinfo=UTC)


def ago(days: float) -> datetime:
    return NOW - timedelta(days)


def change(store: Store, model: type[Base], values: dict[str, Any], **which: object) -> None:
    with store.write() as session:
        session.execute(update(model).filter_by(**which).values(values))


def left(store: Store, column: Any) -> list[Any]:
    with store.read() as session:
        return sorted(session.scalars(select(column)))


def put(store: Store, *some: Scenario) -> None:
    with store.write() as session:
        for one in some:
            rows.put_scenario(session, one)


def deleted(store: Store) -> dict[str, int]:
    """Prune, check that the dry run before it said the same, and return the rules that did work."""
    said = prune(store, dry_run=True, now=NOW)
    done = prune(store, now=NOW)
    assert said == done
    assert set(prune(store, now=NOW).values()) == {0}
    return {name: count for name, count in done.items() if count}


# -- policy --------------------------------------------------------------------------------------


def test_every_table_has_its_rule() -> None:
    names = [rule.name.replace(" ", "_") for rule in policy()]
    assert len(names) == len(set(names))
    assert set(names) - {"old_samples"} == set(Base.metadata.tables)


def test_an_empty_database_and_a_fresh_one_lose_nothing(store: Store) -> None:
    names = [rule.name for rule in policy() if rule.days is not None]
    assert prune(store) == dict.fromkeys(names, 0)
    one = hunt(store)
    record(store, one, verdict(), scenario())
    writes.record_incident(store, one, "0.28.0", "killed", "signal 9", scenario(2))
    shared_corpus.add(store, *PAIR, [scenario(3)])
    poison.blame(store, *PAIR, scenario(4), "signal 9")
    writes.finish_hunt(store, one, "done", 1, 1.0)
    assert prune(store) == dict.fromkeys(names, 0)


# -- each rule -----------------------------------------------------------------------------------


def test_findings_stay_with_their_scenarios(store: Store) -> None:
    record(store, hunt(store), verdict(), scenario(4))
    record(store, 1, verdict(), scenario(3))
    writes.save_reproducer(store, 1, scenario(2), 9, 1, "running")
    writes.save_reproducer(store, 1, scenario(1), 9, 1, "done")
    verifications.save(store, 1, "0.32.0", "breaks", 3, 3)
    for model, column in (
        (Finding, "first_seen_at"), (Finding, "last_seen_at"), (Occurrence, "seen_at"),
        (Hunt, "ended_at"),
    ):  # fmt: skip
        change(store, model, {column: ago(4000)})
    assert deleted(store) == {"scenarios": 1}  # the reproducer that was not the best
    finding = queries.get_finding(store, 1)
    assert codec.decode(finding.reproducer.data) == scenario(1)
    assert codec.decode(finding.scenario.data) == scenario(4)
    kept = queries.list_occurrences(store, 1)
    assert [queries.get_scenario(store, one.scenario_id) for one in kept] == [
        scenario(4), scenario(3),
    ]  # fmt: skip
    assert len(verifications.of(store, 1)) == 1
    assert left(store, Hunt.id) == [1]


def test_occurrences_beyond_the_first_go_when_they_are_old(store: Store) -> None:
    one = hunt(store)
    for name in "ab":
        record(store, one, verdict(name), scenario())
    put(store, scenario(2))
    values = {
        "finding_id": 1, "hunt_id": one, "scenario_id": codec.scenario_id(scenario(2)),
        "execution": 1, "seconds": 1.0,
    }  # fmt: skip
    with store.write() as session:
        for days in [40] * 21 + [29] * 2:
            session.execute(insert(Occurrence).values({**values, "seen_at": ago(days)}))
    change(store, Occurrence, {"seen_at": ago(50)}, scenario_id=codec.scenario_id(scenario()))
    assert len(queries.list_occurrences(store, 1)) == 24
    oldest = [row.id for row in queries.list_occurrences(store, 1)]
    assert deleted(store) == {"occurrences": 2}
    assert [row.id for row in queries.list_occurrences(store, 1)] == oldest[:20] + oldest[22:]
    assert len(queries.list_occurrences(store, 2)) == 1


def test_incidents_go_and_their_scenarios_with_them(store: Store) -> None:
    one = hunt(store)
    record(store, one, verdict(), scenario(3))
    for number, days in ((2, 31), (3, 31), (4, 29)):
        number = writes.record_incident(store, one, "0.28.0", "killed", "", scenario(number))
        change(store, Incident, {"seen_at": ago(days)}, id=number)
    assert deleted(store) == {"incidents": 2, "scenarios": 1}
    assert left(store, StoredScenario.id) == sorted(
        codec.scenario_id(scenario(number)) for number in (3, 4)
    )


def test_samples_are_thinned_then_go(store: Store) -> None:
    number, first, second = campaign(store), hunt(store), hunt(store)
    midnight = ago(20).replace(hour=0)

    def add(hunt_id: int, at: datetime, executions: int) -> None:
        figures = dict.fromkeys(samples.FIGURES, 0) | {"executions": executions}
        samples.add(store, number, hunt_id, at=at, **figures)

    short = timedelta(milliseconds=10)  # SQLite's own clock rounds to one
    add(first, midnight - short, 1)  # the last of its day
    for index, hour in enumerate((0, 9, 23)):
        add(first, midnight + timedelta(hours=hour), 10 + index)
    add(first, midnight + timedelta(days=1) - short, 13)
    add(first, midnight + timedelta(days=1), 20)
    add(second, midnight, 30)
    add(second, ago(400), 31)
    add(second, ago(400), 32)
    for minute in range(3):
        add(second, ago(13) + timedelta(minutes=minute), 40 + minute)
    assert deleted(store) == {"samples": 3, "old samples": 2}
    assert left(store, Sample.executions) == [1, 13, 20, 30, 40, 41, 42]


def test_finished_jobs_go(store: Store) -> None:
    kept = (
        ("coordinate", "done", 99), ("hunt", "failed", 99), ("hunt", "running", None),
        ("hunt", "waiting", None), ("verify", "done", 29),
    )  # fmt: skip
    kinds = "hunt", "export", "minimize", "verify", "distill"
    gone = [(kind, "done", 31) for kind in kinds]
    with store.write() as session:
        for number, (kind, state, days) in enumerate([*kept, *gone]):
            session.add(
                Job(
                    kind=kind, subject=str(number), state=state, not_before=ago(100),
                    created_at=ago(100), ended_at=None if days is None else ago(days),
                )
            )  # fmt: skip
    assert deleted(store) == {"jobs": 5}
    assert left(store, Job.subject) == ["0", "1", "2", "3", "4"]


def test_dropped_corpus_entries_go(store: Store) -> None:
    some = [scenario(number) for number in (1, 2, 3)]
    names = [codec.scenario_id(one) for one in some]
    shared_corpus.add(store, *PAIR, some)
    change(store, CorpusEntry, {"added_at": ago(900)})
    shared_corpus.drop(store, *PAIR, names[:2])
    change(store, CorpusEntry, {"dropped_at": ago(31)}, scenario_id=names[0])
    change(store, CorpusEntry, {"dropped_at": ago(29)}, scenario_id=names[1])
    assert deleted(store) == {"corpus entries": 1, "scenarios": 1}
    assert left(store, CorpusEntry.scenario_id) == sorted(names[1:])
    assert shared_corpus.add(store, *PAIR, some) == 1


def test_poisons_go_when_forgiven_or_long_quiet(store: Store) -> None:
    for number, days in ((1, 1), (2, 91), (3, 89)):
        poison.blame(store, *PAIR, scenario(number), "")
        name = codec.scenario_id(scenario(number))
        change(store, Poison, {"last_at": ago(days)}, scenario_id=name)
    poison.forgive(store, codec.scenario_id(scenario(1)))
    assert deleted(store) == {"poisons": 2, "scenarios": 2}
    assert left(store, Poison.scenario_id) == [codec.scenario_id(scenario(3))]


def test_dead_nodes_go_with_what_was_prepared_on_them(store: Store) -> None:
    nodes = (("dead", False, 31), ("fresh", False, 29), ("mute", True, 31))
    for name, alive, days in nodes:
        node = Node(
            id=name, address="", resources={}, alive=alive, first_seen_at=ago(99),
            heartbeat_at=ago(days),
        )  # fmt: skip
        with store.write() as session:
            session.add(node)
        with store.write() as session:
            for release in ("0.28.0", "0.29.0"):
                session.add(
                    NodeTarget(node_id=name, release=release, state="ready", changed_at=ago(99))
                )
    assert deleted(store) == {"node targets": 2, "nodes": 1}
    assert left(store, Node.id) == ["fresh", "mute"]
    assert left(store, NodeTarget.node_id) == ["fresh", "fresh", "mute", "mute"]


def test_hunts_go_when_nothing_refers_to_them(store: Store) -> None:
    active, removed = campaign(store), campaign(store, "removed")
    change(store, Campaign, {"state": "removed"}, id=removed)
    numbers = [hunt(store) for _ in range(9)]
    running, young, plain, of_active, of_removed, found, sighted, failed, sampled = numbers
    change(store, Hunt, {"ended_at": ago(91)})
    change(store, Hunt, {"ended_at": None}, id=running)
    change(store, Hunt, {"ended_at": ago(89)}, id=young)
    change(store, Hunt, {"campaign_id": active}, id=of_active)
    change(store, Hunt, {"campaign_id": removed}, id=of_removed)
    record(store, found, verdict(), scenario())
    record(store, sighted, verdict(), scenario())
    incident = writes.record_incident(store, failed, "0.28.0", "killed", "")
    change(store, Incident, {"seen_at": ago(29)}, id=incident)
    figures = dict.fromkeys(samples.FIGURES, 0)
    samples.add(store, removed, sampled, at=ago(364), **figures)
    assert deleted(store) == {"hunts": 2}
    assert left(store, Hunt.id) == sorted(set(numbers) - {plain, of_removed})
    change(store, Incident, {"seen_at": ago(31)}, id=incident)
    change(store, Sample, {"at": ago(366)})
    assert deleted(store) == {"incidents": 1, "old samples": 1, "hunts": 2}
