"""Nouns: death, quarantine.

A scenario that takes workers with it would take the next one too, so after a few deaths nobody runs
it on that pair any more. Deaths are counted in one statement: of several workers that blame one
scenario at once, exactly one hears that this put it into quarantine.
"""

from sqlalchemy import case, select, update

from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.validate import validate
from schedfuzz.db import rows
from schedfuzz.db.connect import Store
from schedfuzz.db.service_models import Poison

DEATHS = 3  # this many put a scenario into quarantine


def blame(store: Store, before: str, after: str, scenario: Scenario, detail: str) -> bool:
    """Count one death of a worker in the scenario; return whether this one quarantined it.

    `detail` is of the latest death. Raises InputError for an invalid scenario.
    """
    scenario = validate(scenario)
    moment, said = rows.now(), rows.clean(detail)
    later = case((Poison.last_at > moment, Poison.last_at), else_=moment)
    counted = {
        "deaths": Poison.deaths + 1,
        "quarantined": Poison.deaths + 1 >= DEATHS,
        "detail": said,
        "last_at": later,
    }
    with store.write() as session:
        first = {
            "before": before, "after": after, "scenario_id": rows.put_scenario(session, scenario),
            "deaths": 1, "quarantined": DEATHS <= 1, "detail": said, "last_at": moment,
        }  # fmt: skip
        key = ["before", "after", "scenario_id"]
        upsert = rows.insert(session, Poison).values(first)
        upsert = upsert.on_conflict_do_update(index_elements=key, set_=counted)
        return session.execute(upsert.returning(Poison.deaths)).scalar_one() == DEATHS


def quarantined(store: Store, before: str, after: str) -> set[str]:
    """Return the ids of the scenarios that may not run on the pair."""
    query = select(Poison.scenario_id).filter_by(before=before, after=after, quarantined=True)
    with store.read() as session:
        return set(session.scalars(query))


def listed(store: Store) -> list[Poison]:
    """Return the scenarios with deaths that nobody forgave, the latest death first."""
    query = select(Poison).where(Poison.deaths > 0).order_by(Poison.last_at.desc())
    with store.read() as session:
        return list(session.scalars(query))


def forgive(store: Store, scenario_id: str) -> int:
    """Forget the scenario's deaths on all pairs; return on how many pairs it had any."""
    had_any = (Poison.scenario_id == rows.clean(scenario_id), Poison.deaths > 0)
    key = Poison.before, Poison.after
    with store.write() as session:
        # In order, so that two who forgive at once do not deadlock.
        session.execute(select(*key).where(*had_any).order_by(*key).with_for_update())
        forgiven = session.execute(
            update(Poison).where(*had_any).values(deaths=0, quarantined=False).returning(*key),
            execution_options={"synchronize_session": False},
        )
        return len(forgiven.all())
