"""Nouns: time to a finding.

Hunts a pair from an empty corpus, once per seed on targets that are already running, until a
finding of the named rule is sighted. Prints a row per seed, then median and range.

    .venv/bin/python bench/time_to_find.py 0.28.0 0.29.0 past-max-model-len [--seeds 10]
        [--time 180] [--json FILE]
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from efficiency import in_child

from schedfuzz.cli.recorder import DatabaseRecorder
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Verdict
from schedfuzz.db import queries
from schedfuzz.db.connect import open_store
from schedfuzz.fuzzer.hunt import Hunt, Plan
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.targets import parse_target


class Watching(DatabaseRecorder):
    """A recorder that notes the first sighting of a rule."""

    rule = ""
    hit: tuple[int, float] | None = None

    def sighting(
        self, verdict: Verdict, scenario: Scenario, steps: int, execution: int, seconds: float
    ) -> tuple[int, bool]:
        if verdict.rule == self.rule and self.hit is None:
            self.hit = execution, seconds
        return super().sighting(verdict, scenario, steps, execution, seconds)


def main() -> None:
    """Measure one hunt per seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("rule")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--time", type=float, default=180.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    targets = parse_target(options.before), parse_target(options.after)
    with Pair(*targets, Home.locate(), print) as pair:
        for seed in range(1, options.seeds + 1):
            row = in_child(lambda seed=seed: hunt(pair, options.rule, seed, options.time))
            print(row, flush=True)
            rows.append(row)
    for unit in ("seconds", "executions"):
        values = [row[unit] for row in rows if row["found"]]
        figures = f"median {statistics.median(values):.1f}, range {min(values)}-{max(values)}"
        print(f"{unit}: found {len(values)} of {len(rows)}, {figures}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


def hunt(pair: Pair, rule: str, seed: int, seconds: float) -> dict[str, Any]:
    """Hunt with one seed until the rule is sighted or the time is up."""
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Path(scratch) / "corpus"
        corpus.mkdir()
        store = open_store(f"sqlite:///{scratch}/bench.db")
        names = pair.before.target.name, pair.after.target.name
        recorder = Watching(store, queries.start_hunt(store, *names, seed, {}), *names)
        recorder.rule = rule
        plan = Plan([corpus], seed, seconds)
        session = Hunt(pair, recorder, plan, lambda totals: None, lambda: bool(recorder.hit))
        totals = session.run_guided()
    executions, found_at = recorder.hit or (totals.executions, totals.seconds)
    return {
        "seed": seed, "found": recorder.hit is not None, "executions": executions,
        "seconds": round(found_at, 2),
    }  # fmt: skip


if __name__ == "__main__":
    main()
