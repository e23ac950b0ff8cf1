"""Nouns: motifs of a KV connector.

A load holds blocks without making progress, and a handoff holds them after its request is gone: the
hard stories are those in which somebody else needs just these blocks.
"""

from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.events import Abort, Event
from schedfuzz.corpus.parts import External
from schedfuzz.corpus.scenario import Engine, Prompt, Request
from schedfuzz.corpus.sizing import blocks_for
from schedfuzz.fuzzer.edges import Fragment, Motif, window
from schedfuzz.fuzzer.motifs import random_accept
from schedfuzz.fuzzer.repair import clamp


def _family(rng: Random) -> int:
    return 10 + rng.randint(0, 5)


def _request(
    rng: Random, engine: Engine, number: int, step: int, length: int, script: External | None
) -> Request:
    """Return a request of a family of its own with a few outputs."""
    length = clamp(length, 1, engine.max_model_len - 1)
    room = engine.max_model_len - length
    outputs = clamp(rng.choice((1, 2, window(engine), 4, 8, room)), 1, min(room, 20))
    priority = rng.randint(-1, 1) if engine.policy == "priority" else 0
    accept = random_accept(rng, engine)
    prompt = Prompt(length, _family(rng) + 10 * number)
    return Request(number, prompt, outputs, step, priority, accept, external=script)


