"""Nouns: request relation, mend request.

What the fields of a request must keep to each other and to its engine, in one table for
validation and repair, as for engines. Mends give up the rarer field.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from schedfuzz.corpus.fitting import has_group, has_one_full_group
from schedfuzz.corpus.parts import External, Image, Repetition, Sampling, Turn
from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.corpus.sizing import extra_slots


class RequestRelation(NamedTuple):
    """`holds` says whether a request keeps it; `changes` are the fields that make it do so."""

    field: str
    cure: str
    holds: Callable[[Engine, Request], bool]
    changes: Callable[[Engine, Request], dict[str, Any]]


def mend_request(engine: Engine, request: Request) -> Request:
    """Return the request with every relation kept, the same object if it keeps them all."""
    for relation in REQUEST_RELATIONS:
        if not relation.holds(engine, request):
            request = replace(request, **relation.changes(engine, request))
    return request


def _generates(engine: Engine) -> bool:
    return engine.model in ("autoregressive", "encoder-decoder")


def _scripted(engine: Engine) -> bool:
    return engine.connector is not None and engine.connector.kind == "scripted"


def most_image(engine: Engine) -> int:
    """Return the encoder tokens of the largest image that the engine can ever take in.

    One that may not be chunked must fit into a step, with the token that a drafter reads ahead.
    """
    most = min(engine.encoder_cache_size, engine.max_num_encoder_input_tokens)
    if engine.disable_chunked_mm_input:
        shares = (
            engine.max_num_batched_tokens - extra_slots(engine),
            engine.max_num_scheduled_tokens,
            engine.long_prefill_token_threshold,
        )
        most = min(most, *(share - 1 for share in shares if share))
    return most


def fitting_images(engine: Engine, request: Request) -> tuple[Image, ...]:
    """Return the images that fit the prompt and the encoder's limits, in order, not overlapping.

    An encoder-decoder request has exactly one, which stands outside the prompt. Where embeddings
    come from outside, clients give no names.
    """
    if engine.model == "encoder-decoder":
        first = request.images[0] if request.images else Image(0, 4)
        return (Image(0, max(1, min(first.length, most_image(engine))), first.item),)
    kept: list[Image] = []
    end = 0
    for image in sorted(request.images, key=lambda image: image.offset):
        stop = image.offset + image.length
        inside = end <= image.offset < stop <= request.prompt.length
        if inside and image.length <= most_image(engine):
            given = {"name": None} if engine.ec_connector else {"delay": None}
            kept.append(replace(image, **given))
            end = stop
    return tuple(kept)


def fitting_turns(request: Request) -> tuple[Turn, ...]:
    """Return the turns in order of their steps, each after the request's arrival.

    Only the last may bring no token, and then it asks for nothing either.
    """
    turns: list[Turn] = []
    step = request.arrival
    for turn in sorted(request.turns, key=lambda turn: turn.step):
        step = max(step + 1, turn.step)
        turns.append(turn if turn.step == step else replace(turn, step=step))
    for index, turn in enumerate(turns):
        if not turn.length:
            last = index == len(turns) - 1
            turns[index] = Turn(turn.step, 0, 1) if last else replace(turn, length=1)
    return tuple(turns)


def fitting_repetition(request: Request) -> Repetition | None:
    """Return the loop that is looked for with pattern sizes that vLLM takes."""
    loop = request.repetition
    if loop is None or loop.min_pattern_size <= loop.max_pattern_size:
        return loop
    return replace(loop, min_pattern_size=loop.max_pattern_size)


def fitting_sampling(request: Request) -> Sampling | None:
    """Return what the client wants of the sampler, None for nothing."""
    wishes = request.sampling
    if wishes is not None and request.structured is not None:
        wishes = replace(wishes, allowed=0, bad_words=0)
    return None if wishes == Sampling() else wishes


def fitting_external(engine: Engine, request: Request) -> External | None:
    """Return the script with what its prompt, the engine and the connector's role allow.

    A sync load leaves a token to compute, and so does one with a recurrent state, which cannot be
    taken back by a token. Failed blocks are named by their ids, which one full KV group makes
    clear; after a sync load vLLM takes them back in sync steps of the V1 runner alone.
    """
    script = request.external
    if script is None or engine.connector is None:
        return script
    whole = script.load_async and not has_group(engine, "mamba")
    most = request.prompt.length - (not whole)
    role, is_async = engine.connector.role, script.load_async
    taken_back = is_async or not (engine.async_scheduling or engine.model_runner == "v2")
    return replace(
        script,
        tokens=0 if role == "kv_producer" else max(0, min(script.tokens, most)),
        steps=script.steps if is_async else 0,
        fails=script.fails and is_async,
        failed_blocks=script.failed_blocks if taken_back and has_one_full_group(engine) else (),
        send_steps=0 if role == "kv_consumer" else script.send_steps,
    )


def _only_generating(field: str, off: Any) -> RequestRelation:
    return RequestRelation(
        field, "only an autoregressive or encoder-decoder model generates tokens one by one",
        lambda e, r: _generates(e) or getattr(r, field) == off, lambda e, r: {field: off},
    )  # fmt: skip


REQUEST_RELATIONS: tuple[RequestRelation, ...] = (
    RequestRelation(
        "max_tokens", "a pooling request has 1",
        lambda e, r: e.model != "pooling" or r.max_tokens == 1, lambda e, r: {"max_tokens": 1},
    ),
    *(
        _only_generating(field, off)
        for field, off in (
            ("stop_at", None), ("logprobs", False), ("prompt_logprobs", False),
            ("structured", None), ("turns", ()), ("min_tokens", 0), ("repetition", None),
            ("sampling", None),
        )
    ),
    RequestRelation(
        "min_tokens", "must not exceed max_tokens",
        lambda e, r: r.min_tokens <= r.max_tokens, lambda e, r: {"min_tokens": r.max_tokens},
    ),
    RequestRelation(
        "min_tokens", "a grammar that ends has none: nothing but the stop token is allowed then",
        lambda e, r: not (r.min_tokens and r.structured and r.structured.ends_after),
        lambda e, r: {"min_tokens": 0},
    ),
    RequestRelation(
        "sampling", "must want something of the sampler, and of a grammar's tokens penalties only: "
        "other wishes might leave none to sample",
        lambda e, r: fitting_sampling(r) == r.sampling,
        lambda e, r: {"sampling": fitting_sampling(r)},
    ),
    RequestRelation(
        "structured", "reasoning_end needs the engine's reasoning",
        lambda e, r: e.reasoning or r.structured is None or r.structured.reasoning_end is None,
        lambda e, r: {"structured": replace(r.structured, reasoning_end=None)
                      if r.structured else None},
    ),
    RequestRelation(
        "repetition", "min_pattern_size must not exceed max_pattern_size",
        lambda e, r: fitting_repetition(r) == r.repetition,
        lambda e, r: {"repetition": fitting_repetition(r)},
    ),
    RequestRelation(
        "proposals", "only an ngram drafter proposes less than the full width",
        lambda e, r: not r.proposals
        or (e.spec_method == "ngram" and e.num_speculative_tokens > 0),
        lambda e, r: {"proposals": ()},
    ),
    RequestRelation(
        "denoise", "only a diffusion model takes more than 1",
        lambda e, r: e.model == "diffusion" or r.denoise == 1, lambda e, r: {"denoise": 1},
    ),
    RequestRelation(
        "canvas", "is at most the engine's canvas_length",
        lambda e, r: r.canvas <= e.canvas_length, lambda e, r: {"canvas": e.canvas_length},
    ),
    RequestRelation(
        "max_steps", "only a diffusion model denoises",
        lambda e, r: e.model == "diffusion" or r.max_steps == 0, lambda e, r: {"max_steps": 0},
    ),
    RequestRelation(
        "read_only", "needs a canvas of its own, at least as wide as max_tokens",
        lambda e, r: not r.read_only or 1 <= r.max_tokens <= r.canvas,
        lambda e, r: {"read_only": False},
    ),
    RequestRelation(
        "lora", "needs max_loras",
        lambda e, r: e.max_loras > 0 or r.lora == 0, lambda e, r: {"lora": 0},
    ),
    RequestRelation(
        "images", "must lie in the prompt in order without overlap, each within the encoder's "
        "limits (an encoder-decoder request has exactly one, at offset 0)",
        lambda e, r: fitting_images(e, r) == r.images,
        lambda e, r: {"images": fitting_images(e, r)},
    ),
    RequestRelation(
        "external", "needs the scripted connector",
        lambda e, r: _scripted(e) or r.external is None, lambda e, r: {"external": None},
    ),
    RequestRelation(
        "external", "holds at most the prompt (one token less when loaded sync or with a mamba "
        "group), nothing for a kv_producer; a kv_consumer sends nothing; only an async load takes "
        "steps or fails as a whole; failed_blocks need full attention alone, and after a sync load "
        "v1 without async_scheduling",
        lambda e, r: fitting_external(e, r) == r.external,
        lambda e, r: {"external": fitting_external(e, r)},
    ),
    RequestRelation(
        "turns", "a streaming session has neither images, grammar nor external KV here",
        lambda e, r: not r.turns or not (r.images or r.structured or r.external),
        lambda e, r: {"turns": ()},
    ),
    RequestRelation(
        "prompt_logprobs", "a streaming session has none here",
        lambda e, r: not (r.turns and r.prompt_logprobs), lambda e, r: {"prompt_logprobs": False},
    ),
    RequestRelation(
        "turns", "come one by one after the arrival; only the last may have length 0, and then "
        "max_tokens 1 and nothing else",
        lambda e, r: fitting_turns(r) == r.turns, lambda e, r: {"turns": fitting_turns(r)},
    ),
)  # fmt: skip
