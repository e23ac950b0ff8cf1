"""Nouns: daily cap, admitted, held finding, release.

One flood must not eat all the work: what a campaign finds beyond its cap of a kind and a day (UTC)
is stored and counted as always, but held until a later day has room. The key insight: a campaign's
row is the turnstile. Whoever may change how many were admitted today holds its lock, so that the
cap is exact with any number of writers. The lock comes after a new finding's (that nobody else
sees yet) and before an old one's, so its holders never wait in a circle.
"""

from datetime import UTC, datetime, time, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, and_, func, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session

from schedfuzz.corpus.errors import InputError
from schedfuzz.db import rows
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding, Hunt
from schedfuzz.db.service_models import Campaign


class HeldSummary(NamedTuple):
    """How many findings of a kind a campaign holds, and since when the oldest of them."""

    campaign_id: int
    campaign: str
    kind: str
    findings: int
    oldest: datetime


def hold_if_full(
    session: Session, campaign_id: int, finding_id: int, kind: str, moment: datetime
) -> bool:
    """Hold a finding that the caller's transaction has just inserted, if it is over the cap.

    `moment` is when it was first seen; its hunt must be the campaign's. Return whether it is held.
    """
    cap = _lock(session, campaign_id)
    # The new one is among them.
    if cap is None or _admitted(session, campaign_id, kind, moment) <= cap:
        return False
    session.execute(update(Finding).where(Finding.id == finding_id).values(held_at=moment))
    return True


def held(store: Store, campaign_id: int | None = None) -> list[HeldSummary]:
    """Return what is held (by one campaign), by campaign and kind."""
    columns = Campaign.id, Campaign.name, Finding.kind
    query = (
        select(*columns, func.count(), func.min(Finding.held_at))
        .join_from(Finding, Hunt, Finding.hunt_id == Hunt.id)
        .join(Campaign, Hunt.campaign_id == Campaign.id)
        .where(Finding.held_at.is_not(None))
        .group_by(*columns)
        .order_by(Campaign.id, Finding.kind)
    )
    with store.read() as session:
        own = query if campaign_id is None else query.where(Campaign.id == campaign_id)
        return [HeldSummary._make(row) for row in session.execute(own)]


def release(store: Store, campaign_id: int) -> int:
    """Let go as many held findings, of each kind, as today's cap still admits; return how many.

    The oldest go first. Raises InputError for an unknown campaign.
    """
    now = rows.now()
    let_go: list[int] = []
    with store.write() as session:
        cap = _lock(session, campaign_id)
        if cap is None:
            raise InputError(
                f"campaign {campaign_id}: not in {store.name}; `schedfuzz campaign list` lists them"
            )
        waiting = _findings_of(campaign_id).where(Finding.held_at.is_not(None))
        for kind in list(session.scalars(waiting.with_only_columns(Finding.kind).distinct())):
            room = max(cap - _admitted(session, campaign_id, kind, now), 0)
            oldest = waiting.where(Finding.kind == kind).order_by(Finding.id).limit(room)
            let_go += session.scalars(oldest)
        free = {"held_at": None, "released_at": now}
        session.execute(update(Finding).where(Finding.id.in_(let_go)).values(free))
    return len(let_go)


def _lock(session: Session, campaign_id: int) -> int | None:
    """Return the campaign's cap, None for an unknown one; nobody else admits until the end."""
    own = select(Campaign.daily_cap).where(Campaign.id == campaign_id)
    # Without its key: rows that merely name the campaign go on being inserted.
    return session.scalar(own.with_for_update(key_share=True))


def _admitted(session: Session, campaign_id: int, kind: str, moment: datetime) -> int:
    """Return how many findings were admitted on the moment's day: new that day, or let go."""
    that_day = or_(_same_day(Finding.first_seen_at, moment), _same_day(Finding.released_at, moment))
    admitted = _findings_of(campaign_id).where(
        Finding.kind == kind, Finding.held_at.is_(None), that_day
    )
    return session.execute(admitted.with_only_columns(func.count())).scalar_one()


def _findings_of(campaign_id: int) -> Select[Any]:
    by_hunt = select(Finding.id).join(Hunt, Finding.hunt_id == Hunt.id)
    return by_hunt.where(Hunt.campaign_id == campaign_id)


def _same_day(
    column: InstrumentedAttribute[datetime] | InstrumentedAttribute[datetime | None],
    moment: datetime,
) -> ColumnElement[bool]:
    start = datetime.combine(moment.astimezone(UTC).date(), time(), UTC)
    return and_(column >= start, column < start + timedelta(days=1))
