"""Nouns: summary.

How the service is, from the database alone: what `status` and the dashboard both show.
"""

from typing import Any

from schedfuzz.db import campaigns, figures, held, nodes, poison, samples, shared_corpus
from schedfuzz.db.connect import Store
from schedfuzz.db.figures import FindingCount


def gather(store: Store) -> dict[str, Any]:
    """Return what there is to say, ready for JSON; ages in seconds."""
    alive, dead = figures.node_counts(store)
    counts = figures.finding_counts(store)
    return {
        "campaigns": [_campaign(store, row, counts) for row in campaigns.listed(store)],
        "canaries": figures.canary_age(store),
        "nodes": {"alive": alive, "gone": dead, "unfit_targets": figures.unfit_targets(store)},
        "unfit": [
            {"node": row.node_id, "release": row.release, "why": row.reason}
            for row in nodes.unfit(store)
        ],
        "jobs": [
            {"kind": kind, "state": state, "jobs": count}
            for (kind, state), count in sorted(figures.job_counts(store).items())
        ],
        "corpora": [size._asdict() for size in shared_corpus.sizes(store)],
        "quarantined": [
            {"scenario": row.scenario_id, "pair": [row.before, row.after], "deaths": row.deaths,
             "last": row.last_at.isoformat(), "detail": row.detail}
            for row in poison.listed(store) if row.quarantined
        ],
        "held": [row._asdict() | {"oldest": row.oldest.isoformat()} for row in held.held(store)],
    }  # fmt: skip


def _campaign(store: Store, row: Any, counts: list[FindingCount]) -> dict[str, Any]:
    executions, seconds = campaigns.spent(store, row.id)
    newest = samples.latest(store, row.id)
    return {
        "name": row.name, "before": row.before, "after": row.after, "state": row.state,
        "reason": row.reason, "executions": executions, "seconds": seconds,
        "executions_per_second": executions / seconds if seconds else 0.0,
        "findings": {
            f"{one.verdict} {one.status}": one.findings
            for one in counts if one.campaign == row.name
        },
        "memory": max((sample.memory for sample in newest), default=0),
    }  # fmt: skip
