"""The daily cap: what a flood of findings may cost, exactly, and who waits for which day."""

import threading
from datetime import UTC, datetime, timedelta
from multiprocessing.synchronize import Barrier

import pytest
from found import list_findings
from sqlalchemy import select, update
from test_db import PAIR, hunt, scenario, verdict
from test_db_campaigns import add
from test_db_writers import fork, in_processes

from schedfuzz.corpus.errors import InputError
from schedfuzz.db import campaigns, held, queries, rows, writes
from schedfuzz.db.connect import Store, open_store
from schedfuzz.db.held import HeldSummary
from schedfuzz.db.service_models import Campaign

pytest_plugins = ["postgres"]
DAY = timedelta(days=1)


class Clock:
    """What `rows.now` says: the same minute of a day, later at each look."""

    def __init__(self) -> None:
        self.time = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.time += timedelta(microseconds=1)
        return self.time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(rows, "now", clock)
    return clock


def start(store: Store, name: str, cap: int) -> tuple[int, int]:
    """Return the ids of a new campaign and of a hunt of it."""
    campaign = add(store, name, daily_cap=cap).id
    return campaign, writes.start_hunt(store, *PAIR, 1, {}, campaign_id=campaign)


def record(
    store: Store, ids: tuple[int, int], name: str, kind: str = "crash", requests: int = 1
) -> tuple[int, bool]:
    what = verdict(name, kind=kind)
    return writes.record_verdict(
        store, ids[1], *PAIR, what, scenario(requests), 9, 1, 1.0, campaign_id=ids[0]
    )


def names(store: Store, is_held: bool | None) -> str:
    return " ".join(row.fingerprint for row in list_findings(store, held=is_held))


def test_what_is_over_the_cap_is_stored_counted_and_held(store: Store, clock: Clock) -> None:
    ids = start(store, "night", 2)
    seen = [record(store, ids, name) for name in ("a", "b", "c", "d", "a", "c")]
    assert seen == [(1, True), (2, True), (3, True), (4, True), (1, False), (3, False)]
    assert names(store, False) == "a b" and names(store, True) == "c d"
    assert names(store, None) == "a b c d"
    finding = queries.get_finding(store, 3)
    assert finding.count == len(queries.list_occurrences(store, 3)) == 2
    assert finding.held_at == finding.first_seen_at < finding.last_seen_at


def test_the_cap_is_of_a_campaign_a_kind_and_a_day(store: Store, clock: Clock) -> None:
    one, two = start(store, "one", 1), start(store, "two", 1)
    record(store, one, "a")
    record(store, one, "b")
    record(store, one, "leak", kind="leak")
    record(store, two, "c")
    writes.record_verdict(
        store, hunt(store), *PAIR, verdict("d", kind="crash"), scenario(), 9, 1, 1
    )
    assert names(store, True) == "b"
    clock.time = datetime(2026, 3, 1, 23, 59, 59, tzinfo=UTC)
    record(store, one, "late")
    clock.time = datetime(2026, 3, 2, tzinfo=UTC)
    record(store, one, "early")
    assert names(store, True) == "b late"
    none = start(store, "none", 0)
    record(store, none, "x")
    assert names(store, True) == "b late x"


def test_what_is_held_is_summed_up(store: Store, clock: Clock) -> None:
    assert held.held(store) == []
    one, two = start(store, "one", 0), start(store, "two", 0)
    since = {}
    for ids, name, kind in (
        (two, "a", "leak"), (one, "b", "leak"), (one, "c", "crash"), (one, "d", "leak"),
    ):  # fmt: skip
        record(store, ids, name, kind)
        since[name] = clock.time
    expected = [
        HeldSummary(one[0], "one", "crash", 1, since["c"]),
        HeldSummary(one[0], "one", "leak", 2, since["b"]),
        HeldSummary(two[0], "two", "leak", 1, since["a"]),
    ]
    assert held.held(store) == expected
    assert held.held(store, two[0]) == expected[2:] and held.held(store, 99) == []


