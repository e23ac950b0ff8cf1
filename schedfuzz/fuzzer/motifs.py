"""Nouns: motif, fragment.

Some faults need a story that independent random fields almost never tell: a victim admitted first,
a twin that comes back after its prefix was cached, a reset while tokens are in flight. A motif
writes one such story for an engine; fragments compose because each gets its own ids and start.
"""

from random import Random

from schedfuzz.corpus.events import Abort, Event, ResetPrefixCache
from schedfuzz.corpus.scenario import Engine, Prompt, Request
from schedfuzz.corpus.sizing import blocks_for
from schedfuzz.fuzzer.edges import Fragment, Motif, length_edges, near, output_edges, window
from schedfuzz.fuzzer.repair import clamp


def random_length(rng: Random, engine: Engine) -> int:
    """Return a prompt length in tokens: mostly near an edge, always one that fits."""
    most = engine.max_model_len - 1
    if rng.random() < 0.7:
        return clamp(near(rng, length_edges(engine), window(engine)), 1, most)
    return rng.randint(1, most)


def random_outputs(rng: Random, engine: Engine, length: int) -> int:
    """Return max_tokens for a prompt of `length`: mostly few, sometimes to an edge of the room."""
    roll, room = rng.random(), engine.max_model_len - length
    if roll < 0.5:
        wanted = rng.randint(1, 8)
    elif roll < 0.85:
        # A decode token costs an engine step: prefer the edges that are near.
        few = [edge for edge in output_edges(engine, length) if edge <= 24] or [1]
        wanted = near(rng, few)
    elif roll < 0.97:
        wanted = rng.randint(4, 20)
    else:
        wanted = room
    return clamp(wanted, 1, min(engine.max_model_len, room + 1))


def random_accept(rng: Random, engine: Engine) -> tuple[int, ...]:
    """Return a draft acceptance pattern: none, all, alternating or mixed; (0,) without drafts."""
    width = engine.num_speculative_tokens
    if not width:
        return (0,)
    roll = rng.random()
    if roll < 0.3:
        return (0,)
    if roll < 0.6:
        return (width,)
    if roll < 0.75:
        return (0, width)
    return tuple(rng.randint(0, width) for _ in range(rng.randint(1, 4)))


def random_prompt(rng: Random, length: int) -> Prompt:
    """Return a prompt of one of a few families, so that strangers often share a prefix."""
    family = int(rng.random() * 3)
    shared = None if rng.random() < 0.6 else rng.randint(0, length)
    return Prompt(length, family, shared)


def random_request(rng: Random, engine: Engine, number: int, arrival: int) -> Request:
    """Return a request with the id `number` that has nothing to do with the others."""
    length = random_length(rng, engine)
    priority = 0 if engine.policy == "fcfs" else rng.randint(-2, 2)
    return Request(
        number,
        random_prompt(rng, length),
        random_outputs(rng, engine, length),
        arrival,
        priority,
        random_accept(rng, engine),
    )


def _family(rng: Random) -> int:
    return 3 + int(rng.random() * 4)


def _decoder(rng: Random, engine: Engine, number: int, arrival: int) -> Request:
    """Return a short prompt that decodes for a while: company for what follows."""
    length = clamp(rng.randint(1, 2 * engine.block_size), 1, engine.max_model_len - 1)
    outputs = min(rng.randint(4, 16), engine.max_model_len - length)
    prompt = Prompt(length, _family(rng))
    return Request(number, prompt, max(1, outputs), arrival, accept=random_accept(rng, engine))


