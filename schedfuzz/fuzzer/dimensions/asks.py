"""Nouns: stops, minimum outputs, logprobs: what a client asks for beside max_tokens."""

from collections.abc import Sequence
from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.events import Event, ResetPrefixCache
from schedfuzz.corpus.scenario import Engine, Prompt, Request
from schedfuzz.fuzzer.draft import Draft
from schedfuzz.fuzzer.edges import Fragment
from schedfuzz.fuzzer.motifs import random_accept, random_request
from schedfuzz.fuzzer.repair import clamp


def dress_stops(rng: Random, engine: Engine, request: Request) -> Request:
    """Return the request, mostly with a stop, sometimes with a minimum of outputs around it."""
    if rng.random() < 0.3:
        return request
    few = min(request.max_tokens, 12)
    stop = rng.randint(0, few) if rng.random() < 0.85 else None
    least = rng.choice((0, 0, 0, 1, few, stop or 0, (stop or 0) + 1))
    return replace(request, stop_at=stop, min_tokens=least)


def has_stops(requests: Sequence[Request], events: Sequence[Event]) -> bool:
    """Return whether a story has a stop or a minimum."""
    return any(r.stop_at is not None or r.min_tokens for r in requests)


def change_stop(draft: Draft, rng: Random) -> None:
    """Set, move or take away a stop, or change the minimum."""
    index, request = draft.pick(rng)
    if rng.random() < 0.7:
        stop = rng.randint(0, min(request.max_tokens, 12)) if rng.random() < 0.8 else None
        draft.requests[index] = replace(request, stop_at=stop)
    else:
        least = rng.choice((0, 1, request.max_tokens, (request.stop_at or 0) + 1))
        draft.requests[index] = replace(request, min_tokens=least)


def least_at_the_limit(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A request that must say more tokens than max_model_len leaves room for, or just as many."""
    room = rng.randint(1, min(8, engine.max_model_len - 1))
    prompt = Prompt(engine.max_model_len - room, rng.randrange(3))
    wanted = clamp(room + rng.choice((-1, 0, 0, 1, 2)), 1, engine.max_model_len)
    stop = rng.randint(0, room) if rng.random() < 0.5 else None
    accept = random_accept(rng, engine)
    request = Request(number, prompt, wanted, step, accept=accept, min_tokens=wanted, stop_at=stop)
    return [request, random_request(rng, engine, number + 1, step)], []


def stopped_drafts(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """Requests stop within accepted drafts or while their next step is under way, twins follow."""
    stop = rng.randint(0, 6)
    length = rng.randint(1, max(1, min(2 * engine.block_size, engine.max_model_len - 2)))
    outputs = clamp(stop + rng.randint(1, 6), 1, engine.max_model_len)
    accept = (engine.num_speculative_tokens,)
    first = Request(number, Prompt(length, 5), outputs, step, accept=accept, stop_at=stop)
    later = step + rng.randint(1, stop + 4)
    twin = replace(first, id=number + 1, arrival=later, stop_at=rng.choice((None, stop + 1)))
    return [first, twin], []


# -- logprobs --------------------------------------------------------------------------------------


def dress_logprobs(rng: Random, engine: Engine, request: Request) -> Request:
    """Return the request, often asking for logprobs of its outputs or of its prompt."""
    prompt_too = not request.turns and rng.random() < 0.4
    turns = tuple(
        replace(turn, logprobs=rng.random() < 0.5) if turn.length else turn
        for turn in request.turns
    )
    asks = rng.random() < 0.6
    return replace(request, logprobs=asks, prompt_logprobs=prompt_too, turns=turns)


def has_logprobs(requests: Sequence[Request], events: Sequence[Event]) -> bool:
    """Return whether a story asks for logprobs."""
    return any(
        r.logprobs or r.prompt_logprobs or any(t.logprobs for t in r.turns) for r in requests
    )


def change_logprobs(draft: Draft, rng: Random) -> None:
    """Ask for logprobs, or no more."""
    index, request = draft.pick(rng)
    if rng.random() < 0.6:
        draft.requests[index] = replace(request, logprobs=not request.logprobs)
    else:
        draft.requests[index] = replace(request, prompt_logprobs=not request.prompt_logprobs)


def told_in_chunks(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A cached prompt comes again with prompt logprobs, in chunks, with something in its way."""
    share = min(engine.max_num_batched_tokens, 2 * engine.block_size)
    length = clamp(share * rng.randint(1, 3) + rng.choice((-1, 0, 1)), 2, engine.max_model_len - 1)
    prompt = Prompt(length, 6)
    outputs = clamp(rng.randint(1, 5), 1, engine.max_model_len - length)
    first = Request(number, prompt, outputs, step, prompt_logprobs=rng.random() < 0.3)
    later = step + rng.randint(1, 6)
    again = Request(number + 1, prompt, outputs, later, prompt_logprobs=True, logprobs=True)
    requests = [first, again]
    if rng.random() < 0.6:
        requests.append(random_request(rng, engine, number + 2, later + rng.randint(-1, 2)))
    events: list[Event] = []
    if rng.random() < 0.4:
        events.append(ResetPrefixCache(later + rng.randint(0, 4), rng.random() < 0.7))
    return requests, events
