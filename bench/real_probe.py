"""Nouns: probe, rounding.

Run by a target's own interpreter: a long context on the real runner, without limits of time or
memory. Prints as JSON which device and attention kernel played it, and how far the sums that
attention gave back were from whole numbers: the checkable model needs less than a half.

    PYTHON bench/real_probe.py
"""

import json
import sys
from pathlib import Path
from typing import Any

_root = str(Path(__file__).resolve().parents[1])
sys.path.append(_root)
import schedfuzz  # noqa: E402, F401

sys.path.remove(_root)

from schedfuzz.corpus.codec import decode  # noqa: E402
from schedfuzz.workers.target.real import device  # noqa: E402

LONG = """{"engine":{"max_model_len":4096,"block_size":32,"num_blocks":300},"requests":[
    {"id":0,"prompt":{"length":4000,"shared":2000},"max_tokens":90},
    {"id":1,"prompt":{"length":3000,"shared":2000},"max_tokens":90,"arrival":20}]}"""


def main() -> None:
    """Play the long context and print what was seen."""
    device.settle()
    import torch

    from schedfuzz.workers.target import engine
    from schedfuzz.workers.target.drive import Drive, run
    from schedfuzz.workers.target.real.prepare import prepare
    from schedfuzz.workers.target.real.repetition import do_once

    engine.quiet()
    Drive.executor = prepare()
    do_once()
    seen: dict[str, Any] = {"torch": torch.__version__, "rounding": 0.0, "positions": 0}
    _watch(seen)
    trace = run(decode(LONG))
    seen |= {"outcome": trace.outcome, "broken": [found.detail for found in trace.violations]}
    print(json.dumps(seen))


def _watch(seen: dict[str, Any]) -> None:
    """Have the model note in `seen` what it is given back."""
    from schedfuzz.workers.target.real.model import CheckableModel

    say = CheckableModel._say

    def watched(model: Any, positions: Any, means: dict[int, Any]) -> Any:
        sums = means[0] * (positions + 1)[:, None]
        seen["rounding"] = max(seen["rounding"], float((sums - sums.round()).abs().max()))
        seen["positions"] += len(positions)
        seen["device"], seen["kernel"] = str(sums.device), type(model.attention[0].impl).__name__
        return say(model, positions, means)

    CheckableModel._say = watched  # type: ignore[assignment, method-assign]


main()
