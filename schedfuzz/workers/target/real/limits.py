"""Nouns: what the real runner cannot play.

Each entry names the field that a pair then leaves out, with the one value that is possible where it
is not the default.
"""

from collections.abc import Callable

from schedfuzz.corpus.scenario import Engine, Scenario
from schedfuzz.workers.target.seam import Unsupported

# vLLM's CPU attention kernels take whole multiples of this many tokens (0.29.0 on).
KERNEL_BLOCK = 32

_LIMITS: tuple[tuple[str, Callable[[Engine], bool]], ...] = (
    (f"engine.block_size {KERNEL_BLOCK}", lambda e: e.block_size % KERNEL_BLOCK > 0),
    ("engine.model", lambda e: e.model != "autoregressive"),
    ("engine.canvas_length", lambda e: e.canvas_length > 0),
    ("engine.groups", lambda e: any(group.kind == "mamba" for group in e.groups)),
    ("engine.prefix_match_unit", lambda e: e.prefix_match_unit > 0),
    ("engine.pipeline_parallel_size", lambda e: e.pipeline_parallel_size > 1),
    ("engine.encoder_cache_size", lambda e: e.encoder_cache_size > 0),
    ("engine.max_loras", lambda e: e.max_loras > 0),
    ("engine.connector", lambda e: e.connector is not None),
    ("engine.ec_connector", lambda e: e.ec_connector),
    ("engine.spec_method", lambda e: e.spec_method not in ("draft_model", "ngram")),
)


def check(scenario: Scenario) -> None:
    """Raise Unsupported with the first field that the real runner has no way to play."""
    for name, exceeds in _LIMITS:
        if exceeds(scenario.engine):
            raise Unsupported(name)
