"""Nouns: diffusion, canvas, denoising steps.

A canvas is a draft window that is all or nothing, so what is hard lies where prompts, canvases and
blocks meet: a prompt that is cached but for a token or two, a canvas cut by the limit, requests
that lose their half-denoised canvas.
"""

from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.events import Event, ResetPrefixCache
from schedfuzz.corpus.scenario import Engine, Prompt, Request
from schedfuzz.fuzzer.dimensions.dimension import Dimension
from schedfuzz.fuzzer.draft import Draft
from schedfuzz.fuzzer.edges import Fragment
from schedfuzz.fuzzer.repair import clamp

CANVASES = (2, 3, 4, 4, 8, 8, 16)
OWN_TERMS = 0.04  # chance that a request asks for a canvas of its own, which 0.31 brought


def shape(rng: Random, engine: Engine) -> Engine:
    """Return the engine with a diffusion model."""
    return replace(
        engine, model="diffusion", canvas_length=rng.choice(CANVASES), model_runner="v2",
        num_speculative_tokens=0,
    )  # fmt: skip


def dress(rng: Random, engine: Engine, request: Request) -> Request:
    """Give a request its denoising steps, and outputs near whole canvases."""
    if engine.model != "diffusion":  # another dimension took the model since
        return request
    changes: dict[str, object] = {"denoise": rng.choice((1, 1, 2, 2, 3, 5))}
    if rng.random() < 0.4:
        changes["max_tokens"] = _outputs(rng, engine)
    if rng.random() < OWN_TERMS:
        width = rng.randint(1, engine.canvas_length)
        changes |= {"canvas": width, "max_steps": rng.choice((0, 1, 2))}
        if rng.random() < 0.5:
            changes |= {"read_only": True, "max_tokens": rng.randint(1, width)}
    return replace(request, **changes)


def _outputs(rng: Random, engine: Engine) -> int:
    return max(1, engine.canvas_length * rng.randint(1, 3) + rng.choice((-1, 0, 0, 1)))


def nearly_cached(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """While others denoise, prompts arrive whose prefix was cached, but for a token or two."""
    size, limit = engine.block_size, engine.max_model_len
    base = size * rng.randint(1, max(1, min(4, (limit - 1) // size)))
    family = rng.randint(3, 6)
    requests = []
    for index in range(rng.randint(2, 4)):
        length = clamp(base + rng.choice((0, 1, 1, 1, 2)), 1, limit - 1)
        arrival = step + index * rng.randint(1, 4)
        prompt = Prompt(length, family, clamp(base, 0, length))
        requests.append(Request(number + index, prompt, _outputs(rng, engine), arrival))
    return requests, []


def growing(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """Requests that together outgrow the pool by canvases, from just past a block boundary."""
    size, limit = engine.block_size, engine.max_model_len
    count = clamp(engine.max_num_seqs, 2, 4)
    fair = max(1, (engine.num_blocks - 1) // count)
    requests = []
    for index in range(count):
        length = clamp(
            fair * size + rng.choice((-size, 0)) + rng.choice((0, 1, 1, 2)), 1, limit - 1
        )
        outputs = clamp(2 * size + _outputs(rng, engine), 1, limit - length)
        arrival = step + rng.randint(0, 3)
        requests.append(Request(number + index, Prompt(length, 3 + index), outputs, arrival))
    return requests, []


def interrupted(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """Canvases are lost halfway: the prefix cache is reset under requests that denoise."""
    requests = []
    for index in range(rng.randint(1, 3)):
        length = rng.randint(1, engine.max_model_len - 1)
        arrival = step + rng.randint(0, 2)
        requests.append(
            Request(number + index, Prompt(length, 3 + index), _outputs(rng, engine), arrival)
        )
    at = step + rng.randint(1, 10)
    events: list[Event] = [ResetPrefixCache(at, True)]
    if rng.random() < 0.3:
        events.append(ResetPrefixCache(at + rng.randint(1, 4), True))
    return requests, events


def change_denoise(draft: Draft, rng: Random) -> None:
    """Let one request's canvases converge sooner or later."""
    index, request = draft.pick(rng)
    draft.requests[index] = replace(request, denoise=rng.randint(1, 5))


def change_canvas(draft: Draft, rng: Random) -> None:
    """Give the engine another canvas, or one request another number of canvases."""
    if rng.random() < 0.4:
        draft.engine = replace(draft.engine, canvas_length=rng.choice(CANVASES))
        return
    index, request = draft.pick(rng)
    draft.requests[index] = replace(request, max_tokens=_outputs(rng, draft.engine))


DIFFUSION = Dimension(
    "diffusion", 5, shape, lambda engine: engine.model == "diffusion", dress,
    (nearly_cached, growing, interrupted), (change_denoise, change_canvas),
)  # fmt: skip
