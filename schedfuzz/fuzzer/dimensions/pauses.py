"""Nouns: pause, resume, throttle: what holds a whole engine back for a while."""

from collections.abc import Sequence
from random import Random
from typing import Literal

from schedfuzz.corpus.events import Abort, Event, Pause, ResetPrefixCache, Resume, ThrottlePrefills
from schedfuzz.corpus.scenario import Engine, Prompt, Request
from schedfuzz.fuzzer.draft import Draft
from schedfuzz.fuzzer.edges import Fragment
from schedfuzz.fuzzer.motifs import random_accept, random_request
from schedfuzz.fuzzer.repair import clamp


def has_pauses(requests: Sequence[Request], events: Sequence[Event]) -> bool:
    """Return whether a story pauses the engine."""
    return any(isinstance(event, Pause) for event in events)


def has_throttles(requests: Sequence[Request], events: Sequence[Event]) -> bool:
    """Return whether a story holds prefills back."""
    return any(isinstance(event, ThrottlePrefills) for event in events)


def _decoder(rng: Random, engine: Engine, number: int, step: int) -> Request:
    limit = engine.max_model_len
    length = rng.randint(1, max(1, min(2 * engine.block_size, limit - 4)))
    outputs = clamp(rng.randint(4, 14), 1, limit - length)
    accept = random_accept(rng, engine)
    priority = 0 if engine.policy == "fcfs" else rng.randint(-1, 1)
    return Request(number, Prompt(length, rng.randrange(3)), outputs, step, priority, accept)


def paused(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """Requests decode, the engine is paused under them, things happen meanwhile, it goes on."""
    count = rng.randint(1, 3)
    requests = [
        _decoder(rng, engine, number + index, step + rng.randint(0, 3)) for index in range(count)
    ]
    at = step + rng.randint(1, 8)
    mode: Literal["keep", "abort"] = "keep" if rng.random() < 0.75 else "abort"
    until = at + rng.randint(1, 6)
    events: list[Event] = [Pause(at, mode, rng.random() < 0.5)]
    events += _meanwhile(rng, number, count, at, until)
    if rng.random() < 0.5:
        arrival = rng.randint(at, until)
        requests.append(random_request(rng, engine, number + count, arrival))
    if rng.random() < 0.85:
        events.append(Resume(until))
        if rng.random() < 0.3:
            again = until + rng.randint(0, 3)
            events += [Pause(again, "keep", rng.random() < 0.5), Resume(again + rng.randint(0, 3))]
    return requests, events


def _meanwhile(rng: Random, number: int, count: int, at: int, until: int) -> list[Event]:
    """Return what happens while nothing is scheduled: at once, or when the engine has drained."""
    moment = rng.randint(at, until)
    roll = rng.random()
    if roll < 0.45:
        return [ResetPrefixCache(moment, rng.random() < 0.8)]
    if roll < 0.6:
        return [Abort(moment, number + rng.randrange(count))]
    return []


def throttled(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """Prefills are held back, now and then, while some requests decode and others want to start."""
    requests = [_decoder(rng, engine, number, step)]
    for index in range(1, rng.randint(2, 4)):
        arrival = step + rng.randint(0, 5)
        if rng.random() < 0.5:
            requests.append(random_request(rng, engine, number + index, arrival))
        else:
            requests.append(_decoder(rng, engine, number + index, arrival))
    at = step + rng.randint(0, 4)
    events: list[Event] = []
    for _ in range(rng.randint(1, 4)):
        steps = rng.choice((1, 1, 2, 3, 7))
        events.append(ThrottlePrefills(at, steps))
        at += steps + rng.randint(1, 3)
    return requests, events


def add_pause(draft: Draft, rng: Random) -> None:
    """Pause the engine for a few steps."""
    at = draft.moment(rng)
    mode: Literal["keep", "abort"] = "keep" if rng.random() < 0.8 else "abort"
    draft.events += [Pause(at, mode, rng.random() < 0.5), Resume(at + rng.randint(0, 5))]


def add_throttle(draft: Draft, rng: Random) -> None:
    """Hold prefills back for a few steps."""
    draft.events.append(ThrottlePrefills(draft.moment(rng), rng.choice((1, 1, 2, 4))))
