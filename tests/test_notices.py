"""The outbox: what is worth telling, who tells it, how often, and what the hour allows."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from receiver import Receiver, receiving
from sqlalchemy import select, update
from test_db import PAIR, scenario, verdict
from test_db_campaigns import add
from test_db_writers import fork, in_processes

from schedfuzz.db import notices, writes
from schedfuzz.db.connect import Store, open_store
from schedfuzz.db.models import Finding
from schedfuzz.db.notices import BACKOFF_CAP, BACKOFF_SECONDS, CLAIM_SECONDS, MAX_ATTEMPTS
from schedfuzz.db.service_models import Notice
from schedfuzz.service.notify import Channels, deliver

pytest_plugins = ["postgres"]
HOUR = timedelta(hours=1)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A running receiver of the test's own."""
    monkeypatch.setenv("no_proxy", "*")
    with receiving() as receiver:
        yield receiver


def after(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def hunt(store: Store, campaign: str | None = "night") -> int:
    number = None if campaign is None else add(store, campaign).id
    return writes.start_hunt(store, *PAIR, seed=1, options={}, campaign_id=number)


def found(store: Store, hunt_id: int, name: str, what: str = "regressed", hits: int = 3) -> int:
    finding, _ = writes.record_verdict(
        store, hunt_id, *PAIR, verdict(name, what), scenario(), 9, 1, 1.0
    )
    writes.record_confirmation(store, finding, 3, hits)
    return finding


def posted(store: Store, count: int, channel: str = "webhook") -> None:
    """Store that many notices, of findings 1 to `count`."""
    one = hunt(store)
    for number in range(count):
        found(store, one, f"f{number}")
    assert notices.post_missing(store, [channel]) == count


def rows(store: Store) -> list[Notice]:
    with store.read() as session:
        return list(session.scalars(select(Notice).order_by(Notice.id)))


def test_what_is_worth_telling(store: Store) -> None:
    one, alone = hunt(store), hunt(store, None)
    worth = [found(store, one, "a"), found(store, one, "b", "both")]
    writes.save_reproducer(store, worth[1], scenario(), 9, 1, "done")  # minimized
    for name in ("fixed", "changed"):
        found(store, one, name, name)
    found(store, one, "flaky", hits=2)
    found(store, alone, "of nobody")
    writes.record_verdict(store, one, *PAIR, verdict("new", "regressed"), scenario(), 9, 1, 1.0)
    held = found(store, one, "held")
    with store.write() as session:
        session.execute(update(Finding).where(Finding.id == held).values(held_at=after(0)))

    assert notices.post_missing(store, []) == 0
    assert notices.post_missing(store, ["webhook"]) == 2
    assert notices.post_missing(store, ["webhook", "command", "command"]) == 2
    assert notices.post_missing(store, ["webhook", "command"]) == 0
    assert [(row.finding_id, row.channel) for row in rows(store)] == [
        *((number, "webhook") for number in worth), *((number, "command") for number in worth),
    ]  # fmt: skip
    assert [row.id for row in notices.due(store, 3)] == [1, 2, 3]
    first = rows(store)[0]
    assert (first.state, first.attempts, first.sent_at, first.error) == ("waiting", 0, None, None)
    assert abs(first.created_at - after(0)) < timedelta(minutes=1)

    with store.write() as session:  # and let go later
        session.execute(update(Finding).where(Finding.id == held).values(held_at=None))
    assert notices.post_missing(store, ["webhook"]) == 1
    assert rows(store)[-1].finding_id == held


def post(index: int, url: str) -> None:
    store = open_store(url)
    names = ["webhook", "command"] if index % 2 else ["command", "webhook"]
    for _ in range(5):
        notices.post_missing(store, names)
    store.close()


def test_several_processes_post_each_notice_once(store: Store, url: str) -> None:
    one = hunt(store)
    numbers = [found(store, one, f"f{number}") for number in range(30)]
    in_processes(post, url)
    told = sorted((row.finding_id, row.channel) for row in rows(store))
    assert told == [(number, name) for number in numbers for name in ("command", "webhook")]


def test_a_failure_waits_ever_longer_and_then_is_given_up(store: Store) -> None:
    posted(store, 1)
    now, waits = after(0), []
    for attempt in range(1, MAX_ATTEMPTS + 1):
        claim = notices.claim(store, "webhook", 1, now)
        assert claim is not None and claim.attempt == attempt
        notices.failed(store, 1, f"no \0 {attempt}", now)
        row = rows(store)[0]
        waits.append((row.not_before - now).total_seconds())
        assert row.error == f"no \\x00 {attempt}"
        early = row.not_before - timedelta(seconds=1)
        assert notices.claim(store, "webhook", 1, early) is None
        now = row.not_before
    assert waits[:3] == [BACKOFF_SECONDS, 2 * BACKOFF_SECONDS, 4 * BACKOFF_SECONDS]
    assert waits[-1] == BACKOFF_CAP and sorted(waits) == waits
    assert notices.counts(store) == {"waiting": 0, "sent": 0, "failed": 1}
    assert notices.claim(store, "webhook", 1, now + 10 * HOUR) is None
    assert notices.due(store, 9) == [] and notices.post_missing(store, ["webhook"]) == 0


def test_a_notice_whose_every_delivery_dies_is_given_up(store: Store) -> None:
    posted(store, 1)
    now = after(0)
    for _ in range(MAX_ATTEMPTS):
        assert notices.claim(store, "webhook", 1, now) is not None
        now += timedelta(seconds=CLAIM_SECONDS)
        assert rows(store)[0].state == "waiting"
    assert notices.claim(store, "webhook", 1, now) is None
    assert rows(store)[0].state == "failed" and "ended" in str(rows(store)[0].error)


def test_a_late_report_changes_nothing(store: Store) -> None:
    posted(store, 1)
    notices.claim(store, "webhook", 1)
    notices.sent(store, 1, first := after(-5))
    notices.failed(store, 1, "late")
    notices.sent(store, 1)
    row = rows(store)[0]
    assert (row.state, row.sent_at, row.error) == ("sent", first, None)
    assert notices.counts(store, ["command"]) == {"waiting": 0, "sent": 0, "failed": 0}


def test_a_clock_that_jumped_back_does_not_silence_a_notice(store: Store) -> None:
    posted(store, 1)
    with store.write() as session:
        session.execute(update(Notice).values(not_before=after(BACKOFF_CAP + 600)))
    assert [row.id for row in notices.due(store, 9)] == [1]
    assert notices.claim(store, "webhook", 1) is not None


def test_the_hours_limit_holds_back_and_says_so(store: Store, receiver: Receiver) -> None:
    posted(store, 5)
    limited = Channels(receiver.url, per_hour=2)
    start = after(0)
    said = []
    for hours, expected in [(0, (2, 0, 3)), (0.9, (0, 0, 3)), (1.1, (2, 0, 1)), (2.2, (1, 0, 0))]:
        assert deliver(store, limited, start + hours * HOUR) == expected
        said.append([one.body["more_waiting"] for one in receiver.got])
        assert all(
            one.body["text"].endswith(f"; and {one.body['more_waiting']} more wait")
            for one in receiver.got if one.body["more_waiting"]
        )  # fmt: skip
    assert said == [[3, 3], [3, 3], [3, 3, 1, 1], [3, 3, 1, 1, 0]]
    assert receiver.got[-1].body["text"].endswith("campaign night)")
    assert [one.body["finding"]["id"] for one in receiver.got] == [1, 2, 3, 4, 5]


def test_channels_have_limits_of_their_own(store: Store, receiver: Receiver) -> None:
    posted(store, 2)
    assert notices.post_missing(store, ["command"]) == 2
    both = Channels(receiver.url, command=("true",), per_hour=1)
    assert deliver(store, both) == (2, 0, 2)
    assert deliver(store, Channels(command=("true",), per_hour=1)) == (0, 0, 1)
    assert deliver(store, Channels()) == (0, 0, 0)


def send(index: int, url: str, receiver_url: str, per_hour: int) -> None:
    store = open_store(url)
    for _ in range(3):
        deliver(store, Channels(receiver_url, per_hour=per_hour))
    store.close()


@pytest.mark.parametrize("per_hour, expected", [(1000, 40), (7, 7)])
def test_several_processes_send_each_notice_once(
    store: Store, url: str, receiver: Receiver, per_hour: int, expected: int
) -> None:
    posted(store, 40)
    in_processes(send, url, receiver.url, per_hour, count=4)
    assert len(receiver.got) == expected == len(set(receiver.deliveries))
    told = sorted(one.body["finding"]["id"] for one in receiver.got)
    assert len(set(told)) == expected
    assert notices.counts(store) == {"waiting": 40 - expected, "sent": expected, "failed": 0}


def test_a_process_that_dies_after_sending_sends_again_under_the_same_id(
    store: Store, url: str, receiver: Receiver
) -> None:
    posted(store, 1)

    def die() -> None:
        notices.sent = lambda *_: os._exit(9)  # type: ignore[assignment]
        deliver(open_store(url), Channels(receiver.url))

    child = fork.Process(target=die)
    child.start()
    child.join(60)
    assert child.exitcode == 9 and len(receiver.got) == 1
    channels = Channels(receiver.url)
    assert deliver(store, channels) == (0, 0, 1)  # it may live, for all we know
    assert deliver(store, channels, after(CLAIM_SECONDS)) == (1, 0, 0)
    assert len(receiver.got) == 2 and len(set(receiver.deliveries)) == 1


def test_ids_of_other_databases_are_others(tmp_path: Path, receiver: Receiver) -> None:
    for name in "ab":
        store = open_store(f"sqlite:///{tmp_path}/{name}.db")
        posted(store, 2)
        assert deliver(store, Channels(receiver.url)).sent == 2
        store.close()
    assert len(set(receiver.deliveries)) == 4
