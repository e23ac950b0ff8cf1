"""Nouns: campaign, its state, what it has spent.

A campaign only says what is wanted; its hunts say what was done. So its spending is summed from
them each time, and no counter can go wrong when a process dies.
"""

import re
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from schedfuzz.corpus.errors import InputError
from schedfuzz.db import rows
from schedfuzz.db.connect import Store
from schedfuzz.db.jobs import Lease, moment
from schedfuzz.db.models import Hunt, HuntState
from schedfuzz.db.service_models import Campaign, CampaignState, Job

# No "~": it marks the names that removed campaigns gave up.
_NAME = re.compile(r"\w[\w.:+-]{0,99}")
# From which states each state may be entered; nothing leaves `removed`.
_FROM: dict[CampaignState, tuple[CampaignState, ...]] = {
    "active": ("paused", "done"),
    "paused": ("active",),
    "done": ("active", "paused"),
    "removed": ("active", "paused", "done"),
}


def add(
    store: Store, *, name: str, before: str, after: str, runner: str, hunts: int, priority: int,
    budget_executions: int | None, budget_seconds: float | None, daily_cap: int, canary: bool,
    options: dict[str, Any],
) -> Campaign:  # fmt: skip
    """Store an active campaign and return it; a removed one of that name becomes `name~ID`.

    Budgets are executions and seconds of hunting, None for no bound. Raises InputError for a name
    that is malformed or taken.
    """
    if not _NAME.fullmatch(name):
        raise InputError(
            f"campaign name {name!r}: expected at most 100 letters, digits and . : + - _, "
            "starting with a letter or digit; choose another name"
        )
    values = {
        "name": name, "before": before, "after": after, "runner": runner, "hunts": hunts,
        "priority": priority, "budget_executions": budget_executions,
        "budget_seconds": budget_seconds, "daily_cap": daily_cap, "canary": canary,
        "options": options, "state": "active", "created_at": rows.now(),
    }  # fmt: skip
    with store.write() as session:
        old = _lock(session, name)
        if old is not None and old.state == "removed":
            old.name = f"{name}~{old.id}"
            session.flush()
        insert = rows.insert(session, Campaign).values(values)
        insert = insert.on_conflict_do_nothing(index_elements=["name"])
        campaign = session.scalar(insert.returning(Campaign))
    if campaign is None:
        raise InputError(
            f"campaign {name!r}: the name is taken; choose another, or remove that one first "
            f"(`schedfuzz campaign remove {name}`)"
        )
    return campaign


def listed(store: Store, include_removed: bool = False) -> list[Campaign]:
    """Return the campaigns, highest priority first, then oldest first."""
    query = select(Campaign).order_by(Campaign.priority.desc(), Campaign.id)
    with store.read() as session:
        kept = query if include_removed else query.where(Campaign.state != "removed")
        return list(session.scalars(kept))


def get(store: Store, name: str) -> Campaign:
    """Return the campaign, also a removed one. Raises InputError for an unknown name."""
    with store.read() as session:
        campaign = session.scalar(select(Campaign).filter_by(name=rows.clean(name)))
    if campaign is None:
        raise _unknown(store, name)
    return campaign


def by_id(store: Store, campaign_id: int) -> Campaign:
    """Return the campaign, also a removed one. Raises InputError for an unknown id."""
    with store.read() as session:
        campaign = session.get(Campaign, campaign_id)
    if campaign is None:
        raise _unknown(store, str(campaign_id))
    return campaign


def set_state(
    store: Store, name: str, state: CampaignState, reason: str | None = None
) -> Campaign:  # fmt: skip
    """Set the campaign's state and the reason for it; return the campaign.

    Raises InputError for an unknown name, or a state that cannot follow on the present one.
    """
    with store.write() as session:
        campaign = _lock(session, rows.clean(name))
        if campaign is None:
            raise _unknown(store, name)
        if campaign.state not in _FROM[state]:
            raise InputError(_refusal(campaign, state))
        campaign.state = state
        campaign.reason = None if reason is None else rows.clean(reason)
    return campaign


def spent(store: Store, campaign_id: int) -> tuple[int, float]:
    """Return the executions and the seconds of all the campaign's hunts together."""
    sums = func.coalesce(func.sum(Hunt.executions), 0), func.coalesce(func.sum(Hunt.seconds), 0.0)
    with store.read() as session:
        executions, seconds = session.execute(
            select(*sums).where(Hunt.campaign_id == campaign_id)
        ).one()
    return int(executions), float(seconds)


def hunts_of(store: Store, campaign_id: int, state: HuntState | None = None) -> list[Hunt]:
    """Return the campaign's hunts (in that state), oldest first."""
    query = select(Hunt).filter_by(campaign_id=campaign_id).order_by(Hunt.id)
    with store.read() as session:
        return list(session.scalars(query if state is None else query.filter_by(state=state)))


def leased(lease: Lease) -> dict[str, Any]:
    """Return what a hunt's options say of the lease that it hunts under."""
    return {"lease": [lease.job_id, lease.token]}


def close_abandoned(store: Store) -> int:
    """End the campaigns' hunts whose lease does not hold any more; return how many.

    Whoever hunts for such a row died without a word, or is about to end it itself.
    """
    running = select(Hunt).where(Hunt.state == "running", Hunt.campaign_id.is_not(None))
    with store.write() as session:
        now = moment(session)
        held = select(Job.id, Job.token).where(Job.kind == "hunt", Job.state == "running")
        leases = {tuple(row) for row in session.execute(held)}
        abandoned = [
            hunt for hunt in session.scalars(running)
            if tuple(hunt.options.get("lease", ())) not in leases
        ]  # fmt: skip
        for hunt in abandoned:
            hunt.state, hunt.ended_at = "interrupted", now
        return len(abandoned)


def _lock(session: Session, name: str) -> Campaign | None:
    return session.scalar(select(Campaign).filter_by(name=name).with_for_update())


def _unknown(store: Store, name: str) -> InputError:
    return InputError(
        f"campaign {name!r}: not in {store.name}; `schedfuzz campaign list` lists them"
    )


def _refusal(campaign: Campaign, state: CampaignState) -> str:
    said = f"campaign {campaign.name!r} is {campaign.state}"
    if campaign.state == state:
        return f"{said} already; nothing to do"
    if campaign.state == "removed":
        return f"{said}, for good; add a new one (its name is free again)"
    return f"{said}, not {' or '.join(_FROM[state])}; resume it first"
