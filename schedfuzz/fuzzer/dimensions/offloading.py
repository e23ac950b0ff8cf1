"""Nouns: vLLM's CPU offloading, its motifs.

Blocks are stored while their request runs on, and loaded when it or a twin comes back to a cache
that has lost them. The hard moments are those in which a transfer is still under way: a preemption
before the store is reported, a reset, a return, a block that somebody else needs.
"""

from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.events import Abort, Event, ResetPrefixCache
from schedfuzz.corpus.parts import Connector
from schedfuzz.corpus.scenario import Engine, Prompt, Request
from schedfuzz.fuzzer.dimensions.dimension import Dimension
from schedfuzz.fuzzer.draft import Draft
from schedfuzz.fuzzer.edges import Fragment, Motif
from schedfuzz.fuzzer.motifs import random_accept
from schedfuzz.fuzzer.repair import clamp

STEPS = (0, 0, 1, 1, 2, 3, 5, 9)


def _shape(rng: Random, engine: Engine) -> Engine:
    pool = rng.choice((1, 2, 4, 8, engine.num_blocks, 2 * engine.num_blocks, 64))
    connector = Connector(
        kind="offloading", offload_blocks=pool,
        store_steps=rng.choice(STEPS), load_steps=rng.choice(STEPS),
    )  # fmt: skip
    return replace(engine, connector=connector)


def _on(engine: Engine) -> bool:
    return engine.connector is not None and engine.connector.kind == "offloading"


def _whole(rng: Random, engine: Engine, most: int) -> int:
    """Return a prompt length of up to `most` whole blocks, and a token or two more or less."""
    size = engine.block_size
    blocks = rng.randint(1, max(1, most))
    return clamp(blocks * size + rng.choice((-1, 0, 0, 1, 2)), 1, engine.max_model_len - 1)


def _asks(rng: Random, engine: Engine, number: int, step: int, length: int, family: int) -> Request:
    outputs = clamp(rng.choice((1, 2, 4, 8, 16)), 1, engine.max_model_len - length)
    accept = random_accept(rng, engine)
    return Request(number, Prompt(length, family), outputs, step, accept=accept)


def comes_back(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A prefix is stored, the cache loses it to a reset or to others, and a twin comes."""
    family = 20 + rng.randint(0, 5)
    length = _whole(rng, engine, 4)
    first = _asks(rng, engine, number, step, length, family)
    requests, events = [first], list[Event]()
    at = step + rng.randint(1, first.max_tokens + 3)
    if rng.random() < 0.5:
        events.append(ResetPrefixCache(at, rng.random() < 0.5))
    else:
        big = _whole(rng, engine, engine.num_blocks - 1)
        requests.append(_asks(rng, engine, number + 1, at, big, family + 10))
    for _ in range(rng.choice((1, 1, 2))):
        later = at + rng.randint(0, 6)
        more = clamp(length + rng.choice((0, 0, 1, engine.block_size)), 1, engine.max_model_len - 1)
        requests.append(_asks(rng, engine, number + len(requests), later, more, family))
    return requests, events


def preempted_while_storing(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """Two or three outgrow the pool: who is preempted returns while its stores are under way."""
    usable, size, limit = engine.num_blocks - 1, engine.block_size, engine.max_model_len
    count = rng.choice((2, 2, 3))
    requests = []
    for index in range(count):
        share = usable // count * size - rng.randint(0, size // 2)
        length = clamp(share, 1, limit - 1)
        request = _asks(rng, engine, number + index, step + index, length, 30 + number + index)
        outputs = clamp(rng.randint(2, size + 6), 1, limit - length)
        requests.append(replace(request, max_tokens=outputs))
    return requests, []


def leaves_while_moving(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A client leaves while its blocks are stored or loaded, and a twin or a stranger follows."""
    length, family = _whole(rng, engine, 4), 40 + rng.randint(0, 3)
    leaver = _asks(rng, engine, number, step, length, family)
    at = step + rng.randint(0, 5)
    other = family if rng.random() < 0.6 else family + 5
    follower = _asks(rng, engine, number + 1, at + rng.randint(0, 2), length, other)
    events: list[Event] = [Abort(at, number, rng.random() < 0.5)]
    if rng.random() < 0.4:
        events.append(ResetPrefixCache(at + rng.randint(0, 2), rng.random() < 0.5))
    return [leaver, follower], events


def change_pace(draft: Draft, rng: Random) -> None:
    """Give the transfers another pace, or the host another pool."""
    draft.engine = _shape(rng, draft.engine)


MOTIFS: tuple[Motif, ...] = (comes_back, preempted_while_storing, leaves_while_moving)
OFFLOADING = Dimension("CPU offloading", 3, _shape, _on, motifs=MOTIFS, edits=(change_pace,))
