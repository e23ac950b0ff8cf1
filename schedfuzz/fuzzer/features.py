"""Nouns: feature, schedule shape, edge distance, pair.

A feature is a small integer that says "this run did something new". Next to the sites of vLLM's
scheduler code on both sides stand the shapes of the schedule (what kinds of request met in a step,
how near to which limit) and, where the two sides part, the pair of their shapes (delta-diversity:
NEZHA, IEEE S&P 2017).
"""

from schedfuzz.corpus.scenario import Engine, Scenario
from schedfuzz.corpus.trace import Scheduled, Step, Trace

MAP_SIZE = 1 << 16
SITES = 1 << 13  # per side
FIRST_HASHED = 1 + 2 * SITES
PATHS = {"new": 1, "running": 2, "resumed": 3}

Shape = tuple[int, ...]


def features(scenario: Scenario, before: Trace, after: Trace) -> set[int]:
    """Return the hashed features of a run, each in FIRST_HASHED .. MAP_SIZE - 1."""
    found: set[int] = set()
    engine = scenario.engine
    same = before.steps == after.steps
    for trace in (before,) if same else (before, after):
        previous: Shape = ()
        for step in trace.steps:
            shape = _shape(engine, step)
            found.add(_slot((1, *shape)))
            found.add(_slot((2, *previous[:5], *shape[:5])))
            previous = shape
            for share in step.scheduled:
                found.add(_slot((3, *_edges(engine, share))))
    if not same:
        found.add(_slot((4, *_parting(engine, before, after))))
    return found


def _parting(engine: Engine, before: Trace, after: Trace) -> Shape:
    """Return the pair of shapes of the first step in which the sides differ."""
    for one, two in zip(before.steps, after.steps, strict=False):
        if one != two:
            return (*_shape(engine, one)[:6], *_shape(engine, two)[:6])
    return ()


def _slot(key: tuple[int, ...]) -> int:
    # The hash of a tuple of ints does not depend on the process, unlike that of a string.
    return FIRST_HASHED + hash(key) % (MAP_SIZE - FIRST_HASHED)


def _shape(engine: Engine, step: Step) -> Shape:
    """Return kinds of requests, preemptions and ends, drafts, pool, queue, events and mode."""
    counts = [0, 0, 0, 0]
    drafted = partly = chunk = 0
    for share in step.scheduled:
        counts[PATHS[share.path]] += 1
        drafted |= share.drafts > 0
        partly |= 0 < share.sampled <= share.drafts
        chunk |= share.sampled == 0
    return (
        counts[1] > 0,
        min(counts[2], 2),
        counts[3] > 0,
        len(step.preempted) > 0,
        len(step.finished) > 0,
        drafted + 2 * partly + 4 * chunk,
        min(step.free_blocks, 2),
        step.waiting > 0,
        len(step.events) > 0,
        engine.async_scheduling,
    )


def _edges(engine: Engine, share: Scheduled) -> tuple[int, ...]:
    """Return how near a share ends to max_model_len and to a block's edge, by kind of share."""
    end = share.start + share.tokens
    room = engine.max_model_len - end
    block = end % engine.block_size
    near_block = block if block < 2 else 2 + (block == engine.block_size - 1)
    window = 1 + engine.num_speculative_tokens
    return (
        PATHS[share.path],
        min(max(room, -1), window + 1) if room <= window + 1 else window + 2,
        near_block,
        share.tokens == 1,
        share.drafts > 0,
        share.sampled > 0,
        engine.async_scheduling,
    )
