"""Nouns: a finding's traces.

What both targets did with the best reproducer, kept so that a finding can be looked at where no
target runs. Traces of another scenario than the reproducer are those of an older one.
"""

import msgspec
from sqlalchemy import select

from schedfuzz.corpus import codec
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace
from schedfuzz.db import queries, rows
from schedfuzz.db.connect import Store
from schedfuzz.db.decision_models import FindingTrace

SIDES = ("before", "after")
_LARGEST = 4_000_000  # characters of a side: no drawing shows more


def save(store: Store, finding_id: int, scenario: Scenario, before: Trace, after: Trace) -> bool:
    """Store what both sides did with the scenario, if it is the finding's reproducer by now.

    Return whether it was. Raises InputError for an unknown finding.
    """
    sides = [_encoded(trace) for trace in (before, after)]
    if any(len(data) > _LARGEST for data in sides):
        return False
    name = codec.scenario_id(scenario)
    with store.write() as session:
        if queries.load_finding(session, store, finding_id, lock=True).reproducer_id != name:
            return False
        for side, data in zip(SIDES, sides, strict=True):
            said = {"scenario_id": name, "data": data}
            upsert = rows.insert(session, FindingTrace).values(
                finding_id=finding_id, side=side, **said
            )
            session.execute(
                upsert.on_conflict_do_update(index_elements=["finding_id", "side"], set_=said)
            )
    return True


def load(store: Store, finding_id: int, scenario_id: str) -> tuple[Trace, Trace] | None:
    """Return what both sides did with that scenario, None where that is not stored."""
    query = select(FindingTrace).filter_by(finding_id=finding_id, scenario_id=scenario_id)
    with store.read() as session:
        found = {row.side: row.data for row in session.scalars(query)}
    if set(found) != set(SIDES):
        return None
    try:
        one, two = (msgspec.json.decode(found[side], type=Trace) for side in SIDES)
    except msgspec.DecodeError:  # stored by another version of the language
        return None
    return one, two


def _encoded(trace: Trace) -> str:
    # Coverage is for the hunt that has just seen it.
    plain = msgspec.structs.replace(trace, coverage=b"")
    return rows.clean(msgspec.json.encode(plain).decode())