def test_a_day_lets_go_what_its_cap_admits_oldest_first(store: Store, clock: Clock) -> None:
    ids = start(store, "night", 2)
    for name in "abcdefgh":
        record(store, ids, name)
    for name in "vwx":
        record(store, ids, name, kind="leak")
    assert names(store, True) == "c d e f g h x"
    assert held.release(store, ids[0]) == 0
    clock.time += DAY
    record(store, ids, "new")
    assert names(store, True) == "c d e f g h x"
    # One of each kind: today's `new` took one of the two places of its kind.
    assert [held.release(store, ids[0]) for _ in range(3)] == [2, 0, 0]
    assert names(store, True) == "d e f g h"
    record(store, ids, "newer")
    assert names(store, True) == "d e f g h newer"
    for left, count in (("f g h newer", 2), ("h newer", 2), ("", 2), ("", 0)):
        clock.time += DAY
        assert [held.release(store, ids[0]), held.release(store, ids[0])] == [count, 0]
        assert names(store, True) == left
    assert queries.get_finding(store, 3).first_seen_at.day == 1


def test_a_released_finding_takes_a_place_of_the_day(store: Store, clock: Clock) -> None:
    ids = start(store, "night", 1)
    record(store, ids, "a")
    record(store, ids, "b")
    clock.time += DAY
    assert held.release(store, ids[0]) == 1
    record(store, ids, "c")
    assert names(store, True) == "c"


def test_a_raised_cap_lets_go_on_the_same_day(store: Store, clock: Clock) -> None:
    ids, other = start(store, "night", 1), start(store, "other", 0)
    for name in "abcd":
        record(store, ids, name)
    record(store, other, "z")
    with store.write() as session:
        session.execute(update(Campaign).filter_by(id=ids[0]).values(daily_cap=3))
    assert [held.release(store, ids[0]) for _ in range(2)] == [2, 0]
    assert names(store, True) == "d z"


def test_an_unknown_campaign(store: Store) -> None:
    with pytest.raises(InputError, match="^campaign 9: not in .*`schedfuzz campaign list`"):
        held.release(store, 9)


def test_a_writer_waits_for_the_campaign_s_other_writers(store: Store) -> None:
    ids = start(store, "night", 1)
    late = threading.Thread(target=record, args=(store, ids, "late"))
    with store.write() as session:
        session.execute(
            select(Campaign.id).where(Campaign.id == ids[0]).with_for_update(key_share=True)
        )
        session.execute(update(Campaign).values(daily_cap=0))
        late.start()
        late.join(0.5)  # long enough to reach the lock
        assert late.is_alive()
    late.join(30)
    assert names(store, True) == "late"


def flood(index: int, url: str, ids: tuple[int, int], together: Barrier) -> None:
    store = open_store(url)
    together.wait(60)
    for number in range(40):
        # Shared fingerprints and scenarios, in different orders: whatever could deadlock, meets.
        other = (number * (2 * index + 1)) % 40
        record(store, ids, f"shared {other}", requests=1 + number % 5)
        record(store, ids, f"own {index} {number}", "leak", requests=1 + other % 5)
        if number % 10 == index:
            held.release(store, ids[0])
            campaigns.spent(store, ids[0])
            writes.start_hunt(store, *PAIR, number, {}, campaign_id=ids[0])
    store.close()


def test_eight_writers_keep_the_cap_exactly(url: str, clock: Clock) -> None:
    store = open_store(url)
    ids = start(store, "night", 7)
    store.close()
    in_processes(flood, url, ids, fork.Barrier(8))
    store = open_store(url)
    found = list_findings(store)
    assert len(found) == 40 + 8 * 40 and sum(row.count for row in found) == 2 * 8 * 40
    free = [row.kind for row in found if row.held_at is None]
    assert (free.count("crash"), free.count("leak"), len(free)) == (7, 7, 14)
    store.close()
