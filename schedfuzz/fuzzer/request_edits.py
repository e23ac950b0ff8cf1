"""Nouns: edits of requests.

Lengths move relative to edges and arrivals relative to other requests, because a scheduler
compares; absolute random values almost never meet.
"""

from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.scenario import Prompt, Request
from schedfuzz.fuzzer.dimensions import active, dress, motifs
from schedfuzz.fuzzer.draft import SMALL_STEPS, Draft
from schedfuzz.fuzzer.edges import length_edges, near, window
from schedfuzz.fuzzer.motifs import MOTIFS, random_accept, random_outputs


def length_to_edge(draft: Draft, rng: Random) -> None:
    index, request = draft.pick(rng)
    length = near(rng, length_edges(draft.engine), window(draft.engine))
    _set_length(draft, index, request, length)


def nudge_length(draft: Draft, rng: Random) -> None:
    index, request = draft.pick(rng)
    width, size = window(draft.engine), draft.engine.block_size
    by = rng.choice((-1, 1, -2, 2, -width, width, -size, size))
    _set_length(draft, index, request, request.prompt.length + by)


def _set_length(draft: Draft, index: int, request: Request, length: int) -> None:
    prompt = request.prompt
    draft.requests[index] = replace(request, prompt=Prompt(length, prompt.family, prompt.shared))


def outputs_to_edge(draft: Draft, rng: Random) -> None:
    index, request = draft.pick(rng)
    outputs = random_outputs(rng, draft.engine, request.prompt.length)
    draft.requests[index] = replace(request, max_tokens=outputs)


def end_at_edge(draft: Draft, rng: Random) -> None:
    """Move the prompt so that prompt plus outputs end at an edge: the run stays as long."""
    index, request = draft.pick(rng)
    end = near(rng, length_edges(draft.engine), window(draft.engine))
    _set_length(draft, index, request, end - request.max_tokens)


def nudge_outputs(draft: Draft, rng: Random) -> None:
    index, request = draft.pick(rng)
    draft.requests[index] = replace(
        request, max_tokens=request.max_tokens + rng.choice(SMALL_STEPS)
    )


def nudge_arrival(draft: Draft, rng: Random) -> None:
    index, request = draft.pick(rng)
    draft.requests[index] = replace(request, arrival=request.arrival + rng.choice(SMALL_STEPS))


def arrival_to_moment(draft: Draft, rng: Random) -> None:
    index, request = draft.pick(rng)
    draft.requests[index] = replace(request, arrival=draft.moment(rng))


def shift_later_ones(draft: Draft, rng: Random) -> None:
    """Open or close a gap: everything from one moment on moves."""
    _, pivot = draft.pick(rng)
    by, since = rng.choice(SMALL_STEPS), pivot.arrival
    draft.requests = [
        replace(request, arrival=request.arrival + by) if request.arrival >= since else request
        for request in draft.requests
    ]
    draft.events = [
        replace(event, step=event.step + by) if event.step >= since else event
        for event in draft.events
    ]


def delete_request(draft: Draft, rng: Random) -> None:
    """Drop one request, or a third of a crowd: without it unguided stories only grow."""
    for _ in range(max(1, len(draft.requests) // 3) if rng.random() < 0.4 else 1):
        if len(draft.requests) > 1:
            index, _request = draft.pick(rng)
            del draft.requests[index]


def copy_request(draft: Draft, rng: Random) -> None:
    _, request = draft.pick(rng)
    arrival = request.arrival if rng.random() < 0.4 else draft.moment(rng)
    draft.requests.append(replace(request, id=draft.free_id(), arrival=arrival))


def split_request(draft: Draft, rng: Random) -> None:
    """Turn one request into two turns: the second's prompt continues the first's."""
    index, request = draft.pick(rng)
    if request.prompt.length < 2:
        return
    length = rng.randint(1, request.prompt.length - 1)
    family = request.prompt.family
    draft.requests[index] = replace(request, prompt=Prompt(length, family))
    later = request.arrival + rng.randint(0, 6)
    second = replace(request, id=draft.free_id(), arrival=later)
    draft.requests.append(second)


def share_prefix(draft: Draft, rng: Random) -> None:
    """Give a request the prefix of another, often with a tail of a few tokens of its own."""
    index, request = draft.pick(rng)
    _, other = draft.pick(rng)
    length = request.prompt.length
    if rng.random() < 0.7:
        size = draft.engine.block_size
        whole = other.prompt.length // size * size or other.prompt.length
        length = whole + rng.choice((0, 1, 1, 2, window(draft.engine), size))
    shared = None if rng.random() < 0.7 else min(length, other.prompt.length)
    draft.requests[index] = replace(request, prompt=Prompt(length, other.prompt.family, shared))


def own_prefix(draft: Draft, rng: Random) -> None:
    index, request = draft.pick(rng)
    length = request.prompt.length
    shared = rng.choice((None, 0, length // 2, near(rng, length_edges(draft.engine))))
    prompt = Prompt(length, int(rng.random() * 6), shared)
    draft.requests[index] = replace(request, prompt=prompt)


def change_accept(draft: Draft, rng: Random) -> None:
    index, request = draft.pick(rng)
    draft.requests[index] = replace(request, accept=random_accept(rng, draft.engine))


def change_priority(draft: Draft, rng: Random) -> None:
    index, request = draft.pick(rng)
    draft.requests[index] = replace(request, priority=rng.randint(-2, 2))
    if draft.engine.policy == "fcfs":
        draft.engine = replace(draft.engine, policy="priority")


def swap_order(draft: Draft, rng: Random) -> None:
    """Exchange two requests' ids: arrivals in one step are admitted in order of their ids."""
    draft.exchange(rng, "id")


def insert_motif(draft: Draft, rng: Random) -> None:
    on = active(draft.engine, draft.requests, draft.events)
    stories = (*MOTIFS, *motifs(on))
    requests, events = rng.choice(stories)(rng, draft.engine, 0, 0)
    requests = [dress(rng, on, draft.engine, request) for request in requests]
    draft.insert(requests, events, draft.moment(rng) if rng.random() < 0.7 else 0)
