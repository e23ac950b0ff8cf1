"""Nouns: bare loop.

Run by a target's own interpreter: every scenario of a file on vLLM's engine with the simulated
runner and nothing else (no coverage, no pipe, no judge). Prints the seconds of the loop.

    PYTHON bench/bare_loop.py SCENARIOS.msgpack
"""

import sys
import time
from pathlib import Path

_root = str(Path(__file__).resolve().parents[1])
sys.path.append(_root)
import schedfuzz  # noqa: E402, F401

sys.path.remove(_root)

import msgspec  # noqa: E402

from schedfuzz.corpus.scenario import Scenario  # noqa: E402
from schedfuzz.workers.target import engine  # noqa: E402
from schedfuzz.workers.target.drive import run  # noqa: E402


def main() -> None:
    """Warm up on the first scenarios, then time the loop over all of them."""
    scenarios = msgspec.msgpack.decode(Path(sys.argv[1]).read_bytes(), type=tuple[Scenario, ...])
    engine.quiet()
    for scenario in scenarios[:5]:
        run(scenario)
    start = time.perf_counter()
    for scenario in scenarios:
        run(scenario)
    print(f"seconds {time.perf_counter() - start:.3f}")


main()
