"""Nouns: time to a finding.

Hunts a pair from an empty corpus, once per seed on targets that are already running, until a
finding of the named rule is sighted. Prints a row per seed, then median and range.

    .venv/bin/python bench/time_to_find.py 0.28.0 0.29.0 past-max-model-len [--seeds 10]
        [--time 180] [--json FILE]
"""

import tempfile
from pathlib import Path

from measuring import Row, alone, parse, per_seed

from schedfuzz.bench.summary import spread
from schedfuzz.bench.trial import Memory, hunt_plan
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Verdict
from schedfuzz.fuzzer.hunt import Hunt
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.targets import parse_target


def main() -> None:
    """Measure one hunt per seed."""
    options = parse(__doc__, "rule", seeds=10, seconds=180.0)
    targets = parse_target(options.before), parse_target(options.after)
    with Pair(*targets, Home.locate(), print) as pair:

        def measure(seed: int) -> Row:
            row = alone(lambda: hunt(pair, options.rule, seed, options.time))
            print(row, flush=True)
            return row

        rows = per_seed(options, measure)
    found = [row for row in rows if row["found"]]
    print(f"found by {len(found)} of {len(rows)} seeds")
    for unit in ("seconds", "executions") if found else ():
        median, least, most = spread([row[unit] for row in found]) or (0.0, 0.0, 0.0)
        print(f"{unit}: median {median:.1f}, range {least}-{most}")


def hunt(pair: Pair, rule: str, seed: int, seconds: float) -> Row:
    """Hunt with one seed until the rule is sighted or the time is up."""
    hit: list[tuple[int, float]] = []

    def sighted(
        verdict: Verdict, scenario: Scenario, finding: int, execution: int, seconds: float
    ) -> None:
        if verdict.rule == rule:
            hit.append((execution, seconds))

    with tempfile.TemporaryDirectory() as scratch:
        plan = hunt_plan(Path(scratch), seed, seconds)
        hunt = Hunt(pair.run, Memory(sighted), plan, lambda totals: None, lambda: bool(hit))
        totals = hunt.run_guided()
    executions, found_at = hit[0] if hit else (totals.executions, totals.seconds)
    return {
        "seed": seed, "found": bool(hit), "executions": executions, "seconds": round(found_at, 2),
    }  # fmt: skip


if __name__ == "__main__":
    main()
