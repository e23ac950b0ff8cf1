"""Nouns: picture, gallery, row.

How large pictures are and where they stand, for all dimensions that have an encoder.
"""

from random import Random
from typing import Any

from msgspec.structs import replace

from schedfuzz.corpus.parts import Image
from schedfuzz.corpus.relations import V2_METHODS
from schedfuzz.corpus.request_relations import most_image
from schedfuzz.corpus.scenario import Engine
from schedfuzz.corpus.sizing import least_token_budget

GALLERY = 5


def encoder_shape(rng: Random, engine: Engine) -> Engine:
    """Return the engine with a small encoder, and often with steps that cut a picture."""
    size = min(rng.choice((4, 8, 12, 16, 20, 24, 32, 40)), max(4, engine.max_model_len // 3))
    changes: dict[str, Any] = {
        "encoder_cache_size": size,
        "max_num_encoder_input_tokens": max(2, size + rng.choice((0, 0, 0, -1, -3, 8, size))),
        "disable_chunked_mm_input": rng.random() < 0.15,
    }
    if rng.random() < 0.6:
        share = size + rng.choice((-3, -1, 0, 1, 2, 5, engine.block_size))
        changes["max_num_batched_tokens"] = max(share, least_token_budget(engine))
    elif rng.random() < 0.5:  # shares end where others get theirs in the same step
        share = rng.choice((size, size + 1, engine.block_size))
        changes["long_prefill_token_threshold"] = max(share, engine.num_speculative_tokens + 1)
        changes["policy"] = rng.choice(("fcfs", "priority"))
    return replace(engine, **changes)


def length_of(engine: Engine, item: int) -> int:
    """Return the length of a picture of the gallery: what fits alone, twice, thrice."""
    most = most_image(engine)
    shares = (most, most // 2, most // 2 + 1, most // 3, most - most // 3)
    return max(1, shares[item % len(shares)])


def row(
    rng: Random, engine: Engine, length: int, items: list[int], start: int | None = None
) -> tuple[Image, ...]:
    """Return pictures one after the other, as many as fit into a prompt of `length` tokens.

    They touch, or leave a token or two, or begin near a block's edge.
    """
    size = engine.block_size
    offset = rng.choice((0, 1, 3, size - 2, size, size + 3)) if start is None else start
    # A drafter that reads ahead needs both of two pictures that touch: vLLM then waits for ever in
    # a narrow cache, on every release up to 0.32.0. Seen often enough, it hides what else happens.
    apart = engine.spec_method in V2_METHODS and rng.random() < 0.9
    images: list[Image] = []
    for item in items:
        pixels = length_of(engine, item)
        if offset + pixels > length:
            break
        images.append(Image(offset, pixels, item))
        offset += pixels
        to_edge = -offset % size
        gap = rng.choice((0, 0, 1, 2, 3, 7, max(0, to_edge - 1), to_edge, to_edge + 1))
        offset += max(gap, 2) if apart else gap
    return tuple(images)
