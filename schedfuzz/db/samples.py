"""Nouns: sample, series, point.

A sample is a hunt's running totals at a moment, so what happened between two of them is their
difference, and a lost sample costs resolution and no executions.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import func, select

from schedfuzz.db import rows
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding, Hunt
from schedfuzz.db.service_models import Sample

FIGURES = frozenset(
    (
        "executions", "seconds", "corpus", "sites_before", "sites_after", "features", "findings",
        "infra", "restarts", "memory",
    )
)  # fmt: skip
_ROWS = 1000  # held in memory at once


class Point(NamedTuple):
    """A campaign in the time up to `at`.

    `executions_per_second` is over the bucket; `findings` is how many its hunts had been the first
    to see by then; `features` and `corpus` are the largest of any hunt in the latest bucket that
    has samples.
    """

    at: datetime
    executions_per_second: float
    findings: int
    features: int
    corpus: int


class _Seen(NamedTuple):
    at: datetime
    executions: int


def add(
    store: Store, campaign_id: int, hunt_id: int, *, at: datetime | None = None, **figures: float
) -> None:
    """Store a hunt's totals (each of FIGURES; seconds, memory in bytes) at a moment, or now.

    Raises TypeError for a missing or an unknown figure.
    """
    if figures.keys() != FIGURES:
        raise TypeError(f"missing or unknown figures: {sorted(figures.keys() ^ FIGURES)}")
    values: dict[str, Any] = figures
    sample = Sample(campaign_id=campaign_id, hunt_id=hunt_id, at=at or rows.now(), **values)
    with store.write() as session:
        session.add(sample)


def latest(store: Store, campaign_id: int, since: datetime | None = None) -> list[Sample]:
    """Return the newest sample of each of the campaign's hunts (that has one `since`), by hunt."""
    newest = select(func.max(Sample.id)).filter_by(campaign_id=campaign_id)
    if since is not None:
        newest = newest.where(Sample.at >= since)
    newest = newest.group_by(Sample.hunt_id).correlate(None)
    query = select(Sample).where(Sample.id.in_(newest)).order_by(Sample.hunt_id)
    with store.read() as session:
        return list(session.scalars(query))


def series(
    store: Store, campaign_id: int, since: datetime, buckets: int, until: datetime | None = None
) -> list[Point]:
    """Return `buckets` points, of equally long times from `since` to `until` (default: now).

    Raises ValueError if there is no bucket or no time.
    """
    span = (until or rows.now()) - since
    if buckets < 1 or span <= timedelta(0):
        raise ValueError(f"{buckets} buckets in {span}: expected at least one, and some time")
    ends = [since + span * (index + 1) / buckets for index in range(buckets)]
    executions = [0.0] * buckets
    largest: list[tuple[int, int] | None] = [None] * buckets
    seen: dict[int, _Seen] = {}
    for hunt, at, total, seconds, features, corpus in _samples(store, campaign_id, since, ends[-1]):
        # What came before the first sample in view is spread over the time that it took.
        start = seen.get(hunt) or _Seen(at - timedelta(seconds=seconds), 0)
        _spread(executions, total - start.executions, start.at - since, at - since, span)
        seen[hunt] = _Seen(at, total)
        index = min(int((at - since) / span * buckets), buckets - 1)
        known = largest[index] or (0, 0)
        largest[index] = max(known[0], features), max(known[1], corpus)
    rates = [amount * buckets / span.total_seconds() for amount in executions]
    found = _found(store, campaign_id, ends)
    return [Point(*row) for row in zip(ends, rates, found, *_carried(largest), strict=True)]


def _carried(largest: list[tuple[int, int] | None]) -> tuple[list[int], list[int]]:
    """Return the features and the corpus of each bucket, from the one before where it has none."""
    last, features, corpus = (0, 0), [], []
    for top in largest:
        last = top or last
        features.append(last[0])
        corpus.append(last[1])
    return features, corpus


def _samples(store: Store, campaign_id: int, since: datetime, until: datetime) -> Iterator[Any]:
    query = (
        select(
            Sample.hunt_id, Sample.at, Sample.executions, Sample.seconds, Sample.features,
            Sample.corpus,
        )
        .where(Sample.campaign_id == campaign_id, Sample.at >= since, Sample.at <= until)
        .order_by(Sample.at, Sample.id)
        .execution_options(yield_per=_ROWS)
    )  # fmt: skip
    with store.read() as session:
        yield from session.execute(query)


def _spread(
    amounts: list[float], amount: int, start: timedelta, end: timedelta, span: timedelta
) -> None:
    """Add an amount that came evenly from `start` to `end` to the buckets that `span` has."""
    width = span / len(amounts)
    last = min(int(end / width), len(amounts) - 1)
    if end <= start:
        amounts[last] += amount
        return
    for index in range(max(int(start / width), 0), last + 1):
        shared = min(end, width * (index + 1)) - max(start, width * index)
        amounts[index] += amount * (max(shared, timedelta(0)) / (end - start))


def _found(store: Store, campaign_id: int, ends: list[datetime]) -> list[int]:
    """Return how many findings the campaign's hunts were the first to see, by each end."""
    query = (
        select(Finding.first_seen_at)
        .join(Hunt, Finding.hunt_id == Hunt.id)
        .where(Hunt.campaign_id == campaign_id)
        .order_by(Finding.first_seen_at)
    )
    counts, done = [], 0
    with store.read() as session:
        moments = session.scalars(query).all()
    for end in ends:
        while done < len(moments) and moments[done] <= end:
            done += 1
        counts.append(done)
    return counts
