"""Nouns: a pair's shared corpus, kept and dropped entries.

All workers of a pair add to one corpus, and scenarios are addressed by content, so adding twice is
adding once. Rows go in by the order of their ids: two writers of overlapping sets then wait for
each other in one direction only, and never deadlock.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import case, func, or_, select, update

from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.validate import validate
from schedfuzz.db import rows
from schedfuzz.db.connect import Store
from schedfuzz.db.models import StoredScenario
from schedfuzz.db.service_models import CorpusEntry

CHUNK = 200  # rows of one transaction

T = TypeVar("T")


class Size(NamedTuple):
    """How many entries a pair's corpus has."""

    before: str
    after: str
    kept: int
    dropped: int


def add(store: Store, before: str, after: str, scenarios: Iterable[Scenario]) -> int:
    """Put scenarios into the pair's corpus; return how many were not there, kept or dropped.

    A dropped entry stays dropped. Raises InputError for an invalid scenario; what came before it
    may be stored then.
    """
    return sum(_add(store, before, after, chunk) for chunk in _chunks(scenarios))


def _add(store: Store, before: str, after: str, scenarios: list[Scenario]) -> int:
    stored = {row["id"]: row for row in map(_row, scenarios)}
    names = sorted(stored)
    pair = {"before": before, "after": after, "kept": True, "added_at": rows.now()}
    # The scenarios in the transaction that refers to them: pruning counts on that.
    with store.write() as session:
        session.execute(
            rows.insert(session, StoredScenario)
            .values([stored[name] for name in names])
            .on_conflict_do_nothing()
        )
        new = session.scalars(
            rows.insert(session, CorpusEntry)
            .values([{**pair, "scenario_id": name} for name in names])
            .on_conflict_do_nothing()
            .returning(CorpusEntry.scenario_id)
        )
        return len(new.all())


def _row(scenario: Scenario) -> dict[str, Any]:
    valid = validate(scenario)
    return {
        "id": codec.scenario_id(valid),
        "data": codec.encode(valid).decode(),
        "requests": len(valid.requests),
        "events": len(valid.events),
        "schema": valid.schema,
    }


def ids(store: Store, before: str, after: str) -> set[str]:
    """Return the scenario ids of the pair's kept entries."""
    query = select(CorpusEntry.scenario_id).filter_by(before=before, after=after, kept=True)
    with store.read() as session:
        return set(session.scalars(query))


def changes(store: Store, before: str, after: str, since: datetime) -> tuple[set[str], set[str]]:
    """Return the ids of entries added, and of entries dropped, at `since` or later.

    By the clocks of those who wrote them, and as they were committed: ask from a while before the
    latest reading.
    """
    entry = CorpusEntry
    query = (
        select(entry.scenario_id, entry.kept)
        .filter_by(before=before, after=after)
        .where(or_(entry.added_at >= since, entry.dropped_at >= since))
    )
    with store.read() as session:
        found = session.execute(query).all()
    return {name for name, kept in found if kept}, {name for name, kept in found if not kept}


def load(store: Store, ids: Iterable[str]) -> dict[str, Scenario]:
    """Return the stored scenarios among `ids`, by id; one that cannot be decoded is left out."""
    found: dict[str, Scenario] = {}
    for chunk in _chunks(ids):
        query = select(StoredScenario.id, StoredScenario.data).where(StoredScenario.id.in_(chunk))
        with store.read() as session:
            stored = session.execute(query).all()
        for name, data in stored:
            try:
                found[name] = codec.decode(data)
            except InputError:
                continue  # stored under other rules: no reason to refuse the rest
    return found


def drop(store: Store, before: str, after: str, ids: Iterable[str]) -> int:
    """Keep these entries no longer; return how many were kept until now."""
    return sum(_drop(store, before, after, chunk) for chunk in _chunks(sorted(set(ids))))


def _drop(store: Store, before: str, after: str, ids: list[str]) -> int:
    kept = (
        CorpusEntry.before == before,
        CorpusEntry.after == after,
        CorpusEntry.kept,
        CorpusEntry.scenario_id.in_(ids),
    )
    key = CorpusEntry.scenario_id
    with store.write() as session:
        # An UPDATE alone would lock the rows in any order.
        session.execute(select(key).where(*kept).order_by(key).with_for_update())
        dropped = session.execute(
            update(CorpusEntry)
            .where(*kept)
            .values(kept=False, dropped_at=rows.now())
            .returning(key),
            execution_options={"synchronize_session": False},
        )
        return len(dropped.all())


def sizes(store: Store) -> list[Size]:
    """Return the size of every pair's corpus, by pair."""
    kept = func.sum(case((CorpusEntry.kept, 1), else_=0))
    pair = CorpusEntry.before, CorpusEntry.after
    query = select(*pair, kept, func.count() - kept).group_by(*pair).order_by(*pair)
    with store.read() as session:
        return [Size(*row) for row in session.execute(query)]


def _chunks(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk
