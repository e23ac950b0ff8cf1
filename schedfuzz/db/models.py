"""Nouns: Hunt, StoredScenario, Finding, Occurrence, Incident.

A finding is a fingerprint on a pair, so (before, after, fingerprint) is unique and everything
else about it is history. Scenarios are addressed by content: storing one twice is storing it once.
"""

from datetime import UTC, datetime
from typing import Any, Literal

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    MetaData,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

HuntState = Literal["running", "done", "interrupted"]
# What a machine finds out; then what a person, or a verification, has decided.
FindingStatus = Literal[
    "new",
    "confirmed",
    "minimized",
    "flaky",
    "reported",
    "fixed-in",
    "verified",
    "muted",
    "dup",
    "invalid",
]
MinimizeState = Literal["none", "running", "partial", "done"]
SPLIT_MARK = "~"


class UtcDateTime(TypeDecorator[datetime]):
    """An aware UTC datetime on both dialects (SQLite itself keeps no time zone)."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC. Raises ValueError for a naive datetime."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"naive datetime {value}: timestamps must be aware")
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the stored moment as an aware UTC datetime."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """Constraints have fixed names, so that a later migration can name what it changes."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class Hunt(Base):
    """One hunt on a pair; `executions` (of the pair) and `seconds` are its running totals.

    `campaign_id` is None for a hunt from the command line, and `node` then too.
    """

    __tablename__ = "hunts"
    __table_args__ = {"sqlite_autoincrement": True}

    id: Mapped[int] = mapped_column(primary_key=True)
    before: Mapped[str]
    after: Mapped[str]
    seed: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[HuntState] = mapped_column(String, default="running")
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    executions: Mapped[int] = mapped_column(BigInteger, default=0)
    seconds: Mapped[float] = mapped_column(Double, default=0.0)
    options: Mapped[dict[str, Any]] = mapped_column(JSON)
    campaign_id: Mapped[int | None] = mapped_column(ForeignKey("campaigns.id"))
    node: Mapped[str | None]


class StoredScenario(Base):
    """A scenario's canonical JSON under its content address (SHA-256, hex)."""

    __tablename__ = "scenarios"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    data: Mapped[str] = mapped_column(Text)
    requests: Mapped[int]
    events: Mapped[int]
    schema: Mapped[int]


class Finding(Base):
    """A fingerprint on a pair, its history, its best reproducer so far.

    `count` is exact; `executions_to_find` and `seconds_to_find` are the hunt's totals when it was
    first seen; `component` is whose fault a violation is (None for a divergence);
    `reproducer_steps` is in engine steps; `minimize_calls` counts predicate calls. `held_at` is set
    while it waits behind its campaign's daily cap, counted but not worked on, until `released_at`.
    A `dup` names the finding that it repeats (`dup_of`) or whose sightings its own are counted with
    (`merged_into`); `fixed_in` is a target's name; a `muted` one is silent until `muted_until`.
    """

    __tablename__ = "findings"
    __table_args__ = (
        UniqueConstraint("before", "after", "fingerprint"),
        Index(None, "hunt_id"),
        Index(None, "scenario_id"),
        Index(None, "reproducer_id"),
        Index(None, "merged_into"),
        Index(None, "status"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    before: Mapped[str]
    after: Mapped[str]
    fingerprint: Mapped[str]
    verdict: Mapped[str]
    kind: Mapped[str]
    rule: Mapped[str]
    component: Mapped[str | None]
    title: Mapped[str] = mapped_column(Text)
    detail: Mapped[str] = mapped_column(Text)
    status: Mapped[str] = mapped_column(String, default="new")
    count: Mapped[int] = mapped_column(BigInteger, default=1)
    hunt_id: Mapped[int] = mapped_column(ForeignKey("hunts.id"))
    executions_to_find: Mapped[int] = mapped_column(BigInteger)
    seconds_to_find: Mapped[float] = mapped_column(Double)
    first_seen_at: Mapped[datetime] = mapped_column(UtcDateTime)
    last_seen_at: Mapped[datetime] = mapped_column(UtcDateTime)
    # Deferred, because a transaction always locks the finding before it inserts the scenario: with
    # both orders in use two PostgreSQL writers of one scenario and one finding can deadlock.
    scenario_id: Mapped[str] = mapped_column(
        ForeignKey("scenarios.id", deferrable=True, initially="DEFERRED")
    )
    reproducer_id: Mapped[str] = mapped_column(
        ForeignKey("scenarios.id", deferrable=True, initially="DEFERRED")
    )
    reproducer_requests: Mapped[int]
    reproducer_events: Mapped[int]
    reproducer_steps: Mapped[int]
    minimize_state: Mapped[MinimizeState] = mapped_column(String, default="none")
    minimize_calls: Mapped[int] = mapped_column(default=0)
    confirm_runs: Mapped[int] = mapped_column(default=0)
    confirm_hits: Mapped[int] = mapped_column(default=0)
    export_path: Mapped[str | None] = mapped_column(Text)
    held_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    released_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    fixed_in: Mapped[str | None]
    dup_of: Mapped[int | None] = mapped_column(ForeignKey("findings.id"))
    merged_into: Mapped[int | None] = mapped_column(ForeignKey("findings.id"))
    muted_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    muted_by: Mapped[int | None] = mapped_column(ForeignKey("mute_rules.id"))

    @property
    def verdict_fingerprint(self) -> str:
        """The fingerprint that its verdicts have: one that was split off has a mark after it."""
        return self.fingerprint.partition(SPLIT_MARK)[0]

    scenario: Mapped[StoredScenario] = relationship(foreign_keys=[scenario_id], lazy="raise")
    reproducer: Mapped[StoredScenario] = relationship(foreign_keys=[reproducer_id], lazy="raise")


class Occurrence(Base):
    """One of a finding's first sightings: which scenario, at which execution and second."""

    __tablename__ = "occurrences"
    __table_args__ = (Index(None, "finding_id"), Index(None, "hunt_id"), Index(None, "scenario_id"))

    id: Mapped[int] = mapped_column(primary_key=True)
    finding_id: Mapped[int] = mapped_column(ForeignKey("findings.id"))
    hunt_id: Mapped[int] = mapped_column(ForeignKey("hunts.id"))
    scenario_id: Mapped[str] = mapped_column(ForeignKey("scenarios.id"))
    execution: Mapped[int] = mapped_column(BigInteger)
    seconds: Mapped[float] = mapped_column(Double)
    seen_at: Mapped[datetime] = mapped_column(UtcDateTime)


class Incident(Base):
    """A fault of the machine (worker killed, out of memory, hang) and the scenario that did it."""

    __tablename__ = "incidents"
    __table_args__ = (Index(None, "hunt_id"), Index(None, "scenario_id"))

    id: Mapped[int] = mapped_column(primary_key=True)
    hunt_id: Mapped[int] = mapped_column(ForeignKey("hunts.id"))
    target: Mapped[str]
    scenario_id: Mapped[str | None] = mapped_column(ForeignKey("scenarios.id"))
    what: Mapped[str]
    detail: Mapped[str] = mapped_column(Text)
    seen_at: Mapped[datetime] = mapped_column(UtcDateTime)
