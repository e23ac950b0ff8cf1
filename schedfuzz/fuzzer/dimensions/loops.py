"""Nouns: loop: a model that repeats itself, and a client who asks vLLM to notice."""

from collections.abc import Sequence
from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.events import Event
from schedfuzz.corpus.parts import Repetition
from schedfuzz.corpus.scenario import Engine, Prompt, Request
from schedfuzz.fuzzer.dimensions.dimension import Dimension, never, unshaped
from schedfuzz.fuzzer.draft import Draft
from schedfuzz.fuzzer.edges import Fragment
from schedfuzz.fuzzer.motifs import random_accept, random_request
from schedfuzz.fuzzer.repair import clamp


def _loop(rng: Random) -> Repetition:
    """Return a loop with limits around its period: what is found at once, late, or not at all."""
    period = rng.choice((1, 1, 2, 2, 3, 4))
    most = clamp(period + rng.choice((-1, 0, 0, 0, 1, 3)), 1, 64)
    least = rng.choice((0, 0, 0, 1, period, most))
    return Repetition(rng.randint(0, 5), period, most, rng.choice((2, 2, 2, 3, 4)), least)


def _dress(rng: Random, engine: Engine, request: Request) -> Request:
    if rng.random() < 0.4:
        return request
    return replace(request, repetition=_loop(rng))


def _has_loops(requests: Sequence[Request], events: Sequence[Event]) -> bool:
    return any(request.repetition is not None for request in requests)


def _found(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A loop is noticed just before, at or after the last token that may be said."""
    loop = _loop(rng)
    whole = loop.start + loop.period * loop.min_count
    wanted = max(1, whole + rng.choice((-1, 0, 0, 1, 4)))
    length = clamp(rng.randint(1, 2 * engine.block_size), 1, max(1, engine.max_model_len - wanted))
    if rng.random() < 0.3:
        length = max(1, engine.max_model_len - wanted)
    least = rng.choice((0, 0, 1, whole - 1, whole, whole + 1, wanted))
    looping = Request(
        number, Prompt(length, 7), clamp(wanted, 1, engine.max_model_len), step,
        accept=random_accept(rng, engine), min_tokens=clamp(least, 0, wanted), repetition=loop,
    )  # fmt: skip
    return [looping, random_request(rng, engine, number + 1, step + rng.randint(0, 3))], []


def change_loop(draft: Draft, rng: Random) -> None:
    """Give a request another loop, or none."""
    index, request = draft.pick(rng)
    loop = _loop(rng) if rng.random() < 0.85 else None
    draft.requests[index] = replace(request, repetition=loop)


LOOPS = Dimension("loops", 2, unshaped, never, _dress, (_found,), (change_loop,), _has_loops)
