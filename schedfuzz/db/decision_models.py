"""Nouns: Decision, MuteRule, FindingTrace.

What people have decided about findings, and why; and what the two targets did, for whoever has to
decide without a target at hand.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from schedfuzz.db.models import Base, UtcDateTime


class Decision(Base):
    """One audit row: who did what to a finding or a rule, and the finding's columns around it.

    `was` and `became` hold the columns that a decision may change, those that it did.
    """

    __tablename__ = "decisions"
    __table_args__ = (
        Index(None, "finding_id"), Index(None, "rule_id"), {"sqlite_autoincrement": True},
    )  # fmt: skip

    id: Mapped[int] = mapped_column(primary_key=True)
    finding_id: Mapped[int | None] = mapped_column(ForeignKey("findings.id"))
    rule_id: Mapped[int | None] = mapped_column(ForeignKey("mute_rules.id"))
    verb: Mapped[str]
    actor: Mapped[str]
    note: Mapped[str] = mapped_column(Text)
    was: Mapped[dict[str, Any]] = mapped_column(JSON)
    became: Mapped[dict[str, Any]] = mapped_column(JSON)
    at: Mapped[datetime] = mapped_column(UtcDateTime)


class MuteRule(Base):
    """What mutes findings that are there and those to come: `match` is column -> glob pattern."""

    __tablename__ = "mute_rules"
    __table_args__ = {"sqlite_autoincrement": True}

    id: Mapped[int] = mapped_column(primary_key=True)
    match: Mapped[dict[str, str]] = mapped_column(JSON)
    owner: Mapped[str]
    reason: Mapped[str] = mapped_column(Text)
    pr: Mapped[str | None]
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    removed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class FindingTrace(Base):
    """What one side (`before` or `after`) did with a finding's reproducer; `data` is JSON."""

    __tablename__ = "finding_traces"
    __table_args__ = (Index(None, "scenario_id"),)

    finding_id: Mapped[int] = mapped_column(ForeignKey("findings.id"), primary_key=True)
    side: Mapped[str] = mapped_column(String(6), primary_key=True)
    scenario_id: Mapped[str] = mapped_column(ForeignKey("scenarios.id"))
    data: Mapped[str] = mapped_column(Text)
