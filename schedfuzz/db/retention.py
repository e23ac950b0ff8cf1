"""Nouns: rule, sweep, rows in use.

The written policy of what is kept for how long, and its enforcement beside running hunts. The key
insight: a scenario has no age, and a writer may be about to refer to one that nothing refers to
yet. But every writer inserts the scenario in the transaction that refers to it, and on PostgreSQL
even an insert that finds its row there keeps a lock on the table until that transaction's end:
whoever holds the table against inserts sees every reference there is.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    delete,
    extract,
    func,
    or_,
    select,
    text,
    true,
)
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session, aliased

from schedfuzz.db import rows
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Base, Hunt, Incident, Occurrence, StoredScenario
from schedfuzz.db.references import among, key_of, unused
from schedfuzz.db.service_models import (
    Campaign,
    CorpusEntry,
    Job,
    Node,
    NodeTarget,
    Poison,
    Sample,
)
from schedfuzz.db.writes import KEPT_OCCURRENCES

PICKED = 10_000  # keys in memory at once
BATCH = 100  # rows of one transaction, at most; fewer where it takes long
_BATCH_SECONDS = 0.1
THIN_DAYS, SAMPLE_DAYS = 14, 365
_DAY_SECONDS = 86_400
# How long writers may queue up behind us; PostgreSQL ends a vacuum in our way after 1 s.
_LOCK_SECONDS = 2
_LOCK_NOT_AVAILABLE = "55P03"
_PLAIN = {"synchronize_session": False}


class Rule(NamedTuple):
    """What goes when: after `days` (0: with the next pruning; None: never).

    A rule has the name of its table, but for `old samples`.
    """

    name: str
    what: str
    days: int | None


@dataclass(frozen=True)
class _Sweep:
    """How a rule's rows are found: `stale` looks at a row alone, `beside` at others of its table.

    `stale` is given the moment that lies the rule's days ago. Whatever else the two say, a row that
    another refers to stays.
    """

    rule: Rule
    model: type[Base]
    stale: Callable[[datetime], ColumnElement[bool]]
    beside: Callable[[], ColumnElement[bool]] = true


def _beyond_the_first() -> ColumnElement[bool]:
    place = func.row_number().over(partition_by=Occurrence.finding_id, order_by=Occurrence.id)
    ranked = select(Occurrence.id, place.label("place")).subquery()
    return Occurrence.id.in_(select(ranked.c.id).where(ranked.c.place > KEPT_OCCURRENCES))


def _not_last_of_its_day() -> ColumnElement[bool]:
    other = aliased(Sample)
    seconds = extract("epoch", other.at)
    day = seconds - seconds % _DAY_SECONDS
    return Sample.id.not_in(select(func.max(other.id)).group_by(other.hunt_id, day))


def _of_no_campaign_to_come(cutoff: datetime) -> ColumnElement[bool]:
    # A campaign's budget is the sum of its hunts.
    removed = select(Campaign.id).filter_by(state="removed").correlate(None)
    return (Hunt.ended_at < cutoff) & or_(Hunt.campaign_id.is_(None), Hunt.campaign_id.in_(removed))


def _dead(cutoff: datetime) -> ColumnElement[bool]:
    return Node.alive.is_(False) & (Node.heartbeat_at < cutoff)


# In this order: what refers to others comes before what it refers to.
_SWEEPS = (
    _Sweep(
        Rule("occurrences", f"sightings of a finding after its first {KEPT_OCCURRENCES}", 30),
        Occurrence, lambda cutoff: Occurrence.seen_at < cutoff, _beyond_the_first,
    ),
    _Sweep(Rule("incidents", "faults of the machine", 30),
           Incident, lambda cutoff: Incident.seen_at < cutoff),
    _Sweep(
        Rule("samples", "all but a hunt's last sample of each day (UTC)", THIN_DAYS),
        Sample,
        lambda cutoff: (Sample.at < cutoff)
        & (Sample.at >= cutoff - timedelta(SAMPLE_DAYS - THIN_DAYS)),
        _not_last_of_its_day,
    ),
    _Sweep(Rule("old samples", "all samples", SAMPLE_DAYS),
           Sample, lambda cutoff: Sample.at < cutoff),
    _Sweep(
        Rule("jobs", "finished ones but `coordinate`; failed ones stay", 30), Job,
        lambda cutoff: (Job.state == "done") & (Job.kind != "coordinate") & (Job.ended_at < cutoff),
    ),
    _Sweep(
        Rule("corpus entries", "those that a distillation dropped", 30), CorpusEntry,
        lambda cutoff: CorpusEntry.kept.is_(False) & (CorpusEntry.dropped_at < cutoff),
    ),
    _Sweep(
        Rule("poisons", "scenarios that no worker died of since; forgiven ones at once", 90),
        Poison, lambda cutoff: (Poison.last_at < cutoff) | (Poison.deaths == 0),
    ),
    _Sweep(
        Rule("node targets", "what was prepared on nodes that are dead for so long", 30),
        NodeTarget,
        lambda cutoff: NodeTarget.node_id.in_(select(Node.id).where(_dead(cutoff)).correlate(None)),
    ),
    _Sweep(Rule("nodes", "machines that are dead for so long", 30), Node, _dead),
    _Sweep(
        Rule("hunts", "ended ones that nothing refers to, of no campaign or a removed one", 90),
        Hunt, _of_no_campaign_to_come,
    ),
    _Sweep(Rule("scenarios", "those that nothing refers to", 0),
           StoredScenario, lambda cutoff: true()),
)  # fmt: skip
_FOR_EVER = (
    Rule("findings", "with their first scenario, best reproducer and first sightings", None),
    Rule("verifications", "what each target says to a finding", None),
    Rule("notices", "what was told to whom", None),
    Rule("campaigns", "removed ones too", None),
    Rule("decisions", "who decided what, and why", None),
    Rule("mute rules", "removed ones too", None),
    Rule("finding traces", "what both targets did with the best reproducer", None),
)


def policy() -> list[Rule]:
    """Return the rules: those that `prune` follows, in its order, then what is kept for ever."""
    return [sweep.rule for sweep in _SWEEPS] + list(_FOR_EVER)


def prune(store: Store, dry_run: bool = False, now: datetime | None = None) -> dict[str, int]:
    """Delete what the policy no longer keeps; return the rows deleted per rule, by its name.

    `dry_run` counts what would be deleted and deletes nothing. Safe beside writers and other
    prunings: each transaction is short, and a row that somebody holds is left for the next time.
    Raises InfraError when the database fails; what was deleted until then stays deleted.
    """
    moment = now or rows.now()
    work = _count if dry_run else _sweep
    return {sweep.rule.name: work(store, sweep, moment) for sweep in _SWEEPS}


def _stale(sweep: _Sweep, now: datetime) -> ColumnElement[bool]:
    return sweep.stale(now - timedelta(sweep.rule.days or 0))


def _count(store: Store, sweep: _Sweep, now: datetime) -> int:
    # References from rows that go themselves do not count.
    going = {
        other.model.__tablename__: or_(
            *(_stale(one, now) & one.beside() for one in _SWEEPS if one.model is other.model)
        )
        for other in _SWEEPS
        if other.model is not sweep.model
    }
    query = select(func.count()).select_from(sweep.model).where(_stale(sweep, now), sweep.beside())
    with store.read() as session:
        return session.scalars(query.where(unused(sweep.model, going=going))).one()


def _sweep(store: Store, sweep: _Sweep, now: datetime) -> int:
    deleted = 0
    key = key_of(sweep.model)
    # Looked for without a lock, which is the slow part; each batch looks again with one.
    found = select(*key).where(_stale(sweep, now), sweep.beside(), unused(sweep.model))
    found = found.order_by(*key).limit(PICKED)
    while True:
        with store.read() as session:
            keys = session.execute(found).all()
        here = _delete_all(store, sweep, keys, now)
        deleted += here
        if here == 0 or len(keys) < PICKED:
            return deleted


def _delete_all(store: Store, sweep: _Sweep, keys: Sequence[Any], now: datetime) -> int:
    """Delete the rows in batches that grow while they are quick; return how many."""
    deleted, first, size = 0, 0, 1
    while first < len(keys):
        started = time.monotonic()
        try:
            deleted += _delete(store, sweep, keys[first : first + size], now)
        except _Busy:
            break
        took = time.monotonic() - started
        time.sleep(took)  # half of the time is the other writers'
        first += size
        size = min(size * 2, BATCH) if took < _BATCH_SECONDS / 2 else max(size // 2, 1)
    return deleted


def _delete(store: Store, sweep: _Sweep, keys: Sequence[Any], now: datetime) -> int:
    """Delete those of the rows that are still stale and unused; return how many."""
    key = key_of(sweep.model)
    free = select(*key).where(among(key, keys)).order_by(*key).with_for_update(skip_locked=True)
    with store.write() as session:
        if sweep.model is StoredScenario:
            _hold_against_inserts(session)
        held = session.execute(free).all()
        gone = delete(sweep.model).where(
            among(key, held), _stale(sweep, now), unused(sweep.model, held)
        )
        return len(session.execute(gone.returning(*key), execution_options=_PLAIN).all())


class _Busy(Exception):
    """A writer's transaction takes longer than we may make the others wait."""


def _hold_against_inserts(session: Session) -> None:
    """Wait for every transaction that has inserted a scenario; hold up new ones until the end.

    On SQLite the transaction does that already. Raises _Busy.
    """
    if session.get_bind().dialect.name == "sqlite":
        return
    session.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'"))
    try:
        session.execute(text("LOCK TABLE scenarios IN SHARE ROW EXCLUSIVE MODE"))
    except OperationalError as error:
        if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
            raise
        raise _Busy from error
