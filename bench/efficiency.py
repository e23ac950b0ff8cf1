"""Nouns: efficiency of a hunt.

Efficiency is the time that the slower target alone needs for the very scenarios of a hunt in a bare
loop, divided by the wall time of that hunt; both are measured here, in one run.

    .venv/bin/python bench/efficiency.py 0.28.0 0.29.0 [--time 60] [--seeds 3] [--json FILE]
"""

import statistics
import subprocess
import tempfile
from pathlib import Path

import msgspec
from measuring import Row, alone, parse, per_seed

from schedfuzz.bench.trial import hunt_plan
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace
from schedfuzz.db import writes
from schedfuzz.db.connect import open_store
from schedfuzz.fuzzer.hunt import Hunt
from schedfuzz.service.recorder import DatabaseRecorder
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.process import TargetProcess
from schedfuzz.workers.targets import parse_target

BARE_LOOP = Path(__file__).with_name("bare_loop.py")


def main() -> None:
    """Measure one hunt per seed and print a row each, then the median."""
    options = parse(__doc__, seeds=3, seconds=60.0)
    rows = per_seed(
        options, lambda seed: measure(options.before, options.after, options.time, seed)
    )
    values = [row["efficiency"] for row in rows]
    print(f"median efficiency {statistics.median(values):.2f}, "
          f"range {min(values):.2f}-{max(values):.2f}, {len(values)} seeds")  # fmt: skip


def measure(before: str, after: str, seconds: float, seed: int) -> Row:
    """Hunt with one seed, repeat its scenarios bare on each target, return the figures."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "scenarios.msgpack"
        pair = Pair(parse_target(before), parse_target(after), Home.locate(), print)
        with pair:
            hunted = alone(lambda: hunt(pair, Path(scratch), seconds, seed, file))
        bare = {side.target.name: bare_seconds(side, file) for side in (pair.before, pair.after)}
    efficiency = max(bare.values()) / hunted["wall"]
    print(f"seed {seed}: {hunted['runs']} runs of the pair in {hunted['wall']:.1f} s "
          f"({hunted['runs'] / hunted['wall']:.0f}/s), bare {bare}, "
          f"efficiency {efficiency:.2f}", flush=True)  # fmt: skip
    return {"seed": seed, **hunted, "bare": bare, "efficiency": efficiency}


def hunt(pair: Pair, scratch: Path, seconds: float, seed: int, file: Path) -> Row:
    """Hunt from an empty corpus and database; write every scenario run, reductions included."""
    ran: list[Scenario] = []
    run_pair = pair.run

    def remembering(scenario: Scenario) -> tuple[Trace, Trace]:
        ran.append(scenario)
        return run_pair(scenario)

    pair.run = remembering  # type: ignore[method-assign]
    store = open_store(f"sqlite:///{scratch / 'bench.db'}")
    number = writes.start_hunt(store, "before", "after", seed, {})
    recorder = DatabaseRecorder(store, number, "before", "after")
    plan = hunt_plan(scratch, seed, seconds)
    hunt = Hunt(pair.run, recorder, plan, lambda totals: None, lambda: False)
    counted = len(ran)
    totals = hunt.run_guided()
    file.write_bytes(msgspec.msgpack.encode(ran[counted:]))
    return {"executions": totals.executions, "runs": len(ran), "wall": totals.seconds}


def bare_seconds(side: TargetProcess, file: Path) -> float:
    """Return the seconds of the bare loop in the side's own environment."""
    environment = side.environment
    answer = subprocess.run(
        [str(environment.python), str(BARE_LOOP), str(file)],
        env=environment.variables(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(answer.stdout.split()[-1])


if __name__ == "__main__":
    main()
