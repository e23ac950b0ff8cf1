"""Nouns: wishes, tenants: what clients want of the sampler: allowed tokens, bad words, penalties.

A runner keeps a row of wishes for each request of its batch. Rows move when a request leaves, so
what matters is who shares a batch with whom, and in which order they come and go.
"""

from collections.abc import Sequence
from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.events import Abort, Event
from schedfuzz.corpus.parts import Sampling
from schedfuzz.corpus.scenario import Engine, Prompt, Request
from schedfuzz.fuzzer.draft import Draft
from schedfuzz.fuzzer.edges import Fragment
from schedfuzz.fuzzer.motifs import random_accept
from schedfuzz.fuzzer.repair import clamp

RULES = 3  # few, so that some requests want the same
DRESSED = 0.5  # of the requests want something


def random_wishes(rng: Random) -> Sampling:
    """Return wishes of one kind, or of two."""
    wishes = Sampling()
    for _ in range(rng.choice((1, 1, 2))):
        match rng.randrange(5):
            case 0:
                wishes = replace(wishes, allowed=rng.randint(1, RULES))
            case 1:
                wishes = replace(wishes, bad_words=rng.randint(1, RULES))
            case 2:
                wishes = replace(wishes, presence_penalty=rng.randint(1, 2))
            case 3:
                wishes = replace(wishes, frequency_penalty=rng.randint(1, 2))
            case _:
                wishes = replace(wishes, repetition_penalty=2)
    return wishes


def dress_wishes(rng: Random, engine: Engine, request: Request) -> Request:
    """Return the request, half of the time with wishes, if it has none."""
    if request.sampling is not None or rng.random() > DRESSED:
        return request
    return replace(request, sampling=random_wishes(rng))


def has_wishes(requests: Sequence[Request], events: Sequence[Event]) -> bool:
    """Return whether a story's clients want something of the sampler."""
    return any(request.sampling is not None for request in requests)


def change_wishes(draft: Draft, rng: Random) -> None:
    """Deal one request other wishes, or none."""
    index, request = draft.pick(rng)
    wishes = None if request.sampling and rng.random() < 0.4 else random_wishes(rng)
    draft.requests[index] = replace(request, sampling=wishes)


def exchange_wishes(draft: Draft, rng: Random) -> None:
    """Let two requests exchange what they want."""
    draft.exchange(rng, "sampling")


def tenants(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """Short requests with and without wishes share a batch, leave it in any order and make room
    for others."""
    seats = clamp(engine.max_num_seqs, 2, 5)
    count = rng.randint(2, seats)
    requests = []
    events: list[Event] = []
    for index in range(count + rng.randint(1, 3)):
        arrival = step + (rng.randint(0, 1) if index < count else rng.randint(2, 8))
        length = clamp(rng.randint(1, engine.block_size + 1), 1, engine.max_model_len - 1)
        outputs = clamp(rng.randint(1, 12), 1, engine.max_model_len - length)
        wishes = random_wishes(rng) if rng.random() < DRESSED else None
        requests.append(
            Request(
                number + index, Prompt(length, rng.randint(3, 6)), outputs, arrival,
                accept=random_accept(rng, engine), sampling=wishes,
            )
        )  # fmt: skip
        if rng.random() < 0.25:
            at = arrival + rng.randint(1, outputs + 1)
            events.append(Abort(at, number + index, rng.random() < 0.5))
    return requests, events
