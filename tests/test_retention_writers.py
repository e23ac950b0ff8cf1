"""Pruning many rows, and beside writers about to refer to what nothing refers to yet."""

import itertools
import threading
import time
from datetime import timedelta

import pytest
from found import list_findings
from sqlalchemy import func, select, update
from test_db import PAIR, hunt, record, scenario, verdict
from test_db_writers import in_processes
from test_retention import NOW, ago, change, deleted, left, put

from schedfuzz.corpus import codec
from schedfuzz.db import poison, retention, rows, shared_corpus, writes
from schedfuzz.db.connect import Store, open_store
from schedfuzz.db.models import Finding, Hunt, Incident, StoredScenario
from schedfuzz.db.retention import prune
from schedfuzz.db.service_models import CorpusEntry

pytest_plugins = ["postgres"]


def test_many_rows_go_in_small_transactions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    monkeypatch.setattr(retention, "PICKED", 6)
    some = [scenario(1 + n % 4, 0, 5 + n // 4) for n in range(17)]
    shared_corpus.add(store, *PAIR, some)
    shared_corpus.add(store, *reversed(PAIR), some[:3])
    shared_corpus.drop(store, *PAIR, map(codec.scenario_id, some))
    change(store, CorpusEntry, {"dropped_at": ago(31)}, kept=False)
    assert deleted(store) == {"corpus entries": 17, "scenarios": 14}


def pruning(store: Store) -> threading.Thread:
    """Start to prune `store` in a thread; it must have had time to reach what it waits for."""
    thread = threading.Thread(target=prune, args=(store,))
    thread.start()
    thread.join(0.7)
    return thread


@pytest.mark.parametrize("stored_before", [True, False])
@pytest.mark.parametrize("deferred", [True, False])
def test_a_scenario_that_a_writer_is_about_to_refer_to_stays(
    store: Store, stored_before: bool, deferred: bool
) -> None:
    record(store, hunt(store), verdict(), scenario(1))
    put(store, scenario(3), *([scenario(2)] if stored_before else []))
    with store.write() as session:
        name = rows.put_scenario(session, scenario(2))
        thread = pruning(store)
        assert thread.is_alive()  # it waits for this transaction
        if deferred:
            session.execute(update(Finding).values(reproducer_id=name))
        else:
            session.add(
                Incident(hunt_id=1, target="", what="", detail="", scenario_id=name, seen_at=NOW)
            )
    thread.join(30)
    assert left(store, StoredScenario.id) == sorted(
        codec.scenario_id(scenario(number)) for number in (1, 2)
    )


def test_a_long_transaction_is_not_waited_for(postgres_url: str) -> None:
    store = open_store(postgres_url)
    put(store, scenario(1))
    with store.write() as session:
        rows.put_scenario(session, scenario(2))
        started = time.monotonic()
        assert prune(store)["scenarios"] == 0
        assert time.monotonic() - started < 20
    assert prune(store)["scenarios"] == 2
    store.close()


def test_a_hunt_that_a_writer_refers_to_is_left(postgres_url: str) -> None:
    store = open_store(postgres_url)
    held, free = hunt(store), hunt(store)
    change(store, Hunt, {"ended_at": ago(91)})
    with store.write() as session:
        session.add(Incident(hunt_id=held, target="", what="", detail="", seen_at=NOW))
        session.flush()
        assert prune(store, now=NOW)["hunts"] == 1
    assert left(store, Hunt.id) == [held] != [free]
    store.close()


def write_or_prune(index: int, url: str, hunt_id: int) -> None:
    """Prune all day, or refer to a few scenarios again and again that nothing else keeps."""
    store = open_store(url)
    some = [scenario(1 + n % 2, 0, 5 + n // 2) for n in range(6)]
    far = rows.now() + timedelta(1000)
    for number, one in zip(range(16), itertools.cycle(some[index:] + some[:index])):
        if index < 2:
            prune(store, now=far)
            continue
        writes.record_incident(store, hunt_id, "0.28.0", "killed", "", one)
        poison.blame(store, *PAIR, one, "")
        shared_corpus.add(store, *PAIR, some[number % 6 :])
        shared_corpus.drop(store, *PAIR, map(codec.scenario_id, some))
        if number % 10 == 0:
            record(store, hunt_id, verdict(f"{index} {number}"), one)
    store.close()


def test_writers_never_lose_a_scenario_to_pruning(url: str) -> None:
    store = open_store(url)
    one = hunt(store)
    store.close()
    in_processes(write_or_prune, url, one, count=5)
    store = open_store(url)
    assert len(list_findings(store)) == 6
    prune(store, now=rows.now() + timedelta(1000))
    with store.read() as session:
        stored = session.scalar(select(func.count()).select_from(StoredScenario))
        used = session.scalar(select(func.count(Finding.scenario_id.distinct())))
    assert stored == used
    store.close()
