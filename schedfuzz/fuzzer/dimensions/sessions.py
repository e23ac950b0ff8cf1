"""Nouns: session, turn, and the edits of turns.

A session's hard moments are where one turn ends and the next begins: the input is there before the
stop, comes while the last step is in flight, or long after, and all of it near a block boundary or
the model's limit.
"""

from collections.abc import Sequence
from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.events import Event
from schedfuzz.corpus.parts import Turn
from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.fuzzer.draft import SMALL_STEPS, Draft
from schedfuzz.fuzzer.edges import window

# Two faults that every release known so far has would hide all others behind them.
OVERFLOW_SHARE = 0.02  # of sessions, that may grow beyond max_model_len
SYNC_DRAFTS_SHARE = 0.05  # of sessions, that may stop within accepted drafts without async
MOST_OUTPUTS = 8


def talk(rng: Random, engine: Engine, request: Request, turns: int, early: float) -> Request:
    """Return the request as a session of up to `turns` more turns that fit max_model_len.

    With a chance of `early` an input is there before the turn before it ends.
    """
    first = min(request.max_tokens, rng.randint(1, MOST_OUTPUTS))
    request = replace(request, max_tokens=first, prompt_logprobs=False)
    room = engine.max_model_len - request.prompt.length - first
    begin, outputs, ends = request.arrival, first, request.prompt.length + first
    found: list[Turn] = []
    for _ in range(turns):
        length = _length(rng, engine, ends)
        if length >= room:
            break
        step = _moment(rng, begin, outputs, early)
        outputs = first if rng.random() < 0.5 else rng.randint(1, MOST_OUTPUTS)
        outputs = min(outputs, room - length)
        found.append(_turn(rng, step, length, outputs, request))
        begin, ends, room = max(begin + 1, step), ends + length + outputs, room - length - outputs
    if rng.random() < 0.25:
        found.append(Turn(_moment(rng, begin, outputs, early), 0, 1))
    return fitted(rng, engine, replace(request, turns=tuple(found)))


def fitted(rng: Random, engine: Engine, request: Request) -> Request:
    """Return the session, mostly without what runs into known faults of every release."""
    if rng.random() >= OVERFLOW_SHARE:
        length, kept = request.prompt.length, 0
        most = request.max_tokens
        for turn in request.turns:
            length += most - 1 + turn.length
            if length >= engine.max_model_len:
                break
            most, kept = turn.max_tokens, kept + 1
        request = replace(request, turns=request.turns[:kept])
    if not engine.async_scheduling and rng.random() >= SYNC_DRAFTS_SHARE:
        request = replace(request, accept=(0,))
    return request


def _length(rng: Random, engine: Engine, ends: int) -> int:
    """Return the length of an input: short, or one that reaches a block boundary."""
    if rng.random() < 0.6:
        return rng.randint(1, 6)
    size = engine.block_size
    blocks = rng.choice((0, 0, 0, 1, 2))
    return max(1, -ends % size + blocks * size + rng.choice((-1, 0, 1, 2)))


def _moment(rng: Random, begin: int, outputs: int, early: float) -> int:
    """Return a step before, at or after the end of a turn of `outputs` tokens."""
    if rng.random() < early:
        return begin + rng.randint(1, outputs)
    return begin + outputs + rng.choice((-1, 0, 0, 1, 1, 2, 2, 3, 5, 12))


def _turn(rng: Random, step: int, length: int, outputs: int, request: Request) -> Turn:
    stop = rng.randint(0, outputs) if rng.random() < 0.3 else None
    logprobs = request.logprobs if rng.random() < 0.7 else not request.logprobs
    return Turn(step, length, outputs, stop, logprobs)


def dress_sessions(rng: Random, engine: Engine, request: Request) -> Request:
    """Return the request, half of the time as a session; a long prompt is cut to leave room."""
    if engine.model != "autoregressive" or request.turns or rng.random() < 0.5:
        return request
    limit = engine.max_model_len
    if limit - request.prompt.length < 8 and rng.random() < 0.8:
        length = max(1, limit // 3)
        shared = request.prompt.shared
        shared = None if shared is None else min(shared, length)
        request = replace(request, prompt=replace(request.prompt, length=length, shared=shared))
    return talk(rng, engine, request, rng.choice((1, 1, 2, 2, 3)), 0.4)


def has_sessions(requests: Sequence[Request], events: Sequence[Event]) -> bool:
    """Return whether a story has a session."""
    return any(request.turns for request in requests)


# -- edits -----------------------------------------------------------------------------------------


def _pick(draft: Draft, rng: Random) -> tuple[int, int] | None:
    """Return the indices of a random request with turns and of one of its turns."""
    found = [index for index, request in enumerate(draft.requests) if request.turns]
    if not found:
        return None
    index = rng.choice(found)
    return index, rng.randrange(len(draft.requests[index].turns))


def change_turn(draft: Draft, rng: Random) -> None:
    """Move, stretch or cut one turn."""
    picked = _pick(draft, rng)
    if picked is None:
        return
    index, at = picked
    request = draft.requests[index]
    turn = request.turns[at]
    match rng.randrange(5):
        case 0:
            turn = replace(turn, step=turn.step + rng.choice(SMALL_STEPS))
        case 1:
            by = rng.choice((-1, 1, -2, 2, draft.engine.block_size, window(draft.engine)))
            turn = replace(turn, length=turn.length + by)
        case 2:
            turn = replace(turn, max_tokens=turn.max_tokens + rng.choice((-2, -1, 1, 2, 4)))
        case 3:
            stop = None if turn.stop_at is not None else rng.randint(0, turn.max_tokens)
            turn = replace(turn, stop_at=stop)
        case _:
            turn = replace(turn, logprobs=not turn.logprobs)
    turns = (*request.turns[:at], turn, *request.turns[at + 1 :])
    draft.requests[index] = replace(request, turns=turns)


def add_turn(draft: Draft, rng: Random) -> None:
    """Let a request go on by one more turn, soon after the one before it."""
    index, request = draft.pick(rng)
    last = request.turns[-1].step if request.turns else request.arrival
    outputs = request.turns[-1].max_tokens if request.turns else request.max_tokens
    step = _moment(rng, last, min(outputs, MOST_OUTPUTS), 0.4)
    total = request.prompt.length + outputs
    turn = Turn(step, _length(rng, draft.engine, total), rng.randint(1, MOST_OUTPUTS))
    draft.requests[index] = replace(request, turns=(*request.turns, turn))


def drop_turn(draft: Draft, rng: Random) -> None:
    """Take one turn away."""
    picked = _pick(draft, rng)
    if picked is not None:
        index, at = picked
        request = draft.requests[index]
        turns = request.turns[:at] + request.turns[at + 1 :]
        draft.requests[index] = replace(request, turns=turns)
