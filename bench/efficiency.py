"""Nouns: efficiency of a hunt.

Efficiency is the time that the slower target alone needs for the very scenarios of a hunt in a bare
loop, divided by the wall time of that hunt; both are measured here, in one run.

    .venv/bin/python bench/efficiency.py 0.28.0 0.29.0 [--time 60] [--seeds 3] [--json FILE]
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from schedfuzz.cli.recorder import DatabaseRecorder
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace
from schedfuzz.db import queries
from schedfuzz.db.connect import open_store
from schedfuzz.fuzzer.hunt import Hunt, Plan
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.process import TargetProcess
from schedfuzz.workers.targets import parse_target

BARE_LOOP = Path(__file__).with_name("bare_loop.py")


def main() -> None:
    """Measure one hunt per seed and print a row each, then the median."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--time", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = [
        measure(options.before, options.after, options.time, seed)
        for seed in range(1, options.seeds + 1)
    ]
    values = [row["efficiency"] for row in rows]
    print(f"median efficiency {statistics.median(values):.2f}, "
          f"range {min(values):.2f}-{max(values):.2f}, {len(values)} seeds")  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


def measure(before: str, after: str, seconds: float, seed: int) -> dict[str, Any]:
    """Hunt with one seed, repeat its scenarios bare on each target, return the figures."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "scenarios.msgpack"
        pair = Pair(parse_target(before), parse_target(after), Home.locate(), print)
        with pair:
            hunted = in_child(lambda: hunt(pair, Path(scratch), seconds, seed, file))
        bare = {side.target.name: bare_seconds(side, file) for side in (pair.before, pair.after)}
    efficiency = max(bare.values()) / hunted["wall"]
    print(f"seed {seed}: {hunted['runs']} runs of the pair in {hunted['wall']:.1f} s "
          f"({hunted['runs'] / hunted['wall']:.0f}/s), bare {bare}, "
          f"efficiency {efficiency:.2f}", flush=True)  # fmt: skip
    return {"seed": seed, **hunted, "bare": bare, "efficiency": efficiency}


def hunt(pair: Pair, scratch: Path, seconds: float, seed: int, file: Path) -> dict[str, Any]:
    """Hunt from an empty corpus and database; write every scenario run, reductions included."""
    ran: list[Scenario] = []
    run_pair = pair.run

    def remembering(scenario: Scenario) -> tuple[Trace, Trace]:
        ran.append(scenario)
        return run_pair(scenario)

    pair.run = remembering  # type: ignore[method-assign]
    corpus = scratch / "corpus"
    corpus.mkdir()
    store = open_store(f"sqlite:///{scratch / 'bench.db'}")
    number = queries.start_hunt(store, "before", "after", seed, {})
    recorder = DatabaseRecorder(store, number, "before", "after")
    hunt = Hunt(pair, recorder, Plan([corpus], seed, seconds), lambda totals: None, lambda: False)
    counted = len(ran)
    totals = hunt.run_guided()
    file.write_bytes(msgspec.msgpack.encode(ran[counted:]))
    return {"executions": totals.executions, "runs": len(ran), "wall": totals.seconds}


def in_child(work: Any) -> dict[str, Any]:
    """Run `work` in a forked child: Atheris can be started once per process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            os.write(writer, json.dumps(work()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return dict(json.loads(text))


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
