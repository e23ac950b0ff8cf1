"""Nouns: real pair, simulated pair, memory.

What the real runner costs: the same scenarios on a release against itself, in turns on the real and
on the simulated runner, so that whatever else the machine does slows both. Prints a row for each
turn, then executions of a pair per second, the CPU time of one execution on one side (which a busy
machine changes less), the ratios of both, and the real workers' memory.

    .venv/bin/python bench/real_runner.py 0.32.0 [--runs 2000] [--seed 1] [--json FILE]
"""

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from measuring import megabytes

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
    row: Row = {"runs": len(scenarios)}
    for name, played in (("real", pair), ("simulated", reference)):
        row[f"{name}_seconds"], row[f"{name}_cpu_ms"] = _timed(scenarios, played)
    sides = (pair.before, pair.after)
    return row | {
        "megabytes": [megabytes(side.worker) for side in sides],
        "workers": [side.worker for side in sides],
    }


def _timed(scenarios: list[Scenario], pair: Pair) -> tuple[float, float]:
    """Return the seconds of the runs, and the CPU milliseconds of one on one side.

    Raises SystemExit if a release differs from itself.
    """
    cpu: list[float] = []
    start = time.perf_counter()
    for scenario in scenarios:
        before = _cpu_ms(pair.before.worker)
        found = judge(*pair.run(scenario))
        if found.verdict not in ("clean", "both", "infra"):
            raise SystemExit(f"{pair.before.target.name} differs from itself: {found}")
        after = _cpu_ms(pair.before.worker)
        if before[0] == after[0]:  # else a new worker came
            cpu.append(after[1] - before[1])
    return round(time.perf_counter() - start, 2), round(statistics.mean(cpu), 2)


def _cpu_ms(pid: int | None) -> tuple[int | None, float]:
    """Return the process and the CPU time that it has had, 0 if it is just being replaced."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return None, 0.0
    return pid, 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _figures(release: str, rows: list[Row]) -> Row:
    runs = sum(row["runs"] for row in rows)
    figures: Row = {"release": release, "runs": runs}
    for name in ("real", "simulated"):
        figures |= {
            f"{name}_per_second": round(runs / sum(row[f"{name}_seconds"] for row in rows), 2),
            f"{name}_cpu_ms": _median(row[f"{name}_cpu_ms"] for row in rows),
        }
    return figures | {
        "ratio": _median(row["real_seconds"] / row["simulated_seconds"] for row in rows),
        "cpu_ratio": _median(row["real_cpu_ms"] / row["simulated_cpu_ms"] for row in rows),
        "megabytes": [rows[0]["megabytes"], rows[-1]["megabytes"]],
        "workers": [len({row["workers"][side] for row in rows}) for side in (0, 1)],
    }


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 2)


if __name__ == "__main__":
    main()
