"""Nouns: Campaign, Job, Node, NodeTarget, CorpusEntry, Poison, Sample, Verification, Notice.

What the service keeps, so that any of its processes may die at any time: whatever one of them knows
that is not here is lost with it, and nobody misses it.
"""

from datetime import datetime
from typing import Any, Literal

from sqlalchemy import (
    JSON,
    BigInteger,
    Double,
    ForeignKey,
    Index,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from schedfuzz.db.models import Base, UtcDateTime

CampaignState = Literal["active", "paused", "done", "removed"]
JobKind = Literal["coordinate", "hunt", "minimize", "export", "verify", "distill"]
JobState = Literal["waiting", "running", "done", "failed"]
TargetState = Literal["preparing", "ready", "unfit"]
NoticeState = Literal["waiting", "sent", "failed"]


class Campaign(Base):
    """A long hunt on a pair, wanted on `hunts` places at once; `priority`: higher goes first.

    `before` and `after` are spelled as on the command line; budgets (None: no bound) are executions
    and seconds of hunting, over all its hunts. `daily_cap` bounds the new findings of one kind a
    day (UTC) that are worked on. A canary is a pair that must diverge. `options` are the hunts'
    own: `time_slice` (seconds), `dimensions` (names to keep to).
    """

    __tablename__ = "campaigns"
    __table_args__ = {"sqlite_autoincrement": True}

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    before: Mapped[str]
    after: Mapped[str]
    runner: Mapped[str]
    canary: Mapped[bool] = mapped_column(default=False)
    hunts: Mapped[int] = mapped_column(default=1)
    priority: Mapped[int] = mapped_column(default=0)
    budget_executions: Mapped[int | None] = mapped_column(BigInteger)
    budget_seconds: Mapped[float | None] = mapped_column(Double)
    daily_cap: Mapped[int] = mapped_column(default=20)
    options: Mapped[dict[str, Any]] = mapped_column(JSON)
    state: Mapped[CampaignState] = mapped_column(String, default="active")
    reason: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Job(Base):
    """A piece of work, done once in effect: (kind, subject) is unique.

    While it runs, `owner` holds it until `lease_until` and must renew that. `token` grows with each
    claim, so whoever lost the job cannot finish it any more. `attempts` counts the claims that came
    to nothing; `not_before` is when the next one may be made.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        UniqueConstraint("kind", "subject"),
        Index(None, "state", "kind"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    campaign_id: Mapped[int | None] = mapped_column(ForeignKey("campaigns.id"))
    finding_id: Mapped[int | None] = mapped_column(ForeignKey("findings.id"))
    kind: Mapped[JobKind] = mapped_column(String)
    subject: Mapped[str]
    state: Mapped[JobState] = mapped_column(String, default="waiting")
    attempts: Mapped[int] = mapped_column(default=0)
    token: Mapped[int] = mapped_column(BigInteger, default=0)
    owner: Mapped[str | None]
    node: Mapped[str | None]
    lease_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    not_before: Mapped[datetime] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    error: Mapped[str | None] = mapped_column(Text)
    result: Mapped[dict[str, Any] | None] = mapped_column(JSON)


class Node(Base):
    """A machine of the cluster, by Ray's node id; `resources` as Ray counts them."""

    __tablename__ = "nodes"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    address: Mapped[str]
    resources: Mapped[dict[str, Any]] = mapped_column(JSON)
    alive: Mapped[bool] = mapped_column(default=True)
    first_seen_at: Mapped[datetime] = mapped_column(UtcDateTime)
    heartbeat_at: Mapped[datetime] = mapped_column(UtcDateTime)


class NodeTarget(Base):
    """How far a node is with a release's environment; an `unfit` one is left out until `until`."""

    __tablename__ = "node_targets"

    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.id"), primary_key=True)
    release: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[TargetState] = mapped_column(String)
    reason: Mapped[str | None] = mapped_column(Text)
    failures: Mapped[int] = mapped_column(default=0)
    until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    changed_at: Mapped[datetime] = mapped_column(UtcDateTime)


class CorpusEntry(Base):
    """A scenario in a pair's corpus; `kept` until a distillation finds that others light it all."""

    __tablename__ = "corpus_entries"
    __table_args__ = (Index(None, "scenario_id"),)

    before: Mapped[str] = mapped_column(primary_key=True)
    after: Mapped[str] = mapped_column(primary_key=True)
    scenario_id: Mapped[str] = mapped_column(ForeignKey("scenarios.id"), primary_key=True)
    kept: Mapped[bool] = mapped_column(default=True)
    added_at: Mapped[datetime] = mapped_column(UtcDateTime)
    dropped_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class Poison(Base):
    """A scenario that took workers with it; `quarantined` once that happened too often."""

    __tablename__ = "poisons"
    __table_args__ = (Index(None, "scenario_id"),)

    before: Mapped[str] = mapped_column(primary_key=True)
    after: Mapped[str] = mapped_column(primary_key=True)
    scenario_id: Mapped[str] = mapped_column(ForeignKey("scenarios.id"), primary_key=True)
    deaths: Mapped[int] = mapped_column(default=0)
    quarantined: Mapped[bool] = mapped_column(default=False)
    detail: Mapped[str] = mapped_column(Text)
    last_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Sample(Base):
    """A hunt's totals at one moment; `memory` in bytes of the hunt and its target processes."""

    __tablename__ = "samples"
    __table_args__ = (
        Index(None, "campaign_id", "at"),
        Index(None, "hunt_id"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaigns.id"))
    hunt_id: Mapped[int] = mapped_column(ForeignKey("hunts.id"))
    at: Mapped[datetime] = mapped_column(UtcDateTime)
    executions: Mapped[int] = mapped_column(BigInteger)
    seconds: Mapped[float] = mapped_column(Double)
    corpus: Mapped[int]
    sites_before: Mapped[int]
    sites_after: Mapped[int]
    features: Mapped[int]
    findings: Mapped[int]
    infra: Mapped[int]
    restarts: Mapped[int]
    memory: Mapped[int] = mapped_column(BigInteger)


class Verification(Base):
    """What a target says today to a finding's reproducer: it `breaks` the rule, or `keeps` it."""

    __tablename__ = "verifications"

    finding_id: Mapped[int] = mapped_column(ForeignKey("findings.id"), primary_key=True)
    target: Mapped[str] = mapped_column(primary_key=True)
    outcome: Mapped[str]
    runs: Mapped[int]
    hits: Mapped[int]
    at: Mapped[datetime] = mapped_column(UtcDateTime)


class Notice(Base):
    """A message about a finding that one channel must deliver, once."""

    __tablename__ = "notices"
    __table_args__ = (UniqueConstraint("finding_id", "channel"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(primary_key=True)
    finding_id: Mapped[int] = mapped_column(ForeignKey("findings.id"))
    channel: Mapped[str]
    state: Mapped[NoticeState] = mapped_column(String, default="waiting")
    attempts: Mapped[int] = mapped_column(default=0)
    not_before: Mapped[datetime] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    sent_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    error: Mapped[str | None] = mapped_column(Text)
