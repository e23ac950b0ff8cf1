"""Nouns: group motifs: past the window, short tail, other depths, evicted between, siblings.

Stories in which KV groups come to disagree: about how much of a prefix is still there, about which
blocks a request still needs, about where a chunk has to end.
"""

from random import Random

from schedfuzz.corpus.events import Abort, Event, ResetPrefixCache
from schedfuzz.corpus.scenario import Engine, Prompt, Request
from schedfuzz.corpus.sizing import blocks_for
from schedfuzz.fuzzer.edges import Fragment, Motif, window
from schedfuzz.fuzzer.motifs import random_accept, random_request
from schedfuzz.fuzzer.repair import clamp


def _family(rng: Random) -> int:
    return 40 + rng.randrange(4)


def _request(
    rng: Random, engine: Engine, number: int, arrival: int, prompt: Prompt, outputs: int
) -> Request:
    """Return a request with as many of `outputs` tokens as fit."""
    length = clamp(prompt.length, 1, engine.max_model_len - 1)
    shared = None if prompt.shared is None else clamp(prompt.shared, 0, length)
    outputs = clamp(outputs, 1, engine.max_model_len - length)
    priority = 0 if engine.policy == "fcfs" else rng.randint(-2, 2)
    accept = random_accept(rng, engine)
    prompt = Prompt(length, prompt.family, shared)
    return Request(number, prompt, outputs, max(0, arrival), priority, accept)


def _unit(engine: Engine) -> int:
    """Return the tokens between two places where a prefix hit may end."""
    return engine.prefix_match_unit or engine.block_size


def _depth(rng: Random, engine: Engine) -> int:
    """Return a prefix length at or near a place where a hit may end."""
    step = _unit(engine) if rng.random() < 0.5 else engine.block_size
    most = max(1, (engine.max_model_len - 2) // step)
    depth = step * rng.randint(1, min(most, 6 * engine.block_size // step))
    return max(1, depth + rng.choice((0, 0, 0, 1, -1, engine.num_speculative_tokens)))


def past_the_window(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """Requests decode until their windows leave blocks behind, while others want these blocks."""
    windows = [group.window for group in engine.groups if group.window] or [engine.block_size]
    size, width = engine.block_size, window(engine)
    requests: list[Request] = []
    for index in range(rng.randint(1, 3)):
        length = rng.choice(windows) + rng.choice((-width, -1, 0, 1, size // 2, size))
        outputs = rng.randint(size // 2, size + 2 * width + 4)
        prompt = Prompt(max(1, length), _family(rng))
        arrival = step + rng.randint(0, 2) * index
        requests.append(_request(rng, engine, number + index, arrival, prompt, outputs))
    takers = rng.randint(0, 3)
    for _ in range(takers):
        length = size * rng.randint(1, 3) + rng.choice((-1, 0, 1))
        prompt = Prompt(length, _family(rng), rng.choice((None, 0, size)))
        arrival = step + rng.randint(1, size + 4)
        later = _request(rng, engine, number + len(requests), arrival, prompt, rng.randint(1, 6))
        requests.append(later)
    events: list[Event] = []
    if rng.random() < 0.3:
        events.append(ResetPrefixCache(step + rng.randint(2, size), rng.random() < 0.8))
    return requests, events


def short_tail(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """All of a prompt but a token is cached, short of a block boundary, while others decode."""
    size, width, unit = engine.block_size, window(engine), _unit(engine)
    boundary = size * rng.randint(1, max(1, min(4, engine.max_model_len // size)))
    hit = max(unit, boundary - unit * rng.choice((1, 1, 1, 0, 2)))
    family = _family(rng)
    tail = rng.choice((1, 1, 1, 1, 1, 0, 2))
    donor = hit + rng.choice((0, 1, 1, 1, tail, size))
    requests = [
        _request(rng, engine, number, step, Prompt(donor, family), rng.randint(1, 4)),
        _request(
            rng, engine, number + 1, step + rng.randint(0, 1),
            Prompt(rng.randint(1, size), 50), rng.randint(10, 20),
        ),
        _request(
            rng, engine, number + 2, step + rng.randint(3, 7), Prompt(hit + tail, family),
            rng.randint(1, 2 * width),
        ),
    ]  # fmt: skip
    events: list[Event] = []
    if rng.random() < 0.3:
        events.append(ResetPrefixCache(step + rng.randint(3, 10), rng.random() < 0.8))
    return requests, events


def other_depths(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A family whose members leave the common prefix at different depths, near where hits end."""
    family = _family(rng)
    requests = []
    for index in range(rng.randint(2, 5)):
        shared = _depth(rng, engine)
        own = rng.choice((0, 1, 2, engine.block_size, engine.block_size + 1))
        prompt = Prompt(shared + own, family, shared)
        arrival = step + index * rng.choice((0, 1, 2, 5))
        requests.append(
            _request(rng, engine, number + index, arrival, prompt, rng.choice((1, 2, 5)))
        )
    return requests, []


def evicted_between(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """Strangers evict a part of a cached prefix before its twins come back for it."""
    family, size = _family(rng), engine.block_size
    depth = _depth(rng, engine) + rng.choice((0, size))
    first = _request(
        rng, engine, number, step, Prompt(depth + rng.randint(0, 2), family), rng.randint(1, 5)
    )
    requests = [first]
    arrival = step + rng.randint(1, 6)
    usable = (engine.num_blocks - 1) // max(1, len(engine.groups))
    for _ in range(rng.randint(1, 2)):
        blocks = clamp(usable - blocks_for(depth, size) + rng.choice((-1, 0, 0, 1)), 1, usable)
        prompt = Prompt(blocks * size - rng.randint(0, 2), 54 + rng.randrange(2))
        requests.append(
            _request(rng, engine, number + len(requests), arrival, prompt, rng.randint(1, 4))
        )
        arrival += rng.randint(0, 6)
    for _ in range(rng.randint(1, 2)):
        shared = max(1, depth - rng.choice((0, 0, 0, size, _unit(engine))))
        prompt = Prompt(shared + rng.choice((0, 1, 1, 2, size)), family, shared)
        arrival += rng.randint(0, 3)
        requests.append(
            _request(rng, engine, number + len(requests), arrival, prompt, rng.randint(1, 4))
        )
    return requests, []


def siblings(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """Requests of one prefix run together and leave one by one, replaced by others."""
    size, family = engine.block_size, _family(rng)
    shared = size * rng.randint(1, max(1, min(3, engine.max_model_len // size - 1)))
    count = rng.randint(2, 4)
    requests = []
    for index in range(count):
        prompt = Prompt(shared + rng.randint(1, size), family, shared)
        arrival = step + rng.choice((0, 1, 1, 2)) * index
        requests.append(_request(rng, engine, number + index, arrival, prompt, rng.randint(1, 12)))
    events: list[Event] = []
    if rng.random() < 0.4:
        events.append(Abort(step + rng.randint(1, 8), number, rng.random() < 0.6))
    last = random_request(rng, engine, number + count, step + rng.randint(1, 9))
    return [*requests, last], events


GROUP_MOTIFS: tuple[Motif, ...] = (
    past_the_window, short_tail, other_depths, evicted_between, siblings,
)  # fmt: skip
