"""Nouns: KV spec, simulated layer, group order.

One simulated layer stands for each KV group of the scenario; vLLM groups the layers itself, and
tells the order of its groups, which is that of a request's block tables.
"""

import dataclasses
from typing import Any

from schedfuzz.corpus.parts import Group
from schedfuzz.corpus.scenario import Engine
from schedfuzz.workers.target.seam import Unsupported

LAYER = "layer."
# Bytes of a token in an attention layer: key and value, one head of 8 float32 each.
TOKEN_BYTES = 2 * 8 * 4


def spec_of(cls: Any, **values: Any) -> Any:
    """Return a KV spec with those of `values` that this release's class has."""
    known = {field.name for field in dataclasses.fields(cls)}
    return cls(**{name: value for name, value in values.items() if name in known})


def kv_specs(engine: Engine, block_size: int) -> dict[str, Any]:
    """Return the KV spec of each simulated layer by its name."""
    groups = list(enumerate(engine.groups or (Group("full"),)))
    # A drafter's layer is the last one by vLLM's reckoning, and drafters have no mamba layers.
    groups.sort(key=lambda pair: pair[1].kind != "mamba")
    specs = {f"{LAYER}{index}": _spec(engine, group, block_size) for index, group in groups}
    if engine.model == "encoder-decoder":
        specs[f"{LAYER}{len(groups)}"] = _cross_spec(block_size)
    return specs


def _attention(block_size: int) -> dict[str, Any]:
    import torch

    return {
        "block_size": block_size, "num_kv_heads": 1, "head_size": 8, "head_size_v": 8,
        "dtype": torch.float32,
    }  # fmt: skip


def _cross_spec(block_size: int) -> Any:
    from vllm.v1.kv_cache_interface import CrossAttentionSpec

    return spec_of(CrossAttentionSpec, **_attention(block_size))


def _spec(engine: Engine, group: Group, block_size: int) -> Any:
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, SlidingWindowSpec

    if group.kind == "mamba":
        return spec_of(
            MambaSpec, block_size=block_size, shapes=((2, 8),), dtypes=(torch.float32,),
            page_size_padded=block_size * TOKEN_BYTES, mamba_cache_mode="align",
            num_speculative_blocks=engine.num_speculative_tokens,
            num_prefill_checkpoint_blocks=int(engine.prefill_checkpoint_alignment > 0),
            prefill_checkpoint_alignment=engine.prefill_checkpoint_alignment or None,
        )  # fmt: skip
    attention = _attention(block_size)
    if group.kind == "sliding_window":
        return spec_of(SlidingWindowSpec, sliding_window=group.window, **attention)
    return spec_of(FullAttentionSpec, **attention)


def group_order(engine: Engine, groups: list[Any]) -> list[int]:
    """Return the index of our group for each of vLLM's. Raises Unsupported if it merged some."""
    names = [group.layer_names for group in groups]
    if any(len(layers) != 1 for layers in names):
        raise Unsupported("engine.groups")
    return [int(layers[0].removeprefix(LAYER)) for layers in names]
