"""Nouns: feature, schedule shape, edge distance, pair.

A feature is a small integer that says "this run did something new". Next to the sites of vLLM's
scheduler code on both sides stand the shapes of the schedule (what kinds of request met in a step,
how near to which limit, with which dimension on) and, where the two sides part, the pair of their
shapes (delta-diversity: NEZHA, IEEE S&P 2017).
"""

from schedfuzz.corpus.order import DEFAULTS, SWITCHES
from schedfuzz.corpus.scenario import Engine, Scenario
from schedfuzz.corpus.trace import Scheduled, Step, Trace

MAP_SIZE = 1 << 16
SITES = 1 << 13  # per side
FIRST_HASHED = 1 + 2 * SITES
PATHS = {"new": 1, "running": 2, "resumed": 3, "turn": 4}

Shape = tuple[int, ...]


def features(scenario: Scenario, before: Trace, after: Trace) -> set[int]:
    """Return the hashed features of a run, each in FIRST_HASHED .. MAP_SIZE - 1."""
    engine = scenario.engine
    found: set[Shape] = set()
    same = before.steps == after.steps
    on = _dimensions(engine)
    for trace in (before,) if same else (before, after):
        story: Shape = ()
        for step in trace.steps:
            kinds = _kinds(step)
            found.add((1, engine.async_scheduling, *kinds))
            found.add((2, *story, *kinds[2:]))
            found.add((3, *kinds[1:4], *_pressure(engine, step)))
            found.update((7, dimension, *kinds[1:4]) for dimension in on)
            story = kinds[2:]
            for share in step.scheduled:
                found.add((4, engine.async_scheduling, *_near_limit(engine, share)))
                found.add((5, *_near_block(engine, share)))
    if not same:
        found.add((6, *_parting(before, after)))
    return {slot(key) for key in found}


def _dimensions(engine: Engine) -> list[int]:
    """Return which switches of the engine are not at their default, by number."""
    return [
        number
        for number, name in enumerate(SWITCHES)
        if getattr(engine, name) != getattr(DEFAULTS, name)
    ]


def _parting(before: Trace, after: Trace) -> Shape:
    """Return the pair of kinds of the first step in which the sides differ."""
    for one, two in zip(before.steps, after.steps, strict=False):
        if one != two:
            return (*_kinds(one), *_kinds(two))
    return ()


def slot(key: tuple[int, ...]) -> int:
    """Return the feature that a key of small integers is."""
    # The hash of a tuple of ints does not depend on the process, unlike that of a string.
    return FIRST_HASHED + hash(key) % (MAP_SIZE - FIRST_HASHED)


def _kinds(step: Step) -> Shape:
    """Return which kinds of request met: running, new, resumed, preempted, finished, aborted."""
    counts = [0] * (1 + len(PATHS))
    for share in step.scheduled:
        counts[PATHS[share.path]] += 1
    return (
        min(counts[2], 2),
        counts[1] + counts[4] > 0,
        counts[3] > 0,
        len(step.preempted) > 0,
        len(step.finished) > 0,
        len(step.events) > 0,
    )


def _pressure(engine: Engine, step: Step) -> Shape:
    """Return how short blocks, seats and queue are."""
    return (min(step.free_blocks, 2), step.running == engine.max_num_seqs, step.waiting > 0)


def _near_limit(engine: Engine, share: Scheduled) -> Shape:
    """Return how far a share ends from max_model_len, in tokens within a draft window of it."""
    room = engine.max_model_len - share.start - share.tokens
    window = 1 + engine.num_speculative_tokens
    return (PATHS[share.path], share.drafts > 0, min(max(room, -1), window + 1), share.sampled > 0)


def _near_block(engine: Engine, share: Scheduled) -> Shape:
    """Return how a share lies in its blocks, how long it is and how its drafts fared."""
    size = engine.block_size
    edge = (share.start + share.tokens) % size
    length = 0 if share.tokens == 1 else 1 + (share.tokens > size)
    fared = (share.sampled > 0) + (share.sampled > 1) + (share.sampled > share.drafts > 0)
    place = edge if edge < 2 else 2 + (edge == size - 1)
    return (PATHS[share.path], share.start % size == 0, place, length, share.drafts > 0, fared)
