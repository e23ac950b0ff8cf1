"""Nouns: overview: campaigns, rates and findings over time, hunts, workers."""

from datetime import timedelta
from typing import Any

from markupsafe import Markup

from schedfuzz.db import campaigns, queries, samples, service_summary
from schedfuzz.db.connect import Store
from schedfuzz.db.rows import now
from schedfuzz.report.plot import plot

BUCKETS = 48
PLOTTED = ("executions_per_second", "findings", "features", "corpus")
HUNTS = 10
HUNT_FACTS = ("id", "before", "after", "state", "started_at", "executions", "seconds", "node")


def gathered(store: Store, hours: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the service's summary with each campaign's series, and the plots of a page."""
    summary = service_summary.gather(store)
    since = now() - timedelta(hours=hours)
    plots: dict[str, list[Markup]] = {}
    for entry in summary["campaigns"]:
        number = campaigns.get(store, entry["name"]).id
        points = samples.series(store, number, since, BUCKETS)
        entry["series"] = [point._asdict() for point in points]
        times = [point.at for point in points]
        plots[entry["name"]] = [
            Markup(plot(name.replace("_", " "), times, [getattr(p, name) for p in points]))
            for name in PLOTTED
        ]
    hunts = [
        {name: getattr(hunt, name) for name in HUNT_FACTS}
        for hunt in queries.list_hunts(store, HUNTS)
    ]
    return summary | {"hunts": hunts, "hours": hours}, {"plots": plots, "plotted": PLOTTED}
