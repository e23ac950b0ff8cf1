"""Samples and their series, and verifications, on both dialects."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update
from test_db import PAIR, hunt, record, scenario, verdict

from schedfuzz.corpus.errors import InputError
from schedfuzz.db import samples, verifications, writes
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding, Hunt
from schedfuzz.db.service_models import Campaign, Sample, Verification

pytest_plugins = ["postgres"]
START = datetime(2030, 5, 1, 12, tzinfo=UTC)


def campaign(store: Store, name: str = "one") -> int:
    row = Campaign(
        name=name, before=PAIR[0], after=PAIR[1], runner="simulated", options={}, created_at=START
    )
    with store.write() as session:
        session.add(row)
    return row.id


def hunt_of(store: Store, number: int) -> int:
    one = hunt(store)
    with store.write() as session:
        session.execute(update(Hunt).filter_by(id=one).values(campaign_id=number))
    return one


def sample(store: Store, number: int, hunt_id: int, second: float, **figures: float) -> None:
    values = dict.fromkeys(samples.FIGURES, 0) | {"seconds": second} | figures
    samples.add(store, number, hunt_id, at=START + timedelta(seconds=second), **values)


def test_the_figures_are_the_table_s_columns() -> None:
    assert set(Sample.__table__.columns.keys()) - {"id", "campaign_id", "hunt_id", "at"} == (
        samples.FIGURES
    )


@pytest.mark.parametrize("figures", [{"executions": 1}, dict.fromkeys(samples.FIGURES | {"x"}, 1)])
def test_wrong_figures_are_refused(store: Store, figures: dict[str, int]) -> None:
    one = campaign(store)
    with pytest.raises(TypeError, match="figures"):
        samples.add(store, one, hunt(store), **figures)
    assert samples.latest(store, one) == []


def test_latest_is_the_newest_of_each_hunt(store: Store) -> None:
    one, other = campaign(store), campaign(store, "other")
    first, second = hunt(store), hunt(store)
    for second_of_hunt, number, hunt_id, executions in (
        (1, one, second, 5), (2, one, first, 7), (3, one, second, 9), (4, other, first, 11),
    ):  # fmt: skip
        sample(store, number, hunt_id, second_of_hunt, executions=executions, memory=2**40)

    def shown(since: datetime | None = None) -> list[tuple[int, int]]:
        return [(row.hunt_id, row.executions) for row in samples.latest(store, one, since)]

    assert shown() == [(first, 7), (second, 9)]
    assert shown(START + timedelta(seconds=2.5)) == [(second, 9)]
    assert samples.latest(store, one)[0].memory == 2**40
    now = datetime.now(UTC)
    samples.add(store, one, first, **dict.fromkeys(samples.FIGURES, 0))
    assert abs(samples.latest(store, one)[0].at - now) < timedelta(minutes=1)


def test_a_series_spreads_what_came_between_two_samples(store: Store) -> None:
    one, other = campaign(store), campaign(store, "other")
    first, second = hunt_of(store, one), hunt_of(store, one)
    # 10 a second over 40 s, seen at two moments; the other hunt has 5 a second in its last 10 s.
    sample(store, one, first, 25, executions=250, features=3, corpus=30)
    sample(store, one, first, 40, executions=400, features=4, corpus=20)
    sample(store, one, second, 40, executions=50, seconds=10, features=2, corpus=40)
    sample(store, other, second, 40, executions=10**6)
    points = samples.series(store, one, START, 6, START + timedelta(seconds=60))
    assert [point.at for point in points] == [
        START + timedelta(seconds=10 * n) for n in range(1, 7)
    ]
    rates = [point.executions_per_second for point in points]
    assert rates == pytest.approx([10, 10, 10, 15, 0, 0])
    assert [(point.features, point.corpus) for point in points] == [
        (0, 0), (0, 0), (3, 30), (3, 30), (4, 40), (4, 40),
    ]  # fmt: skip


def test_a_series_sees_only_its_own_time(store: Store) -> None:
    one = campaign(store)
    first = hunt_of(store, one)
    for second in (10, 50, 90):
        sample(store, one, first, second, executions=second)
    middle = START + timedelta(seconds=40)
    points = samples.series(store, one, middle, 2, middle + timedelta(seconds=20))
    assert [point.executions_per_second for point in points] == pytest.approx([1, 0])


def test_a_series_counts_findings_when_they_were_first_seen(store: Store) -> None:
    one = campaign(store)
    mine, foreign = hunt_of(store, one), hunt(store)
    for name, hunt_id, second in (("a", mine, 5), ("b", foreign, 5), ("c", mine, 15)):
        number, _ = record(store, hunt_id, verdict(name), scenario())
        seen = START + timedelta(seconds=second)
        with store.write() as session:
            session.execute(update(Finding).filter_by(id=number).values(first_seen_at=seen))
    points = samples.series(store, one, START, 3, START + timedelta(seconds=30))
    assert [point.findings for point in points] == [1, 2, 2]
    late = START + timedelta(seconds=12)
    assert [p.findings for p in samples.series(store, one, late, 1, START + timedelta(60))] == [2]


@pytest.mark.parametrize(("buckets", "seconds"), [(0, 10), (3, 0), (3, -1)])
def test_a_series_of_no_time_is_refused(store: Store, buckets: int, seconds: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        samples.series(store, 1, START, buckets, START + timedelta(seconds=seconds))


# -- verifications -------------------------------------------------------------------------------


def test_the_newest_verification_wins(store: Store) -> None:
    record(store, hunt(store), verdict(), scenario())
    verifications.save(store, 1, "0.31.0", "keeps", 3, 0)
    verifications.save(store, 1, "0.32.0", "breaks", 3, 3)
    verifications.save(store, 1, "0.31.0", "breaks", 5, 4)
    shown = [(row.target, row.outcome, row.runs, row.hits) for row in verifications.of(store, 1)]
    assert shown == [("0.31.0", "breaks", 5, 4), ("0.32.0", "breaks", 3, 3)]
    assert verifications.of(store, 2) == []
    later = datetime.now(UTC) + timedelta(hours=1)
    with store.write() as session:
        session.execute(update(Verification).values(at=later))
    verifications.save(store, 1, "0.32.0", "keeps", 3, 0)  # said before what is stored
    assert verifications.of(store, 1)[1].outcome == "breaks"


def test_a_verification_of_an_unknown_finding_is_refused(store: Store) -> None:
    with pytest.raises(InputError, match="finding 7: not in"):
        verifications.save(store, 7, "0.31.0", "keeps", 3, 0)


def test_missing_are_the_findings_that_repeat(store: Store) -> None:
    one = hunt(store)
    names = "confirmed", "minimized", "new", "flaky", "held", "changed"
    for name in names:
        record(store, one, verdict(name, "changed" if name == "changed" else "fixed"), scenario())
    for number in (1, 2, 5, 6):
        writes.record_confirmation(store, number, 3, 3)
    writes.record_confirmation(store, 4, 3, 2)
    writes.save_reproducer(store, 2, scenario(), 9, 1, "done")
    with store.write() as session:
        session.execute(update(Finding).filter_by(id=5).values(held_at=START))
    assert verifications.missing(store, ["b", "a", "b"]) == [
        (1, "b"), (1, "a"), (2, "b"), (2, "a"),
    ]  # fmt: skip
    verifications.save(store, 1, "a", "keeps", 3, 0)
    verifications.save(store, 2, "c", "keeps", 3, 0)
    assert verifications.missing(store, ["a", "b"]) == [(1, "b"), (2, "a"), (2, "b")]
    assert verifications.missing(store, []) == []
