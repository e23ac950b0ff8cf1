"""Nouns: real pair, simulated pair, memory.

What the real runner costs: the same scenarios on a release against itself, in turns on the real and
on the simulated runner, so that whatever else the machine does slows both. Prints a row for each
turn, then executions of a pair per second, their ratio, and the real workers' memory.

    .venv/bin/python bench/real_runner.py 0.32.0 [--runs 2000] [--seed 1] [--json FILE]
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from schedfuzz.corpus.scenario import Scenario
from schedfuzz.fuzzer.generate import generate
from schedfuzz.fuzzer.judge import judge
from schedfuzz.fuzzer.supported import Supported
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair, limit_of
from schedfuzz.workers.targets import Target, parse_target

TURN = 100  # executions
WARM = 10  # executions before the first turn is timed

Row = dict[str, Any]


def main() -> None:
    """Measure one release and print the figures."""
    options = _options()
    real = parse_target(options.release).on("real")
    rows = []
    with _pair(real) as pair, _pair(real.on("simulated")) as reference:
        scenarios = _scenarios(options.seed, pair)
        _turn([next(scenarios) for _ in range(WARM)], pair, reference)
        for start in range(0, options.runs, TURN):
            turn = [next(scenarios) for _ in range(min(TURN, options.runs - start))]
            rows.append(_turn(turn, pair, reference))
            print(rows[-1], flush=True)
    figures = _figures(options.release, rows)
    print(figures)
    if options.json:
        options.json.write_text(json.dumps(figures | {"turns": rows}, indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("release")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _pair(target: Target) -> Pair:
    return Pair(target, target, Home.locate(), lambda line: print(line, file=sys.stderr))


def _scenarios(seed: int, pair: Pair) -> Iterator[Scenario]:
    """Yield random scenarios that the real runner plays on this release; asking costs a run."""
    rng = random.Random(seed)
    supported = Supported(limit_of(pair.before.target, pair.after.target))
    while True:
        scenario = supported.fit(generate(rng))
        before, _ = pair.run(scenario)
        if before.outcome == "unsupported":
            supported.learn(before.reason)
        else:
            yield scenario


def _turn(scenarios: list[Scenario], pair: Pair, reference: Pair) -> Row:
    """Run the scenarios on both pairs; a worker's memory is resident megabytes."""
    return {
        "runs": len(scenarios),
        "real_seconds": round(_timed(scenarios, pair), 2),
        "simulated_seconds": round(_timed(scenarios, reference), 2),
        "megabytes": [_megabytes(side.worker) for side in (pair.before, pair.after)],
        "workers": [side.worker for side in (pair.before, pair.after)],
    }


def _timed(scenarios: list[Scenario], pair: Pair) -> float:
    """Return the seconds of the runs. Raises SystemExit if a release differs from itself."""
    start = time.perf_counter()
    for scenario in scenarios:
        found = judge(*pair.run(scenario))
        if found.verdict not in ("clean", "both", "infra"):
            raise SystemExit(f"{pair.before.target.name} differs from itself: {found}")
    return time.perf_counter() - start


def _megabytes(pid: int | None) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 >> 20


def _figures(release: str, rows: list[Row]) -> Row:
    runs = sum(row["runs"] for row in rows)
    real, simulated = (sum(row[f"{name}_seconds"] for row in rows) for name in
                       ("real", "simulated"))  # fmt: skip
    ratios = [row["real_seconds"] / row["simulated_seconds"] for row in rows]
    return {
        "release": release,
        "runs": runs,
        "real_per_second": round(runs / real, 2),
        "simulated_per_second": round(runs / simulated, 2),
        "ratio": round(statistics.median(ratios), 2),
        "ratio_range": [round(min(ratios), 2), round(max(ratios), 2)],
        "megabytes": [rows[0]["megabytes"], rows[-1]["megabytes"]],
        "workers": [len({row["workers"][side] for row in rows}) for side in (0, 1)],
    }


if __name__ == "__main__":
    main()
