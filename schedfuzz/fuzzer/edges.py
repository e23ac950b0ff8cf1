"""Nouns: edge, length edges, output edges, pool edges, budget edges, near.

A scheduler is a set of comparisons, so the lengths that matter lie within a few tokens of a limit,
a block boundary, a budget or a draft window. Edges are values on those borders, all derived from
the engine; `near` picks one and steps off it by as little as a comparison can notice.
"""

from collections.abc import Callable, Sequence
from random import Random

from schedfuzz.corpus.events import Event
from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.corpus.sizing import least_blocks, least_token_budget

Fragment = tuple[list[Request], list[Event]]
# (random, engine, first id, first step) -> a story fragment
Motif = Callable[[Random, Engine, int, int], Fragment]

# Long engines have hundreds of block boundaries; the outer ones stand for all of them.
BOUNDARIES_EACH_END = 4


def window(engine: Engine) -> int:
    """Return the tokens of a decode step that verifies a full draft: 1 + K, or a canvas."""
    return engine.canvas_length or 1 + engine.num_speculative_tokens


def length_edges(engine: Engine) -> list[int]:
    """Return edge values, in tokens, for a prompt or a total length (1..max_model_len), sorted."""
    limit, size, width = engine.max_model_len, engine.block_size, window(engine)
    full = limit // size
    indices = range(1, full + 1)
    edges = {index * size for index in indices[:BOUNDARIES_EACH_END]}
    edges.update(index * size for index in indices[-BOUNDARIES_EACH_END:])
    edges.update((1, width, limit, limit - width, limit - 2 * width))
    edges.update(((limit - width) // size * size, (limit - width - 1) // size * size + 1))
    budget, usable = engine.max_num_batched_tokens, (engine.num_blocks - 1) * size
    edges.update((budget, budget - width, engine.long_prefill_token_threshold))
    edges.update((usable, usable // 2 // size * size, usable - size))
    edges.update(group.window for group in engine.groups)
    if engine.prefix_match_unit:
        unit = engine.prefix_match_unit
        edges.update((unit, size + unit, (limit - width) // unit * unit))
    return sorted(edge for edge in edges if 1 <= edge <= limit)


def output_edges(engine: Engine, length: int) -> list[int]:
    """Return edge values for max_tokens of a prompt of `length` tokens, sorted, all >= 1.

    They end the request exactly at max_model_len, a draft window short of it, or at the next
    block boundaries.
    """
    width, size = window(engine), engine.block_size
    room = engine.max_model_len - length
    boundary = -length % size or size
    edges = {1, 2, width, width + 1, room, room + 1, room - width, boundary, boundary + size}
    return sorted(edge for edge in edges if 1 <= edge <= room + 1)


def pool_edges(engine: Engine) -> list[int]:
    """Return edge values for num_blocks: pools that hold one, two, ... longest requests, sorted.

    The null block takes one; the pool without it, which fits the longest request only on paper,
    is within reach of `near`.
    """
    fit = least_blocks(engine)
    half, all_seats = fit + fit // 2 + 1, engine.max_num_seqs * fit + 1
    return sorted({fit + 1, fit + 2, half, 2 * fit, 2 * fit + 1, all_seats})


def budget_edges(engine: Engine) -> list[int]:
    """Return edge values for max_num_batched_tokens: seats, draft windows, blocks, the limit."""
    width, limit, size = window(engine), engine.max_model_len, engine.block_size
    least = least_token_budget(engine)
    edges = {least, engine.max_num_seqs * width, size, 2 * size, limit, limit + width, 256}
    return sorted(edge for edge in edges if edge >= least)


def near(rng: Random, edges: Sequence[int], width: int = 1) -> int:
    """Return one of `edges`, half the time off by one, two or `width` tokens (may be <= 0)."""
    edge = edges[int(rng.random() * len(edges))]
    if rng.random() < 0.5:
        return edge
    return edge + rng.choice((-1, 1, -2, 2, -width, width))