def _load(rng: Random, engine: Engine, number: int, step: int, length: int) -> Request:
    """Return a request whose prompt is loaded, all or nearly, in an async load."""
    length = clamp(length, 1, engine.max_model_len - 1)
    size = engine.block_size
    tokens = rng.choice((length, length, length - 1, length // size * size, length - size))
    script = External(max(1, tokens), True, steps=rng.choice((0, 1, 2, 3)), once=rng.random() < 0.5)
    return _request(rng, engine, number, step, length, script)


def loads_fill_the_pool(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """Two or three loads come at once that together take the pool to its last block or two."""
    usable, size = engine.num_blocks - 1, engine.block_size
    count = rng.choice((2, 2, 2, 3))
    fit = blocks_for(engine.max_model_len, size)
    left = usable - rng.choice((0, 0, 0, 1, 2))
    requests = []
    for index in range(count):
        share = left if index == count - 1 else clamp(left // (count - index), 1, fit)
        left -= share
        length = max(1, share) * size - rng.choice((0, 0, 0, 1, size // 2))
        arrival = step + (rng.randint(0, 2) if rng.random() < 0.3 else 0)
        requests.append(_load(rng, engine, number + index, arrival, length))
    return requests, []


def load_behind_a_giant(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A load takes blocks; who needs nearly all of them gets in front before it is complete."""
    usable, size, limit = engine.num_blocks - 1, engine.block_size, engine.max_model_len
    share = rng.randint(1, max(1, usable // 2))
    parked = _load(rng, engine, number, step, share * size - rng.choice((0, 1)))
    length = clamp((usable - rng.randint(0, share)) * size - rng.randint(0, 2), 1, limit - 1)
    later = External(0, asks_later=rng.choice((1, 2, 3, 5)))
    giant = _request(rng, engine, number + 1, step, length, later)
    if engine.policy == "priority":
        arrival, hurry = step + rng.randint(0, 3), replace(later, asks_later=rng.choice((0, 0, 1)))
        giant = replace(giant, arrival=arrival, priority=-2, external=hurry)
    elif rng.random() < 0.5:
        giant, parked = replace(giant, id=number), replace(parked, id=number + 1)
    return sorted([parked, giant], key=lambda request: request.id), []


def sent_while_needed(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A request ends near a block's boundary, its blocks are sent, and others want them."""
    size, limit = engine.block_size, engine.max_model_len
    length = clamp(rng.randint(1, 3) * size - rng.randint(0, window(engine) + 1), 1, limit - 1)
    script = External(0, send_steps=rng.choice((1, 2, 4, 8)))
    sender = _request(rng, engine, number, step, length, script)
    if rng.random() < 0.4:
        sender = replace(sender, stop_at=rng.randint(0, sender.max_tokens))
    end = step + rng.randint(1, sender.max_tokens + 2)
    big = (engine.num_blocks - 1) * size - rng.randint(0, 2 * size)
    follower = _request(rng, engine, number + 1, end, big, None)
    if rng.random() < 0.4:
        follower = replace(follower, prompt=sender.prompt)
    return [sender, follower], []


def leaves_while_loading(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A client leaves while its KV is on the way, and another wants the blocks or the prefix."""
    length = rng.randint(1, engine.max_model_len - 1)
    leaver = _load(rng, engine, number, step, length)
    script = leaver.external
    assert script is not None
    leaver = replace(leaver, external=replace(script, steps=rng.choice((2, 3, 5))))
    at = step + rng.randint(0, 4)
    events: list[Event] = [Abort(at, number, rng.random() < 0.4)]
    after = _load(rng, engine, number + 1, at + rng.randint(0, 2), length)
    if rng.random() < 0.5:
        after = replace(after, prompt=leaver.prompt)
    return [leaver, after], events


def end_of_a_family(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """Some of a family leave with a step of theirs in flight; one and as many strangers stay on."""
    size, limit = engine.block_size, engine.max_model_len
    base = clamp(rng.randint(1, 3) * size, 1, limit - 1)
    length = clamp(base + rng.randint(1, 3), 1, limit - 1)
    family, leavers = _family(rng), rng.choice((1, 1, 2))
    strangers = rng.choice((leavers, leavers, rng.randint(0, 2)))
    room, end = limit - length, rng.randint(1, 5)
    requests: list[Request] = []
    events: list[Event] = []
    for index in range(1 + strangers + leavers):
        leaves = index > strangers
        shared = base if index == 0 or leaves else 0
        prompt = Prompt(length, family if shared else family + index, shared)
        outputs = clamp(end + rng.randint(2, 8), 1, room)
        arrival = step + (0 if index == 0 else rng.randint(0, 1))
        request = Request(number + index, prompt, outputs, arrival)
        if leaves and rng.random() < 0.7:
            request = replace(request, stop_at=end)
        elif leaves:
            events.append(Abort(step + end + 2, request.id, in_flight=True))
        requests.append(request)
    return requests, events


def load_meets_pressure(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A loaded request grows beside another until one is preempted and must be loaded again."""
    usable, size, limit = engine.num_blocks - 1, engine.block_size, engine.max_model_len
    requests = []
    for index in range(rng.choice((2, 2, 3))):
        share = clamp(usable // 2 * size - rng.randint(0, size), 1, limit - 1)
        request = _load(rng, engine, number + index, step + rng.randint(0, 2), share)
        outputs = clamp(rng.randint(2, size + 6), 1, limit - share)
        script = request.external
        assert script is not None
        sends = replace(script, send_steps=rng.choice((0, 2, 4)), load_async=rng.random() < 0.6)
        requests.append(replace(request, max_tokens=outputs, external=sends))
    return requests, []


def beyond_a_hit(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A prefix hit ends near a place where hits may end, and the remote side holds a bit more."""
    size = engine.block_size
    unit = engine.prefix_match_unit or size
    hit = unit * rng.randint(1, max(1, min(4 * size, engine.max_model_len - 2) // unit))
    family = _family(rng)
    donor = _request(rng, engine, number, step, hit + rng.choice((0, 1, 1, 1, size)), None)
    donor = replace(donor, prompt=replace(donor.prompt, family=family))
    longer = clamp(
        hit + rng.choice((1, unit, size, size + 1, 2 * size)), 1, engine.max_model_len - 1
    )
    found = rng.choice((longer, longer - 1, hit + 1, hit + unit, hit, hit // size * size))
    script = External(
        clamp(found, 0, longer), rng.random() < 0.6, steps=rng.choice((0, 1, 2)),
        asks_later=rng.choice((0, 0, 1)),
    )  # fmt: skip
    later = step + rng.randint(1, donor.max_tokens + 3)
    second = _request(rng, engine, number + 1, later, longer, script)
    return [donor, replace(second, prompt=replace(second.prompt, family=family))], []


CONNECTOR_MOTIFS: tuple[Motif, ...] = (
    loads_fill_the_pool, load_behind_a_giant, sent_while_needed, leaves_while_loading,
    end_of_a_family, load_meets_pressure, beyond_a_hit, beyond_a_hit,
)  # fmt: skip
