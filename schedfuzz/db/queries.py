"""Nouns: the named queries: what a hunt and the verbs read.

Each function is one short transaction, and rows come with what a reader will touch of them, for
they outlive it.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session, joinedload

from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.db import rows
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding, Hunt, Incident, Occurrence, StoredScenario

_MAX_ID = 2**31 - 1


def list_hunts(store: Store, limit: int = 20) -> list[Hunt]:
    """Return the newest hunts, newest first."""
    with store.read() as session:
        return list(session.scalars(select(Hunt).order_by(Hunt.id.desc()).limit(limit)))


def list_incidents(store: Store, hunt_id: int | None = None, limit: int = 100) -> list[Incident]:
    """Return the newest incidents (of one hunt), newest first."""
    query = select(Incident).order_by(Incident.id.desc()).limit(limit)
    with store.read() as session:
        return list(session.scalars(query if hunt_id is None else query.filter_by(hunt_id=hunt_id)))


def unfinished_minimizations(store: Store, before: str, after: str) -> list[Finding]:
    """Return the pair's findings that are not minimized to the end, with scenarios, oldest first.

    A minimization that a killed process left `running` is one of them.
    """
    query = with_scenarios().filter_by(before=before, after=after).order_by(Finding.id)
    with store.read() as session:
        return list(session.scalars(query.where(Finding.minimize_state != "done")))


def get_finding(store: Store, finding_id: int) -> Finding:
    """Return the finding with its scenarios. Raises InputError for an unknown id."""
    with store.read() as session:
        return load_finding(session, store, finding_id)


def list_occurrences(store: Store, finding_id: int) -> list[Occurrence]:
    """Return the finding's first sightings (at most `writes.KEPT_OCCURRENCES`), oldest first."""
    query = select(Occurrence).filter_by(finding_id=finding_id).order_by(Occurrence.id)
    with store.read() as session:
        return list(session.scalars(query))


def get_scenario(store: Store, scenario_id: str) -> Scenario:
    """Return a stored scenario by its content address. Raises InputError for an unknown one."""
    with store.read() as session:
        row = session.get(StoredScenario, rows.clean(scenario_id))
    if row is None:
        raise InputError(f"scenario {scenario_id!r}: not in {store.name}; use a finding's scenario")
    return codec.decode(row.data, f"scenario {scenario_id}")


def sightings(store: Store, finding: Finding) -> int:
    """Return how often the finding was seen, together with those merged into it."""
    with store.read() as session:
        return finding.count + merged_sightings(session, [finding.id]).get(finding.id, 0)


def finding_as_json(finding: Finding, sightings: int | None = None) -> dict[str, Any]:
    """Return what `--json` shows of a finding that was read with its scenarios.

    Its count is its own, or the `sightings` that it has with those merged into it.
    """
    names = (
        "id", "before", "after", "verdict", "kind", "rule", "component", "fingerprint", "title",
        "status", "count", "executions_to_find", "seconds_to_find",
    )  # fmt: skip
    reproducer = {
        "requests": finding.reproducer_requests,
        "events": finding.reproducer_events,
        "steps": finding.reproducer_steps,
        "scenario": msgspec.json.decode(finding.reproducer.data),
    }
    shown = {name: getattr(finding, name) for name in names} | {"reproducer": reproducer}
    return shown if sightings is None else shown | {"count": sightings}


def finding_in_full(finding: Finding, sightings: int | None = None) -> dict[str, Any]:
    """Return `finding_as_json` and what only the look at one finding shows."""
    names = (
        "detail", "minimize_state", "minimize_calls", "confirm_runs", "confirm_hits",
        "export_path", "first_seen_at", "last_seen_at", "fixed_in", "dup_of", "merged_into",
        "muted_until", "muted_by",
    )  # fmt: skip
    return finding_as_json(finding, sightings) | {name: getattr(finding, name) for name in names}


def with_scenarios() -> Select[Any]:
    """Return the query for findings that bring their scenarios along."""
    return select(Finding).options(
        joinedload(Finding.scenario, innerjoin=True), joinedload(Finding.reproducer, innerjoin=True)
    )


def merged_sightings(session: Session, numbers: Sequence[int]) -> dict[int, int]:
    """Return, per finding that others were merged into, how often those were seen."""
    query = (
        select(Finding.merged_into, func.sum(Finding.count))
        .where(Finding.merged_into.in_(numbers))
        .group_by(Finding.merged_into)
    )
    return {number: int(total) for number, total in session.execute(query) if number}


def load_finding(session: Session, store: Store, finding_id: int, lock: bool = False) -> Finding:
    """Return the finding with its scenarios, in the caller's transaction; `lock` is for writers.

    Raises InputError for an unknown id.
    """
    own = Finding.id == (finding_id if 0 < finding_id <= _MAX_ID else 0)
    if lock:
        # On its own: a join that had to wait for the lock would miss a changed reproducer.
        session.execute(select(Finding.id).where(own).with_for_update())
    finding: Finding | None = session.scalar(with_scenarios().where(own))
    if finding is None:
        raise InputError(
            f"finding {finding_id}: not in {store.name}; `schedfuzz findings` lists them"
        )
    return finding
