"""Nouns: prefill checkpoint, place.

A mamba backend may save a state on its way through a chunk, in the column before that of the
running state, so that a chunk need not end where a prefix hit may resume. Where it does so is the
worker's rule, which scheduler and manager derive for themselves: the release's own is asked.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from schedfuzz.workers.target.rows import Row

# A row -> the tokens after which the state stands that it saves, and its column; None for none.
Place = Callable[[Row], tuple[int, int] | None]


@functools.cache
def places() -> Callable[..., Any] | None:
    """Return the release's rule for rows of tokens, None where backends save nothing on the way."""
    try:
        from vllm.model_executor.layers.mamba import checkpoint
    except ImportError:
        return None
    return checkpoint.compute_mamba_prefill_checkpoints


def placing(config: Any, kv_config: Any, alignment: int, block_size: int) -> Place:
    """Return where the workers of a VllmConfig and its KVCacheConfig save a row's checkpoint."""
    rule = places()
    assert rule is not None
    speculative = config.speculative_config
    hashed = config.cache_config.prefix_match_unit or block_size
    values = {
        "hash_block_size": getattr(kv_config, "hash_block_size", None) or hashed,
        "mamba_block_size": block_size,
        "checkpoint_alignment": alignment,
        "drop_eagle_block": speculative is not None and speculative.use_eagle_block_drop(),
        "cache_hit_alignment_tokens": getattr(kv_config, "cache_hit_alignment_tokens", None),
    }
    known = inspect.signature(rule).parameters
    values = {name: value for name, value in values.items() if name in known}

    def place(row: Row) -> tuple[int, int] | None:
        if row.drafts or row.end - row.start == 1:
            return None  # a decode
        (offset,), (column,) = rule([row.end], [row.end - row.start], **values)
        return (row.start + offset, column) if offset else None

    return place
