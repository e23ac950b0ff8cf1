"""Nouns: hunts on one machine, executions per CPU second, the service's share.

How a machine bears several hunts at once, and what the service costs beside them. Each round
starts a cluster on an empty PostgreSQL for each number of hunts in turn, lets it settle, and looks
for a while at the executions that are stored and at the CPU time of every part. Triage is off, so
that all executions are the hunts'. Prints a row for each measurement, then for each number of hunts
the medians and ranges over the rounds, and their ratios to one hunt of the same round.

    .venv/bin/python bench/one_node.py 0.28.0 0.29.0 [--hunts 3] [--rounds 10] [--time 60]
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from service_parts import Cluster, Server, cpu_seconds, measured_cluster, parts

from schedfuzz.db import campaigns
from schedfuzz.db.jobs import MAX_LEASE

PORT = 28379
SETTLE_SECONDS = 40.0  # the corpora's first scenarios cost more than all later ones
AT_WORK = ("target", "hunt", "actor")
SERVICE = ("coordinator", "database", "keeper", "ray")

Row = dict[str, Any]


def main() -> None:
    """Measure and print."""
    options = _options()
    rows = []
    for number in range(options.rounds):
        for hunts in range(1, options.hunts + 1):
            rows.append({"round": number, **_measure(options, hunts)})
            print(rows[-1], flush=True)
    figures = [_figures(rows, hunts) for hunts in range(1, options.hunts + 1)]
    for line in figures:
        print(line)
    if options.json:
        options.json.write_text(json.dumps({"figures": figures, "rows": rows}, indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--hunts", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--time", type=float, default=60.0)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _measure(options: argparse.Namespace, hunts: int) -> Row:
    with measured_cluster(PORT) as (cluster, server):
        cluster.run(
            "cluster", "start", "--port", PORT, "--cpus", 2 * hunts, "--gpus", 0, "--triage", 0
        )
        try:
            cluster.run(
                "campaign", "add", options.before, options.after, "--hunts", hunts,
                "--slice", MAX_LEASE + options.time, "--name", "bench",
            )  # fmt: skip
            cluster.until(lambda: _settled(cluster, hunts))
            start = _now(cluster, server)
            time.sleep(options.time)
            return {"hunts": hunts} | _between(start, _now(cluster, server))
        finally:
            cluster.run("cluster", "stop")


def _settled(cluster: Cluster, hunts: int) -> bool:
    running = campaigns.hunts_of(cluster.store, 1, "running")
    return len(running) == hunts and all(hunt.seconds >= SETTLE_SECONDS for hunt in running)


def _now(cluster: Cluster, server: Server) -> Row:
    """Return the moment's totals; each hunt stores its executions every second or so."""
    used = {part: cpu_seconds(pids) for part, pids in parts(cluster, server, 1).items()}
    executions, hunting = campaigns.spent(cluster.store, 1)
    return {"at": time.monotonic(), "executions": executions, "hunting": hunting, "cpu": used}


def _between(start: Row, end: Row) -> Row:
    wall = end["at"] - start["at"]
    executions = end["executions"] - start["executions"]
    if not executions:
        sys.exit("nothing was executed: is the machine overloaded?")
    used = {part: end["cpu"].get(part, 0.0) - start["cpu"].get(part, 0.0) for part in end["cpu"]}
    at_work = sum(used.get(part, 0.0) for part in AT_WORK)
    service = sum(used.get(part, 0.0) for part in SERVICE)
    return {
        "executions": executions, "per_second": executions / wall,
        "per_cpu_second": executions / at_work, "cores": at_work / wall,
        "service_share": service / at_work,
        "shares": {part: round(used.get(part, 0.0) / at_work, 5) for part in SERVICE},
    }  # fmt: skip


def _figures(rows: list[Row], hunts: int) -> Row:
    alone = {row["round"]: row for row in rows if row["hunts"] == 1}
    mine = [row for row in rows if row["hunts"] == hunts]
    line: Row = {"hunts": hunts}
    for name in ("per_second", "per_cpu_second", "cores", "service_share"):
        line[name] = _spread([row[name] for row in mine])
    for name in ("per_second", "per_cpu_second"):
        line[f"{name}_to_one"] = _spread([row[name] / alone[row["round"]][name] for row in mine])
    return line


def _spread(values: list[float]) -> tuple[float, float, float]:
    """Return the median, the least and the greatest."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return round(middle, 4), round(low, 4), round(high, 4)


if __name__ == "__main__":
    main()
