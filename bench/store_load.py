"""Nouns: lateness, row.

What the store bears. So many simulated workers do to a PostgreSQL what a hunt of the service and
its actor do, through the same functions and as often, but execute nothing: totals, leases, samples,
corpus, sightings. How often a hunt sights a known finding and adds to the corpus is given; the
defaults were measured (docs/scaling.md). Server and workers share this machine: beside the workers'
lateness (a duty is late when it ends a second or more after its time) the figures to go by are the
server's own CPU seconds and bytes. Prints a row for each number of workers.

    .venv/bin/python bench/store_load.py [--workers 100 300 1000] [--time 60]
"""

import argparse
import json
import multiprocessing
import statistics
import time
from pathlib import Path
from random import Random
from typing import Any

from load_workers import PAIR, Load, drive, sight
from service_parts import Server, cpu_seconds, postgres_server
from sqlalchemy import text

from schedfuzz.db import campaigns, shared_corpus, writes
from schedfuzz.db.connect import Store, open_store
from schedfuzz.fuzzer.generate import generate
from schedfuzz.workers.footprint import descendants

LATE_SECONDS = 1.0
PROCESSES = 4
ACTIVITY = (
    "SELECT xact_commit AS commits, pg_current_wal_lsn() - '0/0' AS wal, "
    "pg_database_size(datname) AS size FROM pg_stat_database WHERE datname = current_database()"
)

Row = dict[str, Any]


def _measure(options: argparse.Namespace, workers: int) -> Row:
    with postgres_server(settings=("max_connections=300",)) as server:
        url = server.new_database()
        store = open_store(url)
        _prepare(store, options)
        spawn = multiprocessing.get_context("spawn")
        ready, begin, out = spawn.Semaphore(0), spawn.Event(), spawn.Queue()
        processes = [
            spawn.Process(target=drive, args=(load, ready, begin, out))
            for load in _loads(options, url, workers)
        ]
        for process in processes:
            process.start()
        for _ in processes:
            ready.acquire()
        before = _activity(store, server)
        begin.set()
        told = [out.get() for _ in processes]
        after = _activity(store, server)
        for process in processes:
            process.join()
        store.close()
    waits: dict[str, list[float]] = {}
    for own, _ in told:
        for name, values in own.items():
            waits.setdefault(name, []).extend(values)
    return {"workers": workers} | _row(waits, before, after)


def _prepare(store: Store, options: argparse.Namespace) -> None:
    """Store a campaign, its findings and a corpus."""
    campaigns.add(
        store, name="load", before="0.28.0", after="0.29.0", runner="simulated", hunts=1,
        priority=0, budget_executions=None, budget_seconds=None, daily_cap=20, canary=False,
        options={},
    )  # fmt: skip
    rng = Random(1)
    hunt = writes.start_hunt(store, *PAIR, 1, {}, campaign_id=1)
    shared_corpus.add(store, *PAIR, (generate(rng) for _ in range(options.corpus)))
    for number in range(options.findings):
        for _ in range(writes.KEPT_OCCURRENCES):
            sight(store, hunt, number, generate(rng))


def _loads(options: argparse.Namespace, url: str, workers: int) -> list[Load]:
    count = min(PROCESSES, workers)
    shares = [workers // count + (number < workers % count) for number in range(count)]
    return [
        Load(url, share, options.time, options.sightings, options.additions, options.findings,
             f"process{number}")
        for number, share in enumerate(shares)
    ]  # fmt: skip


def _activity(store: Store, server: Server) -> Row:
    card = server.folder / "data" / "postmaster.pid"
    family = descendants(int(card.read_text().split()[0]))
    with store.read() as session:
        row = session.execute(text(ACTIVITY)).mappings().one()
    return {"at": time.monotonic(), "cpu": cpu_seconds(family), **row}


def _row(waits: dict[str, list[float]], before: Row, after: Row) -> Row:
    wall = after["at"] - before["at"]
    used = {name: float(after[name] - before[name]) / wall for name in ("cpu", "commits", "wal")}
    every = [value for values in waits.values() for value in values]
    late = sum(value >= LATE_SECONDS for value in every)
    return {
        "commits_per_second": round(used["commits"], 1),
        "server_cores": round(used["cpu"], 3),
        "wal_kb_per_second": round(used["wal"] / 1024, 1),
        "growth_kb_per_second": round(float(after["size"] - before["size"]) / wall / 1024, 1),
        "late": round(late / len(every), 4),
        "median_ms": {
            name: round(1000 * statistics.median(values), 2)
            for name, values in sorted(waits.items())
        },
        "p99_ms": round(1000 * statistics.quantiles(every, n=100)[98], 1),
    }  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[100, 300, 1000])
    parser.add_argument("--time", type=float, default=60.0)
    parser.add_argument("--sightings", type=float, default=10.4)
    parser.add_argument("--additions", type=float, default=0.18)
    parser.add_argument("--findings", type=int, default=20)
    parser.add_argument("--corpus", type=int, default=2000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for workers in options.workers:
        rows.append(_measure(options, workers))
        print(json.dumps(rows[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
