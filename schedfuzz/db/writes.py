"""Nouns: the named writes: what a hunt, a minimization and an export store.

Each function is one short transaction. What is hot, `record_verdict` on a known fingerprint, is
one UPDATE; every writer here locks the finding (then, if that is new, its campaign) before it
touches a scenario, so writers queue up and never deadlock.
"""

from typing import Any

from sqlalchemy import case, update
from sqlalchemy.orm import Session

from schedfuzz.corpus import codec
from schedfuzz.corpus.order import order
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Verdict
from schedfuzz.corpus.validate import validate
from schedfuzz.db import held, muting, queries, rows
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding, Hunt, HuntState, Incident, MinimizeState, Occurrence

KEPT_OCCURRENCES = 20


def start_hunt(
    store: Store, before: str, after: str, seed: int, options: dict[str, Any], *,
    campaign_id: int | None = None, node: str | None = None,
) -> int:  # fmt: skip
    """Store a running hunt and return its id; `seed` must fit in 64 signed bits.

    `campaign_id` and `node` (where it runs) are None for a hunt from the command line.
    """
    hunt = Hunt(
        before=before, after=after, seed=seed, started_at=rows.now(), options=options,
        campaign_id=campaign_id, node=None if node is None else rows.clean(node),
    )  # fmt: skip
    with store.write() as session:
        session.add(hunt)
    return hunt.id


def update_hunt(store: Store, hunt_id: int, executions: int, seconds: float) -> None:
    """Set the hunt's running totals."""
    totals = {"executions": executions, "seconds": seconds}
    with store.write() as session:
        session.execute(update(Hunt).where(Hunt.id == hunt_id).values(totals))


def finish_hunt(
    store: Store, hunt_id: int, state: HuntState, executions: int, seconds: float
) -> None:
    """Set the hunt's final totals and its state, `done` or `interrupted`."""
    final = {"state": state, "ended_at": rows.now(), "executions": executions, "seconds": seconds}
    with store.write() as session:
        session.execute(update(Hunt).where(Hunt.id == hunt_id).values(final))


def record_verdict(
    store: Store, hunt_id: int, before: str, after: str, verdict: Verdict, scenario: Scenario,
    steps: int, execution: int, seconds: float, *, campaign_id: int | None = None,
) -> tuple[int, bool]:  # fmt: skip
    """Count one sighting of a finding; return the finding's id and whether it is new.

    `steps` is the scenario's number of engine steps; `execution` and `seconds` are the hunt's
    totals at the sighting. A new finding over the cap of `campaign_id`, the hunt's campaign, is
    held (see `held`). Raises ValueError for a verdict that is no finding.
    """
    scenario = validate(scenario)
    moment = rows.now()
    first = rows.verdict_columns(verdict) | rows.reproducer_columns(scenario, steps) | {
        "before": before, "after": after, "hunt_id": hunt_id,
        "executions_to_find": execution, "seconds_to_find": seconds,
        "first_seen_at": moment, "last_seen_at": moment,
        "scenario_id": codec.scenario_id(scenario),
    }  # fmt: skip
    with store.write() as session:
        finding_id, count = _count_sighting(session, first)
        if count == 1:
            muting.mute_if_ruled(session, finding_id, moment)
        if count == 1 and campaign_id is not None:
            held.hold_if_full(session, campaign_id, finding_id, first["kind"], moment)
        if count <= KEPT_OCCURRENCES:
            scenario_id = rows.put_scenario(session, scenario)
            session.add(
                Occurrence(
                    finding_id=finding_id, hunt_id=hunt_id, scenario_id=scenario_id,
                    execution=execution, seconds=seconds, seen_at=moment,
                )
            )  # fmt: skip
    return finding_id, count == 1


def _count_sighting(session: Session, first: dict[str, Any]) -> tuple[int, int]:
    """Return the finding's id and its count with this sighting; `first` is its row if new."""
    key = {name: first[name] for name in ("before", "after", "fingerprint")}
    moment = first["last_seen_at"]
    counted = {
        "count": Finding.count + 1,
        "last_seen_at": case((Finding.last_seen_at > moment, Finding.last_seen_at), else_=moment),
    }
    result = Finding.id, Finding.count
    # Update first: most sightings are of known findings, and a tried insert uses up one id.
    known = session.execute(
        update(Finding).filter_by(**key).values(counted).returning(*result),
        execution_options={"synchronize_session": False},
    ).one_or_none()
    if known is None:
        upsert = rows.insert(session, Finding).values(first)
        upsert = upsert.on_conflict_do_update(index_elements=list(key), set_=counted)
        known = session.execute(upsert.returning(*result)).one()
    finding_id, count = known
    return finding_id, count


def record_incident(
    store: Store, hunt_id: int, target: str, what: str, detail: str,
    scenario: Scenario | None = None,
) -> int:  # fmt: skip
    """Store a fault of the machine (`what`: its kind in a word or two) and return its id."""
    incident = Incident(
        hunt_id=hunt_id, target=target, what=what, detail=rows.clean(detail), seen_at=rows.now()
    )
    with store.write() as session:
        if scenario is not None:
            incident.scenario_id = rows.put_scenario(session, validate(scenario))
        session.add(incident)
    return incident.id


def save_reproducer(
    store: Store, finding_id: int, scenario: Scenario, steps: int, calls: int,
    state: MinimizeState,
) -> bool:  # fmt: skip
    """Store the minimization's state, and its scenario if that is better; return whether it was.

    Better is less by `corpus.order`, the minimizer's own order. `calls` is the
    number of predicate calls spent on the finding so far, in all its minimizations.
    Raises InputError for an unknown finding.
    """
    scenario = validate(scenario)
    with store.write() as session:
        finding = queries.load_finding(session, store, finding_id, lock=True)
        better = order(scenario, steps) < rows.stored_order(finding)
        if better:
            rows.put_scenario(session, scenario)
            for column, value in rows.reproducer_columns(scenario, steps).items():
                setattr(finding, column, value)
        finding.minimize_state = state
        finding.minimize_calls = max(finding.minimize_calls, calls)
        finding.status = rows.status(finding)
    return better


def record_confirmation(store: Store, finding_id: int, runs: int, hits: int) -> None:
    """Store that the reproducer repeated in `hits` of its latest `runs` runs.

    Raises InputError for an unknown finding.
    """
    with store.write() as session:
        finding = queries.load_finding(session, store, finding_id, lock=True)
        finding.confirm_runs, finding.confirm_hits = runs, hits
        finding.status = rows.status(finding)


def record_export(store: Store, finding_id: int, path: str) -> None:
    """Store where the finding's pytest file is. Raises InputError for an unknown finding."""
    with store.write() as session:
        queries.load_finding(session, store, finding_id, lock=True).export_path = path
