"""The shared corpus and the poisons of a pair, on both dialects and with several writers."""

import random
import threading

import pytest
from found import list_findings
from sqlalchemy import update
from test_db import PAIR, hunt, record, scenario, verdict
from test_db_writers import in_processes

from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.db import poison, queries, rows, shared_corpus
from schedfuzz.db.connect import Store, open_store
from schedfuzz.db.models import StoredScenario

pytest_plugins = ["postgres"]
BACK = (PAIR[1], PAIR[0])


def several(count: int) -> list[Scenario]:
    return [scenario(1 + n % 3, n // 3 % 2, 5 + n // 6) for n in range(count)]


def ids_of(scenarios: list[Scenario]) -> set[str]:
    return {codec.scenario_id(one) for one in scenarios}


# -- corpus --------------------------------------------------------------------------------------


def test_adding_twice_is_adding_once(store: Store) -> None:
    some = several(250)  # more than a chunk
    assert len(ids_of(some)) == 250
    assert shared_corpus.add(store, *PAIR, iter(some[:10] + some[:10])) == 10
    assert shared_corpus.add(store, *PAIR, some) == 240
    assert shared_corpus.add(store, *PAIR, []) == 0
    assert shared_corpus.ids(store, *PAIR) == ids_of(some)
    assert shared_corpus.ids(store, *BACK) == set()
    assert shared_corpus.load(store, [*ids_of(some), "unknown"]) == {
        codec.scenario_id(one): one for one in some
    }


def test_a_scenario_that_is_stored_already_is_new_to_the_corpus(store: Store) -> None:
    record(store, hunt(store), verdict(), scenario())
    assert shared_corpus.add(store, *PAIR, [scenario()]) == 1
    assert shared_corpus.add(store, *BACK, [scenario()]) == 1


def test_an_invalid_scenario_is_refused(store: Store) -> None:
    with pytest.raises(InputError):
        shared_corpus.add(store, *PAIR, [scenario(length=64)])
    assert shared_corpus.ids(store, *PAIR) == set()


def test_a_dropped_entry_stays_dropped(store: Store) -> None:
    some = several(5)
    shared_corpus.add(store, *PAIR, some)
    shared_corpus.add(store, *BACK, some)
    gone = ids_of(some[:2])
    assert shared_corpus.drop(store, *PAIR, [*gone, *gone, "unknown"]) == 2
    assert shared_corpus.drop(store, *PAIR, gone) == 0
    assert shared_corpus.add(store, *PAIR, some) == 0
    assert shared_corpus.ids(store, *PAIR) == ids_of(some[2:])
    assert shared_corpus.sizes(store) == [(*PAIR, 3, 2), (*BACK, 5, 0)]
    assert shared_corpus.load(store, gone).keys() == gone


def test_what_cannot_be_decoded_is_left_out(store: Store) -> None:
    some = several(3)
    shared_corpus.add(store, *PAIR, some)
    bad = codec.scenario_id(some[1])
    with store.write() as session:
        session.execute(update(StoredScenario).filter_by(id=bad).values(data='{"schema": 99}'))
    assert shared_corpus.load(store, ids_of(some)).keys() == ids_of(some) - {bad}


def add_and_drop(index: int, url: str) -> None:
    store = open_store(url)
    some, shuffle = several(60), random.Random(index)
    for _ in range(6):
        shuffle.shuffle(some)
        shared_corpus.add(store, *PAIR, some)
        shared_corpus.drop(store, *PAIR, [codec.scenario_id(one) for one in some[:20]])
    store.close()


def count_new(index: int, url: str, target: str) -> None:
    store = open_store(url)
    some = several(120)
    random.Random(index).shuffle(some)
    new = shared_corpus.add(store, *PAIR, some)
    # The sum over all processes, kept where they can all write: a finding's count.
    one = hunt(store)
    for _ in range(new):
        record(store, one, verdict(target), scenario())
    store.close()


def test_writers_of_overlapping_sets_do_not_deadlock(url: str) -> None:
    open_store(url).close()
    in_processes(add_and_drop, url, count=4)
    store = open_store(url)
    ((*_, kept, dropped),) = shared_corpus.sizes(store)
    assert kept + dropped == 60
    assert dropped >= 20
    store.close()


def test_a_waiting_writer_holds_nothing_that_comes_later(store: Store) -> None:
    low, high = sorted(several(2), key=codec.scenario_id)
    added: list[int] = []
    waiting = threading.Thread(
        target=lambda: added.append(shared_corpus.add(store, *PAIR, [high, low]))
    )
    with store.write() as session:
        rows.put_scenario(session, low)
        waiting.start()
        waiting.join(0.7)  # long enough to reach the row
        assert waiting.is_alive()
        rows.put_scenario(session, high)  # a deadlock, if the other had begun with it
    waiting.join(30)
    assert added == [2]


def test_each_new_entry_is_counted_by_one_writer(url: str) -> None:
    open_store(url).close()
    in_processes(count_new, url, "new", count=4)
    store = open_store(url)
    assert [row.count for row in list_findings(store)] == [120]
    store.close()


# -- poisons -------------------------------------------------------------------------------------


def test_the_third_death_puts_a_scenario_into_quarantine(store: Store) -> None:
    bad, other = scenario(2), scenario(1)
    said = [poison.blame(store, *PAIR, bad, f"signal {n} \0") for n in range(5)]
    assert said == [False, False, True, False, False]
    assert not poison.blame(store, *PAIR, other, "once")
    assert poison.quarantined(store, *PAIR) == {codec.scenario_id(bad)}
    assert poison.quarantined(store, *BACK) == set()
    last, first = poison.listed(store)
    assert (last.scenario_id, last.deaths, last.quarantined) == (
        codec.scenario_id(other), 1, False,
    )  # fmt: skip
    assert (first.deaths, first.quarantined, first.detail) == (5, True, "signal 4 \\x00")
    assert queries.get_scenario(store, first.scenario_id) == bad


def test_a_forgiven_scenario_starts_anew(store: Store) -> None:
    bad = scenario(2)
    for pair in (PAIR, PAIR, PAIR, BACK):
        poison.blame(store, *pair, bad, "signal 9")
    assert poison.forgive(store, codec.scenario_id(bad)) == 2
    assert poison.forgive(store, codec.scenario_id(bad)) == 0
    assert poison.forgive(store, "unknown \0") == 0
    assert poison.listed(store) == []
    assert poison.quarantined(store, *PAIR) == set()
    assert [poison.blame(store, *PAIR, bad, "again") for _ in range(3)] == [False, False, True]


def blame_once_each(index: int, url: str) -> None:
    store = open_store(url)
    order = several(12)
    random.Random(index).shuffle(order)
    one = hunt(store)
    for bad in order:
        if poison.blame(store, *PAIR, bad, f"process {index}"):
            record(store, one, verdict(codec.scenario_id(bad)), bad)
    store.close()


def test_deaths_are_exact_and_one_writer_hears_of_the_quarantine(url: str) -> None:
    open_store(url).close()
    in_processes(blame_once_each, url, count=5)
    store = open_store(url)
    assert {row.scenario_id: row.deaths for row in poison.listed(store)} == dict.fromkeys(
        ids_of(several(12)), 5
    )
    heard = {row.fingerprint: row.count for row in list_findings(store)}
    assert heard == dict.fromkeys(ids_of(several(12)), 1)
    store.close()
