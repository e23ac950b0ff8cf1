"""Nouns: how a scenario becomes a row, which of two reproducers is better, a finding's status.

The order on reproducers is total, so concurrent minimizers end at the same one in any order.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from schedfuzz.corpus import codec
from schedfuzz.corpus.order import Rank, order
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Verdict
from schedfuzz.db.models import Base, Finding, StoredScenario

# A status that is not here is a person's decision, which no machine may overwrite.
MACHINE_STATUSES = ("new", "confirmed", "minimized", "flaky")


def now() -> datetime:
    """Return the present moment, aware, in UTC."""
    return datetime.now(UTC)


def clean(text: str) -> str:
    """Return `text` with what a database cannot hold (NUL, lone surrogates) as escapes."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def insert(session: Session, model: type[Base]) -> sqlite.Insert | postgresql.Insert:
    """Return an insert that knows ON CONFLICT, for the session's dialect."""
    if session.get_bind().dialect.name == "sqlite":
        return sqlite.insert(model)
    return postgresql.insert(model)


def put_scenario(session: Session, scenario: Scenario) -> str:
    """Store a validated scenario unless it is there already; return its id."""
    row = {
        "id": codec.scenario_id(scenario),
        "data": codec.encode(scenario).decode(),
        "requests": len(scenario.requests),
        "events": len(scenario.events),
        "schema": scenario.schema,
    }
    session.execute(insert(session, StoredScenario).values(row).on_conflict_do_nothing())
    return str(row["id"])


def verdict_columns(verdict: Verdict) -> dict[str, Any]:
    """Return the columns of a new finding that its verdict gives.

    Raises ValueError for a verdict that is no finding.
    """
    if not verdict.fingerprint or verdict.kind is None:
        raise ValueError(f"verdict {verdict.verdict!r} has no fingerprint or kind: not a finding")
    names = ("verdict", "kind", "rule", "fingerprint", "title", "detail")
    columns = {name: clean(getattr(verdict, name)) for name in names}
    return columns | {"component": verdict.component}


def reproducer_columns(scenario: Scenario, steps: int) -> dict[str, Any]:
    """Return the columns of a finding that describe its reproducer (`steps`: engine steps)."""
    return {
        "reproducer_id": codec.scenario_id(scenario),
        "reproducer_requests": len(scenario.requests),
        "reproducer_events": len(scenario.events),
        "reproducer_steps": steps,
    }


def stored_order(finding: Finding) -> Rank:
    """Return the rank of the finding's best reproducer so far (which must be loaded)."""
    scenario = codec.decode(finding.reproducer.data, f"finding {finding.id}")
    return order(scenario, finding.reproducer_steps)


def status(finding: Finding) -> str:
    """Return the status that the finding's confirmation and minimization give it, if they may."""
    return machine_status(finding) if finding.status in MACHINE_STATUSES else finding.status


def machine_status(finding: Finding) -> str:
    """Return the status that the finding has where nobody has decided anything."""
    if finding.confirm_hits < finding.confirm_runs:
        return "flaky"
    if finding.minimize_state == "done":
        return "minimized"
    return "confirmed" if finding.confirm_runs else "new"
