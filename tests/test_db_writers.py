"""Several writers at once, writers that are killed, and a disk that is full."""

import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest
from found import list_findings
from sqlalchemy import update
from test_db import hunt, record, scenario, verdict

from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InfraError
from schedfuzz.db import queries, rows, writes
from schedfuzz.db.connect import Store, open_store
from schedfuzz.db.models import Finding

pytest_plugins = ["postgres"]
fork = multiprocessing.get_context("fork")


def in_processes(work: Callable[..., None], *arguments: object, count: int = 8) -> None:
    """Run `work(index, *arguments)` in processes that share nothing; all must succeed."""
    children = [fork.Process(target=work, args=(index, *arguments)) for index in range(count)]
    for child in children:
        child.start()
    for child in children:
        child.join(600)  # only against a hang: a loaded machine is slow
    assert [child.exitcode for child in children] == [0] * count


def count_many(index: int, url: str, hunt_id: int, times: int) -> None:
    store = open_store(url)
    for number in range(times):
        names = ("shared", f"own {index}", f"round {number}")
        record(store, hunt_id, verdict(names[number % 3]), scenario(1 + number % 4))
    store.close()


@pytest.mark.parametrize("times", [36, 1250], ids=["few", "ten-thousand-in-total"])
def test_counts_are_exact_with_eight_writers(url: str, times: int) -> None:
    store = open_store(url)
    one = hunt(store)
    store.close()
    in_processes(count_many, url, one, times)
    store = open_store(url)
    thirds = [len(range(first, times, 3)) for first in range(3)]
    expected = {"shared": 8 * thirds[0]} | {f"own {n}": thirds[1] for n in range(8)}
    expected |= {f"round {n}": 8 for n in range(2, times, 3)}
    found = list_findings(store)
    assert {row.fingerprint: row.count for row in found} == expected
    assert sum(row.count for row in found) == 8 * times
    kept = [len(queries.list_occurrences(store, row.id)) for row in found]
    assert kept == [min(row.count, writes.KEPT_OCCURRENCES) for row in found]
    store.close()


def test_a_minimizer_that_waited_does_not_overwrite_a_better_reproducer(store: Store) -> None:
    record(store, hunt(store), verdict(), scenario(3))
    best, late = scenario(1), scenario(2)
    replaced: list[bool] = []
    waiting = threading.Thread(
        target=lambda: replaced.append(writes.save_reproducer(store, 1, late, 5, 1, "running"))
    )
    with store.write() as session:
        rows.put_scenario(session, best)
        session.execute(update(Finding).values(rows.reproducer_columns(best, 5)))
        waiting.start()
        waiting.join(0.5)  # long enough to reach the lock
        assert waiting.is_alive()
    waiting.join(30)
    assert replaced == [False]
    assert codec.decode(queries.get_finding(store, 1).reproducer.data) == best


def write_until_killed(url: str, hunt_id: int, committed: Connection) -> None:
    store = open_store(url)
    for number in itertools.count(1):
        record(store, hunt_id, verdict(), scenario())
        committed.send(number)


def test_kill_loses_nothing_that_was_committed(url: str) -> None:
    store = open_store(url)
    one = hunt(store)
    store.close()
    receiver, sender = fork.Pipe(duplex=False)
    child = fork.Process(target=write_until_killed, args=(url, one, sender))
    child.start()
    sender.close()
    while (last := receiver.recv()) < 40:
        pass
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    try:
        while True:
            last = receiver.recv()
    except EOFError:
        pass
    store = open_store(url)
    assert queries.get_finding(store, 1).count in (last, last + 1)  # one more may be unannounced
    record(store, one, verdict(), scenario())
    store.close()


def test_a_full_disk_is_the_machine_s_fault(tmp_path: object) -> None:
    store = open_store(f"sqlite:///{tmp_path}/x.db")
    one = hunt(store)
    with store.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=1")  # SQLite's own "disk full"
    with pytest.raises(InfraError, match="no space left") as caught:
        for number in range(1000):
            record(store, one, verdict(str(number)), scenario())
    assert "\n" not in str(caught.value)
    store.close()
