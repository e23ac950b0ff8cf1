"""Nouns: verification, what is still missing.

A finding is a statement on two targets; a verification says how its reproducer does on a third. One
row per finding and target, so what is missing is a difference of two sets and needs no memory of
what was asked before.
"""

from collections.abc import Sequence

from sqlalchemy import select

from schedfuzz.db import queries, rows
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding
from schedfuzz.db.service_models import Verification

_REPEATS = ("confirmed", "minimized")


def save(store: Store, finding_id: int, target: str, outcome: str, runs: int, hits: int) -> None:
    """Store what the target says now: `outcome`, in `hits` of `runs` runs; the newest wins.

    Raises InputError for an unknown finding.
    """
    said = {"outcome": outcome, "runs": runs, "hits": hits, "at": rows.now()}
    with store.write() as session:
        queries.load_finding(session, store, finding_id)
        upsert = rows.insert(session, Verification).values(
            finding_id=finding_id, target=target, **said
        )
        session.execute(
            upsert.on_conflict_do_update(
                index_elements=["finding_id", "target"], set_=said,
                where=Verification.at <= said["at"],
            )
        )  # fmt: skip


def of(store: Store, finding_id: int) -> list[Verification]:
    """Return the finding's verifications, by target."""
    query = select(Verification).filter_by(finding_id=finding_id).order_by(Verification.target)
    with store.read() as session:
        return list(session.scalars(query))


def missing(store: Store, targets: Sequence[str]) -> list[tuple[int, str]]:
    """Return the (finding id, target) pairs that nobody has verified, oldest finding first.

    Of findings that repeat (confirmed or minimized), are not held and not mere changes.
    """
    wanted = list(dict.fromkeys(targets))
    findings = select(Finding.id).where(
        Finding.status.in_(_REPEATS), Finding.held_at.is_(None), Finding.verdict != "changed"
    )
    known = select(Verification.finding_id, Verification.target).where(
        Verification.target.in_(wanted)
    )
    with store.read() as session:
        numbers = session.scalars(findings.order_by(Finding.id)).all()
        done = {(number, target) for number, target in session.execute(known)}
    return [
        (number, target) for number in numbers for target in wanted if (number, target) not in done
    ]
