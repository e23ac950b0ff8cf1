"""Nouns: split, sighting of its own.

A fingerprint can cover two causes. A split gives one of a finding's sightings a finding of its own,
with a mark after the fingerprint; sightings to come are counted as before, for no machine can tell
them apart. To merge it back undoes that.
"""

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from schedfuzz.corpus.errors import InputError
from schedfuzz.db import decisions, queries, rows
from schedfuzz.db.connect import Store
from schedfuzz.db.models import SPLIT_MARK, Finding, Occurrence, StoredScenario

_COPIED = (
    "before", "after", "verdict", "kind", "rule", "component", "title", "detail",
)  # fmt: skip
_SHOWN = 8


def split(store: Store, finding_id: int, scenario: str, actor: str, note: str = "") -> int:
    """Make the sightings with a scenario (its id's beginning) a finding; return the finding's id.

    Raises InputError for a scenario that is none of the kept sightings', or not of one alone, and
    for the finding's best reproducer, which it needs itself.
    """
    with store.write() as session:
        row = queries.load_finding(session, store, finding_id, lock=True)
        chosen = _chosen(session, row, rows.clean(scenario))
        if chosen == row.reproducer_id:
            raise InputError(
                f"scenario {chosen[:_SHOWN]}: is the best reproducer of finding {row.id}, which "
                "needs it itself; split off another"
            )
        first, moved = _moved(session, row, chosen)
        created = _insert(session, row, chosen, first, moved)
        row.count -= moved
        query = update(Occurrence).where(
            Occurrence.finding_id == row.id, Occurrence.scenario_id == chosen
        )
        session.execute(query.values(finding_id=created.id))
        for number in (row.id, created.id):
            said = f"{moved} sightings of scenario {chosen[:_SHOWN]} are finding {created.id} now"
            decisions.audit(session, "split", actor, note or said, finding_id=number)
        return created.id


def _chosen(session: Session, row: Finding, scenario: str) -> str:
    query = select(Occurrence.scenario_id).where(Occurrence.finding_id == row.id).distinct()
    known = sorted(session.scalars(query))
    fitting = [name for name in known if scenario and name.startswith(scenario)]
    if len(fitting) != 1:
        listed = ", ".join(name[:_SHOWN] for name in known)
        raise InputError(
            f"scenario {scenario!r}: {'several' if fitting else 'none'} of the kept sightings of "
            f"finding {row.id}; write one of {listed}"
        )
    return fitting[0]


def _moved(session: Session, row: Finding, scenario: str) -> tuple[Occurrence, int]:
    query = select(Occurrence).filter_by(finding_id=row.id, scenario_id=scenario)
    count = select(func.count()).select_from(Occurrence)
    count = count.filter_by(finding_id=row.id, scenario_id=scenario)
    first = session.scalars(query.order_by(Occurrence.id).limit(1)).one()
    return first, session.execute(count).scalar_one()


def _insert(
    session: Session, row: Finding, scenario: str, first: Occurrence, moved: int
) -> Finding:  # fmt: skip
    stored = session.get_one(StoredScenario, scenario)
    created = Finding(
        **{name: getattr(row, name) for name in _COPIED},
        fingerprint=f"{row.verdict_fingerprint}{SPLIT_MARK}{scenario[:_SHOWN]}",
        count=moved, hunt_id=first.hunt_id, executions_to_find=first.execution,
        seconds_to_find=first.seconds, first_seen_at=first.seen_at, last_seen_at=first.seen_at,
        scenario_id=scenario, reproducer_id=scenario, reproducer_requests=stored.requests,
        reproducer_events=stored.events, reproducer_steps=row.reproducer_steps,
    )  # fmt: skip
    session.add(created)
    session.flush()
    return created
