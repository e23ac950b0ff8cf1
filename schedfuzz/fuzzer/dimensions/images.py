"""Nouns: images dimension, gallery, row of images.

A small gallery shared by all requests, so that pictures meet again; their lengths come from the
encoder's limits and their places from blocks and steps, because what breaks is a picture that does
not fit beside another or is cut by the end of a share.
"""

from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.parts import Image
from schedfuzz.corpus.request_relations import most_image
from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.fuzzer.dimensions.dimension import Dimension
from schedfuzz.fuzzer.dimensions.image_stories import STORIES
from schedfuzz.fuzzer.dimensions.pictures import GALLERY, encoder_shape, length_of, row
from schedfuzz.fuzzer.draft import Draft


def dress(rng: Random, engine: Engine, request: Request) -> Request:
    """Give a request without images a row of them, more often than not."""
    if engine.model != "autoregressive" or request.turns or rng.random() < 0.4:
        return request
    if request.images and rng.random() < 0.8:
        return request
    items = [rng.randrange(GALLERY) for _ in range(rng.choice((1, 1, 2, 2, 3)))]
    return replace(request, images=row(rng, engine, request.prompt.length, items))


def move_image(draft: Draft, rng: Random) -> None:
    """Move a picture by a token or two, to a block's edge, or to the end of the one before."""
    index, request = draft.pick(rng)
    if not request.images:
        return
    at = rng.randrange(len(request.images))
    image, size = request.images[at], draft.engine.block_size
    before = request.images[at - 1] if at else Image(0, 1)
    offset = rng.choice((
        image.offset - 1, image.offset + 1, image.offset // size * size,
        image.offset // size * size + size - image.length, before.offset + before.length,
    ))  # fmt: skip
    _put(draft, index, at, replace(image, offset=max(0, offset)))


def change_image(draft: Draft, rng: Random) -> None:
    """Make a picture another one of the gallery, or the same as one of another request."""
    index, request = draft.pick(rng)
    if not request.images:
        return
    at = rng.randrange(len(request.images))
    other = rng.choice(draft.pick(rng)[1].images or request.images)
    if rng.random() < 0.5:
        item = rng.randrange(GALLERY)
        other = Image(0, length_of(draft.engine, item), item, other.delay)
    _put(draft, index, at, replace(other, offset=request.images[at].offset))


def _put(draft: Draft, index: int, at: int, image: Image) -> None:
    request = draft.requests[index]
    images = (*request.images[:at], image, *request.images[at + 1 :])
    draft.requests[index] = replace(request, images=images)


def name_image(draft: Draft, rng: Random) -> None:
    """Give a picture a name that another one may have too, or none."""
    index, request = draft.pick(rng)
    if request.images:
        at = rng.randrange(len(request.images))
        name = rng.randrange(2) if rng.random() < 0.6 else None
        _put(draft, index, at, replace(request.images[at], name=name))


def repeat_image(draft: Draft, rng: Random) -> None:
    """Let a request show one of its pictures again."""
    index, request = draft.pick(rng)
    if request.images:
        image, last = rng.choice(request.images), request.images[-1]
        offset = last.offset + last.length + rng.choice((0, 1, 2, draft.engine.block_size))
        again = (*request.images, replace(image, offset=offset))
        draft.requests[index] = replace(request, images=again)


def cache_to_edge(draft: Draft, rng: Random) -> None:
    """Let the encoder cache or budget just hold, or just not hold, the next two pictures."""
    _, request = draft.pick(rng)
    if request.images:
        at = rng.randrange(len(request.images))
        two = sum(image.length for image in request.images[at : at + 2])
        field = rng.choice(("encoder_cache_size", "max_num_encoder_input_tokens"))
        value = max(most_image(draft.engine) // 2, two + rng.choice((-1, 0, 1)))
        draft.engine = replace(draft.engine, **{field: value})


IMAGES = Dimension(
    "images", 6, encoder_shape,
    lambda engine: engine.encoder_cache_size > 0 and engine.model == "autoregressive",
    dress, STORIES, (move_image, change_image, repeat_image, cache_to_edge, name_image),
)  # fmt: skip
