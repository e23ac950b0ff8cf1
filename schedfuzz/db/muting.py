"""Nouns: mute rule, match, wake.

A rule says what is not worth a look, for how long, why and who answers for it. It mutes what is
there when it is added, and from then on what is found; when it expires or is removed, that wakes.
Which findings a rule has muted is stored with them, so a rule that mutes nothing is seen to be
unused.
"""

from collections.abc import Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from schedfuzz.corpus.errors import InputError
from schedfuzz.db import decisions, rows
from schedfuzz.db.connect import Store
from schedfuzz.db.decision_models import Decision, MuteRule
from schedfuzz.db.models import Finding

MATCHED = (
    "before", "after", "verdict", "kind", "rule", "component", "fingerprint", "title",
)  # fmt: skip


class RuleUse(NamedTuple):
    """A rule, how many findings it mutes now, and how many it ever muted."""

    rule: MuteRule
    muted: int
    ever: int


def add(
    store: Store, match: Mapping[str, str], owner: str, reason: str, expires_at: datetime,
    actor: str, pr: str | None = None,
) -> tuple[int, int]:  # fmt: skip
    """Add a rule and mute the open findings that it matches; return its id and how many.

    `match` is column -> glob pattern, all of which must match. Raises InputError for an empty one,
    an unknown column, and an expiry that has passed.
    """
    if not match:
        raise InputError("the rule: matches everything; say what it is to match")
    if unknown := sorted(set(match) - set(MATCHED)):
        raise InputError(f"column {unknown[0]!r}: no rule can match it; use {', '.join(MATCHED)}")
    now = rows.now()
    if expires_at <= now:
        raise InputError(f"{expires_at:%Y-%m-%d %H:%M} UTC: has passed; name a later moment")
    with store.write() as session:
        rule = MuteRule(
            match={name: rows.clean(value) for name, value in match.items()},
            owner=rows.clean(owner), reason=rows.clean(reason), pr=pr and rows.clean(pr),
            expires_at=expires_at, created_at=now,
        )  # fmt: skip
        session.add(rule)
        session.flush()
        decisions.audit(session, "rule add", actor, reason, rule_id=rule.id)
        open_ = Finding.status.in_(rows.MACHINE_STATUSES)
        fitting = [row for row in _locked(session, open_) if _matches(rule, row)]
        for row in fitting:
            _mute(session, row, rule)
        return rule.id, len(fitting)


def remove(store: Store, rule_id: int, actor: str, note: str = "") -> int:
    """Take a rule out; what it muted wakes. Return how many. Raises InputError for none such."""
    with store.write() as session:
        rule = session.get(MuteRule, rule_id, with_for_update=True)
        if rule is None or rule.removed_at is not None:
            raise InputError(f"rule {rule_id}: there is none; `schedfuzz rule list` lists them")
        rule.removed_at = rows.now()
        decisions.audit(session, "rule remove", actor, note, rule_id=rule_id)
        return _wake(session, Finding.muted_by == rule_id, actor)


def listed(store: Store) -> list[RuleUse]:
    """Return the rules that nobody removed, oldest first."""
    muted = select(func.count()).where(Finding.muted_by == MuteRule.id).scalar_subquery()
    ever = (
        select(func.count(Decision.finding_id.distinct()))
        .where(Decision.rule_id == MuteRule.id)
        .scalar_subquery()
    )
    query = select(MuteRule, muted, ever).where(MuteRule.removed_at.is_(None))
    with store.read() as session:
        return [RuleUse(*row) for row in session.execute(query.order_by(MuteRule.id))]


def wake(store: Store) -> int:
    """Reopen the findings whose muting is over; return how many."""
    over = (Finding.status == "muted") & (Finding.muted_until <= rows.now())
    # Mostly there are none, and then nobody must wait for us.
    with store.read() as session:
        if session.scalar(select(Finding.id).where(over).limit(1)) is None:
            return 0
    with store.write() as session:
        return _wake(session, over, decisions.SERVICE)


def mute_if_ruled(session: Session, finding_id: int, moment: datetime) -> None:
    """Mute a finding that the caller's transaction has just inserted, if a rule matches it."""
    in_force = MuteRule.removed_at.is_(None), MuteRule.expires_at > moment
    rules = session.scalars(select(MuteRule).where(*in_force).order_by(MuteRule.id)).all()
    if not rules:
        return
    row = session.get_one(Finding, finding_id)
    for rule in rules:
        if _matches(rule, row):
            _mute(session, row, rule)
            return


def _mute(session: Session, row: Finding, rule: MuteRule) -> None:
    changes = {"status": "muted", "muted_until": rule.expires_at, "muted_by": rule.id}
    decisions.apply(
        session, row, "mute", decisions.SERVICE, f"rule {rule.id}: {rule.reason}", changes, rule.id
    )


def _wake(session: Session, which: ColumnElement[bool], actor: str) -> int:
    found = _locked(session, which)
    for row in found:
        decisions.apply(
            session, row, "wake", actor, "", {"status": rows.machine_status(row)}, row.muted_by
        )
    return len(found)


def _locked(session: Session, which: ColumnElement[bool]) -> list[Finding]:
    query = select(Finding).where(which).order_by(Finding.id).with_for_update()
    return list(session.scalars(query))


def _matches(rule: MuteRule, row: Finding) -> bool:
    values: dict[str, Any] = {name: getattr(row, name) or "" for name in rule.match}
    return all(fnmatchcase(values[name], pattern) for name, pattern in rule.match.items())
