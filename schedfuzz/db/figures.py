"""Nouns: figure, canary age.

What the service measures itself by, read from what it has stored: nothing is counted in memory, so
a process that starts anew reports what the one before it did. Only the newest SHOWN campaigns and
the largest SHOWN corpora have figures of their own: whoever collects them pays for each name.
"""

from typing import Any, NamedTuple

from sqlalchemy import Select, func, or_, select

from schedfuzz.db.connect import Store
from schedfuzz.db.jobs import moment
from schedfuzz.db.models import Finding, Hunt
from schedfuzz.db.service_models import Campaign, Job, Node, NodeTarget, Poison, Sample

SHOWN = 200


class CampaignFigures(NamedTuple):
    """A campaign's executions and seconds of hunting; seconds since its last sample, if any."""

    campaign: str
    executions: int
    seconds: float
    sample_age: float | None


class FindingCount(NamedTuple):
    """How many findings a campaign has ("": those of hunts without one)."""

    campaign: str
    verdict: str
    status: str
    findings: int


def campaign_figures(store: Store) -> list[CampaignFigures]:
    """Return the figures of the newest SHOWN campaigns that are not removed, oldest first."""
    own = Hunt.campaign_id == Campaign.id
    executions = select(func.coalesce(func.sum(Hunt.executions), 0)).where(own)
    seconds = select(func.coalesce(func.sum(Hunt.seconds), 0.0)).where(own)
    # One campaign at a time: so its index answers, where a grouping would read all samples.
    newest = select(func.max(Sample.at)).where(Sample.campaign_id == Campaign.id)
    query = select(
        Campaign.name, executions.scalar_subquery(), seconds.scalar_subquery(),
        newest.scalar_subquery(),
    ).where(Campaign.id.in_(_shown())).order_by(Campaign.id)  # fmt: skip
    with store.read() as session:
        now = moment(session)
        return [
            CampaignFigures(
                name, int(total), float(spent),
                None if last is None else max((now - last).total_seconds(), 0.0),
            )
            for name, total, spent, last in session.execute(query)
        ]  # fmt: skip


def finding_counts(store: Store) -> list[FindingCount]:
    """Return how many findings those campaigns, and hunts without one, were the first to see."""
    name = func.coalesce(Campaign.name, "")
    kinds = name, Finding.verdict, Finding.status
    query = (
        select(*kinds, func.count())
        .join_from(Finding, Hunt, Finding.hunt_id == Hunt.id)
        .outerjoin(Campaign, Hunt.campaign_id == Campaign.id)
        .where(or_(Campaign.id.is_(None), Campaign.id.in_(_shown())))
        .group_by(*kinds)
        .order_by(*kinds)
    )
    with store.read() as session:
        return [FindingCount(*row) for row in session.execute(query)]


def job_counts(store: Store) -> dict[tuple[str, str], int]:
    """Return how many jobs there are of each kind and state that occur."""
    query = select(Job.kind, Job.state, func.count()).group_by(Job.kind, Job.state)
    with store.read() as session:
        return {(kind, state): count for kind, state, count in session.execute(query)}


def node_counts(store: Store) -> tuple[int, int]:
    """Return how many nodes are alive and how many are dead."""
    query = select(Node.alive, func.count()).group_by(Node.alive)
    with store.read() as session:
        found = {bool(alive): count for alive, count in session.execute(query)}
    return found.get(True, 0), found.get(False, 0)


def unfit_targets(store: Store) -> int:
    """Return how many releases are left out on a node that is alive, counted per node."""
    with store.read() as session:
        left_out = (
            select(func.count())
            .select_from(NodeTarget)
            .join(Node, NodeTarget.node_id == Node.id)
            .where(Node.alive, NodeTarget.state == "unfit", NodeTarget.until > moment(session))
        )
        return session.execute(left_out).scalar_one()


def quarantined_scenarios(store: Store) -> int:
    """Return how many scenarios are in quarantine, counted per pair."""
    query = select(func.count()).select_from(Poison).where(Poison.quarantined)
    with store.read() as session:
        return session.execute(query).scalar_one()


def canary_age(store: Store) -> dict[str, float | None]:
    """Return, for each active canary, how many seconds ago it last broke a rule; None: never.

    That is the newest sighting of a finding, other than a mere change, on a pair that it hunts,
    whichever campaign made it: that the pair still breaks for anybody shows that all is well.
    """
    hunts_it = (
        select(Hunt.id)
        .where(
            Hunt.campaign_id == Campaign.id, Hunt.before == Finding.before,
            Hunt.after == Finding.after,
        )
        .correlate(Campaign, Finding)
        .exists()
    )  # fmt: skip
    last = (
        select(func.max(Finding.last_seen_at))
        .where(Finding.verdict != "changed", hunts_it)
        .correlate(Campaign)
        .scalar_subquery()
    )
    canaries = select(Campaign.name, last).where(Campaign.canary, Campaign.state == "active")
    with store.read() as session:
        now = moment(session)
        return {
            name: None if seen is None else max((now - seen).total_seconds(), 0.0)
            for name, seen in session.execute(canaries.order_by(Campaign.id))
        }


def _shown() -> Select[Any]:
    kept = select(Campaign.id).where(Campaign.state != "removed").correlate(None)
    return kept.order_by(Campaign.id.desc()).limit(SHOWN)
