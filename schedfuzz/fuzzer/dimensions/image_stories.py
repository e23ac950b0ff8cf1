"""Nouns: stories with images.

Pictures that compete for the encoder, come again, are cut by the end of a share, or look the same
to the prefix cache and are not.
"""

from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.events import Abort, Event, ResetPrefixCache
from schedfuzz.corpus.scenario import Engine, Prompt, Request
from schedfuzz.corpus.sizing import blocks_for
from schedfuzz.fuzzer.dimensions.pictures import GALLERY, length_of, row
from schedfuzz.fuzzer.edges import Fragment, Motif
from schedfuzz.fuzzer.motifs import random_accept, random_outputs
from schedfuzz.fuzzer.repair import clamp


def _reader(
    rng: Random, engine: Engine, number: int, step: int, items: list[int],
    family: int | None = None, start: int | None = None,
) -> Request:  # fmt: skip
    """Return a request with these pictures and a little text around them."""
    most = engine.max_model_len - 1
    wanted = sum(length_of(engine, item) for item in items)
    text = rng.choice((1, 2, 5, engine.block_size, 2 * engine.block_size))
    length = clamp(wanted + text + rng.randint(0, 4 * len(items)), 1, most)
    prompt = Prompt(length, 8 + rng.randrange(4) if family is None else family)
    images = row(rng, engine, length, items, start)
    if images and rng.random() < 0.3:  # nothing but the picture is left for the last share
        last = images[-1]
        prompt = replace(prompt, length=last.offset + last.length)
    outputs = random_outputs(rng, engine, prompt.length)
    priority = rng.randint(-1, 2) if engine.policy == "priority" else 0
    accept = random_accept(rng, engine)
    return Request(number, prompt, outputs, step, priority, accept, images=images)


def again(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A request shows one picture several times; another one wants its place meanwhile."""
    item, other = rng.sample(range(GALLERY), 2)
    pattern = rng.choice(([item, item], [item, item, item], [item, other, item]))
    requests = [_reader(rng, engine, number, step, pattern)]
    if rng.random() < 0.7:
        items = [rng.randrange(GALLERY) for _ in range(2)]
        requests.append(_reader(rng, engine, number + 1, step + rng.randint(0, 3), items))
    return requests, []


def narrow(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """Two pictures of one request fit the encoder cache one by one but not together."""
    large = [0, rng.choice((2, 4))]
    rng.shuffle(large)
    start = rng.choice((None, 0, rng.randrange(1, engine.block_size)))
    requests = [_reader(rng, engine, number, step, large, start=start)]
    if rng.random() < 0.4:
        items = [rng.randrange(GALLERY)]
        requests.append(_reader(rng, engine, number + 1, step + rng.randint(0, 4), items))
    return requests, []


def shared(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A picture is in use or just given up when another request comes to it."""
    item = rng.randrange(GALLERY)
    family = 8 + rng.randrange(4)
    requests = [_reader(rng, engine, number, step, [item], family)]
    for index in range(1, rng.choice((2, 3, 3))):
        items = [rng.randrange(GALLERY), item] if rng.random() < 0.6 else [item]
        later = step + rng.choice((0, 1, 1, 2, 4, 9))
        mine = family if rng.random() < 0.5 else None
        requests.append(_reader(rng, engine, number + index, later, items, mine))
    return requests, []


def lookalike(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """The same prompt again, token by token, with the same or with another picture in it."""
    first = _reader(rng, engine, number, step, [rng.randrange(GALLERY) for _ in range(2)])
    images = first.images
    if images and rng.random() < 0.6:
        at = rng.randrange(len(images))
        images = tuple(
            replace(image, item=image.item + (index == at) * GALLERY)
            for index, image in enumerate(images)
        )
    later = step + rng.randint(0, first.max_tokens + 3)
    second = replace(first, id=number + 1, arrival=later, images=images)
    return [first, second], []


def crowd(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """More pictures at once than the encoder takes in a step or keeps."""
    requests = []
    for index in range(rng.randint(2, 4)):
        items = [rng.randrange(GALLERY) for _ in range(rng.choice((1, 1, 2)))]
        requests.append(_reader(rng, engine, number + index, step + rng.randint(0, 2), items))
    return requests, []


def interrupted(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A request is set back or leaves while its pictures are read; others want them."""
    requests, _ = shared(rng, engine, number, step)
    at = step + rng.randint(1, 5)
    events: list[Event] = [ResetPrefixCache(at, preempt_running=True)]
    if rng.random() < 0.5:
        events = [Abort(at, number, in_flight=rng.random() < 0.6)]
    return requests, events


def outgrown(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A long prompt comes to one picture after the other while those before it take its blocks.

    They stand behind it in the running order, and decode into new blocks just when its shares have
    filled the pool.
    """
    size, limit, budget = engine.block_size, engine.max_model_len, engine.max_num_batched_tokens
    share = min(engine.long_prefill_token_threshold or budget, budget)
    length = limit - rng.randint(1, clamp(limit // 3, 1, limit - 1))
    images = row(rng, engine, length, list(range(2 * GALLERY)), rng.randint(0, share))
    requests = [Request(number, Prompt(length, 8), 1, step, 2, images=images)]
    shares = rng.randint(1, clamp(length // share, 1, 6))  # until the pool is full
    left = engine.num_blocks - 1 - blocks_for(min(length, shares * share), size)
    while left > 0 and len(requests) < 5:
        filled = min(left, limit // size)
        left -= filled
        short = clamp(filled * size - rng.randint(0, 2), 1, limit - 1)
        prefill = blocks_for(short, max(1, budget - share))
        arrival = step + max(1, shares - prefill)
        prompt, accept = Prompt(short, 11 + len(requests)), random_accept(rng, engine)
        wanted = clamp(rng.randint(2, size + 4), 1, limit - short)
        requests.append(Request(number + len(requests), prompt, wanted, arrival, -1, accept))
    return requests, []


def misnamed(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A client gives one name to pictures of two lengths, in one prompt or in two."""
    name, (item, other) = rng.randrange(2), rng.sample(range(GALLERY), 2)
    if rng.random() < 0.5:
        readers = [_reader(rng, engine, number, step, [item, other])]
    else:
        later = step + rng.choice((0, 0, 1, 3, 8))
        readers = [
            _reader(rng, engine, number, step, [item]),
            _reader(rng, engine, number + 1, later, [other]),
        ]
    named = [
        replace(reader, images=tuple(replace(image, name=name) for image in reader.images))
        for reader in readers
    ]
    bystander = _reader(rng, engine, number + len(named), step + rng.randint(0, 3), [item])
    return [*named, bystander], []


STORIES: tuple[Motif, ...] = (
    again, narrow, shared, lookalike, crowd, interrupted, outgrown, misnamed,
)  # fmt: skip
