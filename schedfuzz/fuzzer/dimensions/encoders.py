"""Nouns: encoder-decoder dimension, EC connector dimension."""

from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.parts import Image
from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.fuzzer.dimensions.dimension import Dimension
from schedfuzz.fuzzer.dimensions.image_stories import again, narrow, shared
from schedfuzz.fuzzer.dimensions.pictures import GALLERY, encoder_shape, length_of
from schedfuzz.fuzzer.draft import Draft
from schedfuzz.fuzzer.edges import Fragment
from schedfuzz.fuzzer.motifs import random_request

DELAYS = (None, 0, 0, 1, 2, 3, 5, 8)


def _both(rng: Random, engine: Engine) -> Engine:
    size = rng.choice((6, 16, 24, 33, 40))
    budget = size + rng.choice((0, 0, -1, 8, size))
    return replace(
        engine, model="encoder-decoder", encoder_cache_size=size,
        max_num_encoder_input_tokens=budget, connector=None,
    )  # fmt: skip


def _hear(rng: Random, engine: Engine, request: Request) -> Request:
    item = rng.randrange(GALLERY)
    return replace(request, images=(Image(0, length_of(engine, item), item),))


def choir(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """Several encoder inputs wait for one encoder."""
    count = rng.randint(2, 4)
    return [
        random_request(rng, engine, number + index, step + rng.choice((0, 0, 1)))
        for index in range(count)
    ], []


def _from_outside(rng: Random, engine: Engine) -> Engine:
    engine = engine if engine.encoder_cache_size else encoder_shape(rng, engine)
    return replace(engine, model="autoregressive", ec_connector=True)


def _sent(rng: Random, engine: Engine, request: Request) -> Request:
    """Let pictures come from outside; those that stand together often come together."""
    if not request.images or (any(i.delay for i in request.images) and rng.random() < 0.7):
        return request
    common = rng.choice(DELAYS)
    one_by_one = rng.random() < 0.5
    images = tuple(
        replace(image, delay=rng.choice(DELAYS) if one_by_one else common)
        for image in request.images
    )
    return replace(request, images=images)


def came_and_went(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A picture that one request brought is given up before the next one gets to it."""
    item, other = rng.choice(((0, 4), (0, 2), (4, 2), (2, 4)))
    (first, *_), _ = shared(rng, engine, number, step)
    first = replace(first, images=(Image(0, length_of(engine, item), item),))
    (second, *_), _ = narrow(rng, engine, number + 1, step + rng.randint(1, 6))
    offset, images = rng.randint(0, 3), []
    for number_of in (other, item):
        images.append(Image(offset, length_of(engine, number_of), number_of))
        offset += images[-1].length + rng.choice((0, 1, 2, engine.block_size))
    prompt = replace(second.prompt, length=offset + 1)
    return [first, replace(second, prompt=prompt, images=tuple(images))], []


def change_delay(draft: Draft, rng: Random) -> None:
    """Let a request's pictures come earlier or later."""
    index, request = draft.pick(rng)
    images = tuple(replace(image, delay=rng.choice(DELAYS)) for image in request.images)
    draft.requests[index] = replace(request, images=images)


ENCODER_DECODER = Dimension(
    "encoder-decoder", 1, _both, lambda engine: engine.model == "encoder-decoder", _hear, (choir,)
)
EC_CONNECTOR = Dimension(
    "EC connector", 3, _from_outside, lambda engine: engine.ec_connector, _sent,
    (came_and_went, again, shared), (change_delay,),
)  # fmt: skip
