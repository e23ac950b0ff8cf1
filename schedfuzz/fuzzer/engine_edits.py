"""Nouns: edits of events and of the engine.

Events move relative to the requests they hit. An engine edit other than `num_blocks` gives a new
shape, and a new shape costs a target a new configuration.
"""

from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.events import (
    Abort,
    Event,
    Pause,
    ResetPrefixCache,
    Resume,
    ThrottlePrefills,
)
from schedfuzz.fuzzer.draft import SMALL_STEPS, Draft
from schedfuzz.fuzzer.edges import budget_edges, near, pool_edges, window


def add_abort(draft: Draft, rng: Random) -> None:
    _, request = draft.pick(rng)
    step = request.arrival + rng.randint(0, min(request.max_tokens, 20) + 2)
    draft.events.append(Abort(step, request.id, rng.random() < 0.6))


def add_reset(draft: Draft, rng: Random) -> None:
    draft.events.append(ResetPrefixCache(draft.moment(rng), rng.random() < 0.7))


def delete_event(draft: Draft, rng: Random) -> None:
    if draft.events:
        del draft.events[int(rng.random() * len(draft.events))]


def move_event(draft: Draft, rng: Random) -> None:
    if draft.events:
        index = int(rng.random() * len(draft.events))
        event = draft.events[index]
        step = draft.moment(rng) if rng.random() < 0.3 else event.step + rng.choice(SMALL_STEPS)
        draft.events[index] = replace(event, step=step)


def flip_event(draft: Draft, rng: Random) -> None:
    if draft.events:
        index = int(rng.random() * len(draft.events))
        draft.events[index] = _flipped(draft.events[index])


def _flipped(event: Event) -> Event:
    match event:
        case Abort():
            return replace(event, in_flight=not event.in_flight)
        case ResetPrefixCache():
            return replace(event, preempt_running=not event.preempt_running)
        case Pause():
            return replace(event, clear_cache=not event.clear_cache)
        case Resume():
            return Pause(event.step)
        case ThrottlePrefills():
            return replace(event, steps=event.steps + 1)


def pool_to_edge(draft: Draft, rng: Random) -> None:
    draft.engine = replace(draft.engine, num_blocks=near(rng, pool_edges(draft.engine)))


def nudge_pool(draft: Draft, rng: Random) -> None:
    by = rng.choice(SMALL_STEPS)
    draft.engine = replace(draft.engine, num_blocks=draft.engine.num_blocks + by)


def change_limit(draft: Draft, rng: Random) -> None:
    """Move max_model_len onto what a request reaches, or by a small step."""
    _, request = draft.pick(rng)
    width, size = window(draft.engine), draft.engine.block_size
    total = request.prompt.length + rng.choice((1, width, width + 1, request.max_tokens))
    nudged = draft.engine.max_model_len + rng.choice((-1, 1, -width, width, -size, size))
    limit = total if rng.random() < 0.5 else nudged
    draft.engine = replace(draft.engine, max_model_len=limit)


def change_width(draft: Draft, rng: Random) -> None:
    width = rng.choice((0, 1, 1, 2, 3, 4, 5, 8))
    draft.engine = replace(draft.engine, num_speculative_tokens=width)


def change_budget(draft: Draft, rng: Random) -> None:
    budget = near(rng, budget_edges(draft.engine), window(draft.engine))
    draft.engine = replace(draft.engine, max_num_batched_tokens=budget)


def change_threshold(draft: Draft, rng: Random) -> None:
    size = draft.engine.block_size
    threshold = rng.choice((0, 0, 1, 4, size - 1, size, size + 1))
    draft.engine = replace(draft.engine, long_prefill_token_threshold=threshold)


def change_seats(draft: Draft, rng: Random) -> None:
    seats = rng.choice((1, 2, 3, len(draft.requests), len(draft.requests) - 1, 8))
    draft.engine = replace(draft.engine, max_num_seqs=seats)


def flip_async(draft: Draft, rng: Random) -> None:
    draft.engine = replace(draft.engine, async_scheduling=not draft.engine.async_scheduling)


def flip_switch(draft: Draft, rng: Random) -> None:
    engine = draft.engine
    roll = rng.random()
    if roll < 0.3:
        draft.engine = replace(engine, prefix_caching=not engine.prefix_caching)
    elif roll < 0.6:
        draft.engine = replace(engine, chunked_prefill=not engine.chunked_prefill)
    elif roll < 0.9:
        policy = "fcfs" if engine.policy == "priority" else "priority"
        draft.engine = replace(engine, policy=policy)
    else:
        draft.engine = replace(engine, block_size=rng.choice((8, 16, 32)))