def twin(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A prefix is cached; its twin, whole blocks plus a small tail, comes while others decode."""
    size, limit, width = engine.block_size, engine.max_model_len, window(engine)
    blocks = rng.randint(1, max(1, min(6, (limit - 1) // size)))
    if rng.random() < 0.5:
        blocks = max(1, (limit - width) // size)
    base = min(blocks * size, limit - 1)
    tail = rng.choice((0, 1, 1, 1, 2, width, size, size + 1))
    family = _family(rng)
    first_length = clamp(base + rng.choice((0, 1, 2, width)), 1, limit - 1)
    length = clamp(base + tail, 1, limit - 1)
    first = Request(
        number,
        Prompt(first_length, family),
        random_outputs(rng, engine, first_length),
        step,
        accept=random_accept(rng, engine),
    )
    outputs = random_outputs(rng, engine, length)
    requests = [first]
    if rng.random() < 0.6:
        requests.append(_decoder(rng, engine, number + 1, step + rng.randint(0, 3)))
    shared = None if rng.random() < 0.7 else base
    second = Prompt(length, family, shared)
    later = step + rng.randint(1, first.max_tokens + 3)
    accept = random_accept(rng, engine)
    requests.append(Request(number + len(requests), second, outputs, later, accept=accept))
    return requests, []


def pressure(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A long victim takes most of the pool, then growers need a block more each."""
    size, limit = engine.block_size, engine.max_model_len
    usable = (engine.num_blocks - 1) * size
    share = clamp(int(usable * rng.uniform(0.4, 0.9)), 1, limit - 1)
    length = clamp(share // size * size + rng.choice((-1, 0, 1)), 1, limit - 1)
    priority = rng.randint(0, 2) if engine.policy == "priority" else 0
    requests = [
        Request(
            number,
            Prompt(length, _family(rng)),
            random_outputs(rng, engine, length),
            step,
            priority,
            random_accept(rng, engine),
        )
    ]
    left = max(1, usable - blocks_for(length, size) * size)
    for index in range(1, rng.randint(2, 4)):
        grower = clamp(left // (2 * size) * size - rng.randint(0, 3), 1, limit - 1)
        room = limit - grower
        outputs = clamp(rng.randint(2, size + 4), 1, room)
        arrival = step + rng.randint(0, 4)
        accept = random_accept(rng, engine)
        prompt = Prompt(grower, _family(rng))
        requests.append(Request(number + index, prompt, outputs, arrival, accept=accept))
    return requests, []


def burst(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """As many requests as there are seats, or one or two more, arrive at once."""
    count = clamp(engine.max_num_seqs + rng.randint(-1, 2), 1, 8)
    requests = [random_request(rng, engine, number + index, step) for index in range(count)]
    return requests, []


def reset(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """Requests decode, the prefix cache is dropped under them, and they must come back right."""
    requests = [_decoder(rng, engine, number, step)]
    if rng.random() < 0.6:
        requests.append(random_request(rng, engine, number + 1, step + rng.randint(0, 4)))
    at = step + rng.randint(1, requests[0].max_tokens + 2)
    events: list[Event] = [ResetPrefixCache(at, rng.random() < 0.75)]
    if rng.random() < 0.3:
        events.append(ResetPrefixCache(at + rng.randint(1, 4), rng.random() < 0.75))
    return requests, events


def abort(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A client leaves, often while its step is executing; sometimes its twin follows at once."""
    leaver = random_request(rng, engine, number, step)
    at = step + rng.randint(0, min(leaver.max_tokens, 8) + 2)
    events: list[Event] = [Abort(at, number, rng.random() < 0.6)]
    requests = [leaver]
    if rng.random() < 0.6:
        requests.append(_decoder(rng, engine, number + 1, step))
    if rng.random() < 0.4:
        twin_of = Request(
            number + len(requests), leaver.prompt, leaver.max_tokens, at + rng.randint(0, 2)
        )
        requests.append(twin_of)
    return requests, events


def to_the_limit(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A request whose last token lands exactly on max_model_len, or as near as one token."""
    limit = engine.max_model_len
    outputs = rng.randint(1, min(limit - 1, 2 * window(engine) + 4))
    length = limit - outputs
    wanted = clamp(outputs + rng.choice((-1, 0, 0, 0, 1)), 1, limit)
    prompt = random_prompt(rng, length)
    requests = [Request(number, prompt, wanted, step, accept=random_accept(rng, engine))]
    if rng.random() < 0.5:
        requests.append(_decoder(rng, engine, number + 1, max(0, step - rng.randint(0, 2))))
    return requests, []


def chunks(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A prompt longer than one step's share arrives while another request decodes."""
    share = engine.max_num_batched_tokens
    if engine.long_prefill_token_threshold:
        share = min(share, engine.long_prefill_token_threshold)
    whole = share * rng.randint(1, 3) + rng.choice((-1, 0, 1, window(engine)))
    length = clamp(whole, 1, engine.max_model_len - 1)
    prompt = random_prompt(rng, length)
    late = Request(
        number + 1, prompt, random_outputs(rng, engine, length), step + rng.randint(0, 3)
    )
    return [_decoder(rng, engine, number, step), late], []


MOTIFS: tuple[Motif, ...] = (twin, pressure, burst, reset, abort, to_the_limit, chunks)
