"""Nouns: options, seeds, memory.

What the measuring scripts beside this file share: arguments, one hunt per seed, each in a process
of its own, and the memory of a process.
"""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from schedfuzz.bench.child import in_child
from schedfuzz.workers.home import Home

Row = dict[str, Any]


def parse(about: str, *names: str, seeds: int, seconds: float) -> argparse.Namespace:
    """Return the arguments: `before`, `after`, those of `names`, --time, --seeds and --json."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("before", "after", *names):
        parser.add_argument(name)
    parser.add_argument("--time", type=float, default=seconds)
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def per_seed(options: argparse.Namespace, measure: Callable[[int], Row]) -> list[Row]:
    """Return a row for each seed, written to the file that --json names."""
    rows = [measure(seed) for seed in range(1, options.seeds + 1)]
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    return rows


def alone(work: Callable[[], Row]) -> Row:
    """Return what `work` returns in a process of its own."""
    log = Home.locate().logs / "bench.log"
    [row] = in_child(lambda tell, stopping: tell(work()), log)
    return dict(row)


def megabytes(pid: int | None) -> int:
    """Return what a process holds of the memory, 0 for one that is just being replaced."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except FileNotFoundError:
        return 0
    return pages * os.sysconf("SC_PAGESIZE") >> 20
