"""Nouns: session motifs: a stop under way, a crowd that holds the pool, twins, the limit, seats."""

from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.events import Abort, Event, Pause, ResetPrefixCache, Resume
from schedfuzz.corpus.parts import Turn
from schedfuzz.corpus.scenario import Engine, Prompt, Request
from schedfuzz.corpus.sizing import blocks_for
from schedfuzz.fuzzer.dimensions.sessions import fitted, talk
from schedfuzz.fuzzer.edges import Fragment, Motif, window
from schedfuzz.fuzzer.motifs import random_accept, random_request
from schedfuzz.fuzzer.repair import clamp


def _session(rng: Random, engine: Engine, number: int, step: int, length: int) -> Request:
    """Return a request that is to become a session, with room for more turns."""
    length = clamp(length, 1, max(1, engine.max_model_len // 2))
    priority = 0 if engine.policy == "fcfs" else rng.randint(-2, 2)
    prompt = Prompt(length, 7 + rng.randrange(3), None if rng.random() < 0.7 else length // 2)
    accept = random_accept(rng, engine)
    return Request(number, prompt, rng.randint(1, 6), step, priority, accept)


def stopped_early(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A turn ends by its stop token, long before max_tokens, while the next input is there."""
    request = _session(rng, engine, number, step, rng.randint(1, engine.block_size + 2))
    stop = rng.randint(0, 4)
    room = max(stop + 2, min(12, engine.max_model_len - request.prompt.length))
    request = replace(request, max_tokens=room, stop_at=stop, logprobs=rng.random() < 0.4)
    turns = [
        Turn(
            step + 1 + index * rng.randint(1, stop + 2),
            rng.randint(1, 5),
            rng.randint(1, 10),
            None if rng.random() < 0.4 else rng.randint(0, 4),
            rng.random() < 0.4,
        )
        for index in range(rng.randint(1, 3))
    ]
    requests = [fitted(rng, engine, replace(request, turns=tuple(turns)))]
    if rng.random() < 0.5:
        requests.append(random_request(rng, engine, number + 1, step + rng.randint(0, 4)))
    return requests, []


def crowd(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """Sessions that together hold most of the pool between turns, and then all want more."""
    size, usable = engine.block_size, engine.num_blocks - 1
    count = rng.randint(2, 4)
    share = max(1, usable // count + rng.choice((-1, 0, 0)))
    requests: list[Request] = []
    later = step + rng.randint(3, 9)
    for index in range(count):
        outputs = rng.randint(1, 4)
        length = clamp(share * size - outputs - rng.randint(0, size), 1, engine.max_model_len - 2)
        room = max(1, engine.max_model_len - length - outputs)
        grows = clamp(rng.choice((size, 2 * size, share * size)), 1, room)
        turn = Turn(later + rng.randint(0, 2), grows, rng.randint(1, 4))
        prompt = Prompt(length, 20 + index)
        arrival = step + rng.randint(0, 1)
        request = Request(number + index, prompt, outputs, arrival, turns=(turn,))
        requests.append(fitted(rng, engine, request))
    return requests, []


def twins(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A turn ends on a block boundary; twins of the session go on differently from there."""
    size, limit = engine.block_size, engine.max_model_len
    boundary = size * rng.randint(1, max(1, min(3, limit // size - 1)))
    outputs = rng.randint(1, 5)
    length = clamp(boundary - outputs + rng.choice((0, 0, 0, 1, -1)), 1, limit - 2)
    prompt = Prompt(length, 30 + rng.randrange(2))
    requests: list[Request] = []
    for index in range(rng.randint(2, 4)):
        own = outputs + rng.choice((0, 0, 1, 2, size))
        own = clamp(own, 1, max(1, limit - length))
        twin = Request(
            number + index,
            prompt,
            own,
            step + rng.randint(0, 6) * index,
            accept=random_accept(rng, engine),
        )
        if index == 0 or rng.random() < 0.5:
            twin = talk(rng, engine, twin, rng.randint(1, 2), 0.5)
            twin = fitted(rng, engine, replace(twin, max_tokens=own))
        requests.append(twin)
    events: list[Event] = []
    if rng.random() < 0.2:
        events.append(ResetPrefixCache(step + rng.randint(2, 12), rng.random() < 0.7))
    return requests, events


def pressed(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A session turns on a block boundary beside a finished twin, then others push it out.

    It comes back by prefix hits: its own blocks, its twin's, or those of neither.
    """
    size, limit = engine.block_size, engine.max_model_len
    outputs = rng.randint(1, 4)
    boundary = size * rng.randint(1, max(1, min(2, limit // size - 1)))
    length = clamp(boundary - outputs + rng.choice((0, 0, 0, 1)), 1, max(1, limit - 8))
    prompt = Prompt(length, 40)
    twin = Request(number, prompt, clamp(outputs + rng.randint(1, 3), 1, limit), step)
    begin = step + twin.max_tokens + rng.randint(0, 2)
    turn = Turn(begin + rng.randint(1, outputs + 2), rng.randint(1, 3), rng.randint(3, 10))
    own = blocks_for(length + outputs + turn.length + turn.max_tokens, size)
    left = max(1, engine.num_blocks - 1 - own + rng.choice((0, 0, 1)))
    requests = [twin]
    for index in range(clamp(-(-left * size // limit), 1, 3)):
        share = min(left, (limit - 1) // size)
        grower = clamp(share * size - rng.randint(0, outputs + 3), 1, limit - 1)
        more = clamp(rng.randint(4, 12), 1, limit)
        requests.append(Request(number + 1 + index, Prompt(grower, 41 + index), more, begin - 1))
        left = max(1, left - share)
    session = Request(
        number + len(requests), prompt, outputs, begin, accept=random_accept(rng, engine),
        priority=0 if engine.policy == "fcfs" else 1, turns=(turn,),
    )  # fmt: skip
    return [*requests, fitted(rng, engine, session)], []


def to_the_limit(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """The last turn ends at max_model_len, or a few tokens before, seldom beyond it."""
    limit = engine.max_model_len
    request = _session(rng, engine, number, step, rng.randint(1, max(1, limit // 3)))
    total = request.prompt.length + request.max_tokens - 1
    outputs = rng.randint(1, window(engine) + 3)
    over = rng.choice((0, 0, 0, -1, -1, -2, 1)) - window(engine) * (rng.random() < 0.3)
    length = max(1, limit - total - outputs + over)
    moment = step + rng.randint(1, request.max_tokens + 4)
    turns = [Turn(moment, length, outputs)]
    if rng.random() < 0.1:
        turns.append(Turn(moment + rng.randint(1, outputs + 3), rng.randint(1, 3), 2))
    return [fitted(rng, engine, replace(request, turns=tuple(turns)))], []


def parked(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """All seats are taken by sessions between two turns when another request comes."""
    count = clamp(engine.max_num_seqs, 1, 4)
    requests: list[Request] = []
    for index in range(count):
        length = rng.randint(1, engine.block_size)
        request = _session(rng, engine, number + index, step + rng.randint(0, 2), length)
        requests.append(talk(rng, engine, request, rng.randint(1, 2), 0.1))
    requests.append(random_request(rng, engine, number + count, step + rng.randint(3, 9)))
    return requests, []


def disturbed(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """Between or within the turns the client leaves, the cache is reset, the engine is paused."""
    length = rng.randint(1, blocks_for(engine.max_model_len, 3))
    request = _session(rng, engine, number, step, length)
    request = talk(rng, engine, request, rng.randint(1, 3), 0.4)
    at = step + rng.randint(1, request.max_tokens + 8)
    events: list[Event]
    match rng.randrange(3):
        case 0:
            events = [Abort(at, number, rng.random() < 0.6)]
        case 1:
            events = [ResetPrefixCache(at, rng.random() < 0.7)]
        case _:
            events = [Pause(at, "keep", rng.random() < 0.5), Resume(at + rng.randint(1, 6))]
    return [request, random_request(rng, engine, number + 1, step)], events


SESSION_MOTIFS: tuple[Motif, ...] = (
    stopped_early, crowd, twins, pressed, to_the_limit, parked, disturbed,
)  # fmt: skip
