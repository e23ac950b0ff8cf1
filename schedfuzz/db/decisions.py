"""Nouns: decision, reopening, audit row.

What people (or a verification in their name) decide about findings. The key insight: a decision
only covers what machines found out, so taking it back needs no memory of what was under it: that
is computed from the confirmation and the minimization as ever. Each function is one transaction
that locks the finding, changes it and writes the audit row.
"""

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from schedfuzz.corpus.errors import InputError
from schedfuzz.db import queries, rows
from schedfuzz.db.connect import Store
from schedfuzz.db.decision_models import Decision
from schedfuzz.db.models import Finding

SERVICE = "schedfuzz"  # the actor of what no person decided
COLUMNS = ("status", "fixed_in", "dup_of", "merged_into", "muted_until", "muted_by")
_NOTHING: dict[str, Any] = dict.fromkeys(COLUMNS[1:])


def report(store: Store, finding_id: int, actor: str, note: str = "") -> None:
    """Say that the finding was told upstream; `note` says where. Raises InputError."""
    _change(store, finding_id, "report", actor, note, lambda *_: {"status": "reported"})


def resolve(store: Store, finding_id: int, target: str, actor: str, note: str = "") -> None:
    """Say that the finding is fixed in `target`, which a verification may find true later."""
    changes = {"status": "fixed-in", "fixed_in": rows.clean(target)}
    _change(store, finding_id, "resolve", actor, note, lambda *_: changes)


def verified(store: Store, finding_id: int, target: str, actor: str, note: str = "") -> None:
    """Store that the finding was seen to be fixed in `target`."""
    changes = {"status": "verified", "fixed_in": rows.clean(target)}
    _change(store, finding_id, "verify", actor, note, lambda *_: changes)


def invalidate(store: Store, finding_id: int, actor: str, note: str = "") -> None:
    """Say that the finding is none: vLLM is meant to do so, or the judgement is wrong."""
    _change(store, finding_id, "invalid", actor, note, lambda *_: {"status": "invalid"})


def mute(store: Store, finding_id: int, until: datetime, actor: str, note: str = "") -> None:
    """Have the finding rest until then. Raises InputError for a moment that has passed."""
    if until <= rows.now():
        raise InputError(f"{until:%Y-%m-%d %H:%M} UTC: has passed; mute until a later moment")
    changes = {"status": "muted", "muted_until": until}
    _change(store, finding_id, "mute", actor, note, lambda *_: changes)


def duplicate(store: Store, finding_id: int, of: int, actor: str, note: str = "") -> None:
    """Say that the finding has the cause of `of`. Raises InputError for a circle of such."""

    def changes(session: Session, row: Finding) -> dict[str, Any]:
        _original(session, store, row, of)
        return {"status": "dup", "dup_of": of}

    _change(store, finding_id, "dup", actor, note, changes)


def merge(store: Store, finding_id: int, into: int, actor: str, note: str = "") -> None:
    """Count the finding's sightings, those to come too, with those of `into`, of the same pair."""

    def changes(session: Session, row: Finding) -> dict[str, Any]:
        original = _original(session, store, row, into)
        if (original.before, original.after) != (row.before, row.after):
            raise InputError(
                f"finding {into}: is of another pair than {finding_id}; use `schedfuzz dup`"
            )
        return {"status": "dup", "dup_of": into, "merged_into": into}

    _change(store, finding_id, "merge", actor, note, changes)


def reopen(
    store: Store, finding_id: int, actor: str, note: str = "", verb: str = "reopen",
    only: Collection[str] = (),
) -> None:  # fmt: skip
    """Take back what was decided. Raises InputError when nothing was, or none of `only`."""

    def changes(_: Session, row: Finding) -> dict[str, Any]:
        if row.status in rows.MACHINE_STATUSES:
            raise InputError(
                f"finding {finding_id}: is {row.status}, nothing was decided about it; "
                f"`schedfuzz show {finding_id}` says what was and is"
            )
        if only and row.status not in only:
            raise InputError(
                f"finding {finding_id}: is {row.status}, not {' or '.join(only)}; "
                "`schedfuzz reopen` takes back any decision"
            )
        return {"status": rows.machine_status(row)}

    _change(store, finding_id, verb, actor, note, changes)


def remark(
    store: Store, finding_id: int, text: str, actor: str, verb: str = "note"
) -> None:  # fmt: skip
    """Add a note to the finding, and change nothing; `verb` says what it comes from."""
    with store.write() as session:
        queries.load_finding(session, store, finding_id, lock=True)
        audit(session, verb, actor, text, finding_id=finding_id)


def history(store: Store, finding_id: int | None = None, limit: int = 1000) -> list[Decision]:
    """Return the newest audit rows (of a finding), oldest first."""
    query = select(Decision).order_by(Decision.id.desc()).limit(limit)
    if finding_id is not None:
        query = query.where(Decision.finding_id == finding_id)
    with store.read() as session:
        return list(session.scalars(query))[::-1]


def apply(
    session: Session, row: Finding, verb: str, actor: str, note: str, changes: dict[str, Any],
    rule_id: int | None = None,
) -> None:  # fmt: skip
    """Change a locked finding in the caller's transaction, with an audit row.

    What earlier decisions left, and these `changes` do not name, is cleared.
    """
    was = {name: getattr(row, name) for name in COLUMNS}
    for name, value in (_NOTHING | changes).items():
        setattr(row, name, value)
    became = {name: getattr(row, name) for name in COLUMNS}
    moved = [name for name in COLUMNS if was[name] != became[name]]
    audit(
        session, verb, actor, note, finding_id=row.id, rule_id=rule_id,
        was={name: _plain(was[name]) for name in moved},
        became={name: _plain(became[name]) for name in moved},
    )  # fmt: skip


def audit(
    session: Session, verb: str, actor: str, note: str, *, finding_id: int | None = None,
    rule_id: int | None = None, was: dict[str, Any] | None = None,
    became: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Write an audit row in the caller's transaction."""
    session.add(
        Decision(
            finding_id=finding_id, rule_id=rule_id, verb=verb, actor=rows.clean(actor),
            note=rows.clean(note), was=was or {}, became=became or {}, at=rows.now(),
        )
    )  # fmt: skip


def _change(
    store: Store, finding_id: int, verb: str, actor: str, note: str,
    changes: Callable[[Session, Finding], dict[str, Any]],
) -> None:  # fmt: skip
    with store.write() as session:
        row = queries.load_finding(session, store, finding_id, lock=True)
        apply(session, row, verb, actor, note, changes(session, row))


def _original(session: Session, store: Store, row: Finding, of: int) -> Finding:
    """Return the finding that `row` may be a duplicate of. Raises InputError."""
    original = queries.load_finding(session, store, of)
    if of == row.id:
        raise InputError(f"finding {of}: cannot be a duplicate of itself; name another")
    if original.dup_of is not None:
        raise InputError(
            f"finding {of}: is itself a duplicate of {original.dup_of}; name {original.dup_of}"
        )
    follower = session.scalar(select(Finding.id).where(Finding.dup_of == row.id).limit(1))
    if follower is not None:
        raise InputError(
            f"finding {row.id}: finding {follower} is a duplicate of it; "
            f"first `schedfuzz dup {follower} {of}`"
        )
    return original


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
