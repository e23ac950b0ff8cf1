"""Nouns: generate, random engine, random story.

A random scenario is a small engine with its limits close together and a few motifs laid over each
other in time. Small limits make every edge reachable within a few steps, and steps are what a
campaign pays for.
"""

from collections.abc import Sequence
from random import Random

from schedfuzz.corpus.events import Event
from schedfuzz.corpus.scenario import Engine, Request, Scenario
from schedfuzz.corpus.sizing import blocks_for
from schedfuzz.fuzzer.dimensions import DIMENSIONS, active, choose, dress, motifs
from schedfuzz.fuzzer.dimensions.dimension import Dimension, undressed, untold
from schedfuzz.fuzzer.edges import Fragment, Motif, budget_edges, near, pool_edges
from schedfuzz.fuzzer.motifs import MOTIFS, random_request
from schedfuzz.fuzzer.repair import repair, repair_engine

MANY_REQUESTS = 8
OWN_SHARE = 0.65  # of the motifs, that are those of the dimensions that are on
# How many dimensions a fresh scenario has on: every pair of them meets now and then.
DIMENSIONS_ON = (0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3)


def generate(rng: Random, among: Sequence[Dimension] = DIMENSIONS) -> Scenario:
    """Return a random valid scenario: 1..8 requests, typically some 50 engine steps or fewer.

    The dimensions that it switches on are `among` those given.
    """
    engine = random_engine(rng)
    chosen = [choose(rng, among) for _ in range(rng.choice(DIMENSIONS_ON))]
    for dimension in chosen:
        engine = repair_engine(dimension.shape(rng, engine))
    on = active(engine)
    on += [dimension for dimension in chosen if dimension not in on]
    requests: list[Request] = []
    events: list[Event] = []
    step = 0
    for story in _plot(rng, chosen, motifs(on)):
        more, happenings = story(rng, engine, len(requests), step)
        if requests and len(requests) + len(more) > MANY_REQUESTS:
            break
        requests += more
        events += happenings
        # Mostly overlapping; a long gap lets the engine run dry and wake up again.
        step += rng.choice((0, 0, 1, 2, 3, 5, 8, 13, 25))
    dressed = tuple(dress(rng, on, engine, request) for request in requests)
    return repair(Scenario(engine, dressed, tuple(events)))


def _plot(rng: Random, chosen: list[Dimension], own: list[Motif]) -> list[Motif]:
    """Return the stories to tell, one of each chosen dimension that only a story shows."""
    plot = [
        rng.choice(dimension.motifs)
        for dimension in chosen
        if dimension.told is not untold and dimension.dress is undressed
    ]
    for _ in range(max(0, rng.choice((1, 1, 2, 2, 3)) - len(plot))):
        if rng.random() >= 0.75:
            plot.append(_stranger)
        else:
            plot.append(rng.choice(own if own and rng.random() < OWN_SHARE else MOTIFS))
    rng.shuffle(plot)
    return plot


def _stranger(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    return [random_request(rng, engine, number, step)], []


def random_engine(rng: Random) -> Engine:
    """Return a random valid engine, mostly with max_model_len 16..130."""
    size = rng.choice((16, 16, 16, 16, 16, 16, 8, 32))
    width = rng.choice((0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 8))
    shape = Engine(
        max_model_len=_limit(rng, size, width),
        num_blocks=2,
        block_size=size,
        max_num_seqs=rng.choice((1, 2, 2, 3, 3, 4, 4, 8, 8, 8)),
        chunked_prefill=rng.random() < 0.88,
        prefix_caching=rng.random() < 0.9,
        policy="priority" if rng.random() < 0.25 else "fcfs",
        async_scheduling=rng.random() < 0.5,
        num_speculative_tokens=width,
    )
    shape = repair_engine(shape)
    return repair_engine(
        Engine(
            max_model_len=shape.max_model_len,
            num_blocks=_pool(rng, shape),
            block_size=size,
            max_num_seqs=shape.max_num_seqs,
            max_num_batched_tokens=_budget(rng, shape),
            long_prefill_token_threshold=_threshold(rng, shape),
            chunked_prefill=shape.chunked_prefill,
            prefix_caching=shape.prefix_caching,
            policy=shape.policy,
            async_scheduling=shape.async_scheduling,
            num_speculative_tokens=width,
        )
    )


def _limit(rng: Random, size: int, width: int) -> int:
    """Return max_model_len: a few blocks and a small remainder, seldom long."""
    roll = rng.random()
    if roll < 0.6:
        most = max(1, 128 // size)
        remainder = rng.choice((0, 1, 2, width, width + 1, width + 2, -1))
        return rng.randint(1, most) * size + remainder
    if roll < 0.9:
        return rng.randint(16, 130)
    return rng.randint(130, 640)


def _pool(rng: Random, engine: Engine) -> int:
    """Return num_blocks: exact fits, pools under pressure, and ample ones."""
    if rng.random() < 0.6:
        return near(rng, pool_edges(engine))
    fit = blocks_for(engine.max_model_len, engine.block_size)
    return fit * rng.randint(2, 8) + rng.randint(0, 8)


def _budget(rng: Random, engine: Engine) -> int:
    """Return max_num_batched_tokens: half of the time the default, else near an edge."""
    return 256 if rng.random() < 0.5 else near(rng, budget_edges(engine))


def _threshold(rng: Random, engine: Engine) -> int:
    """Return long_prefill_token_threshold: mostly off."""
    if rng.random() < 0.8:
        return 0
    return rng.choice((1, 4, engine.block_size - 1, engine.block_size, engine.block_size + 1, 40))
