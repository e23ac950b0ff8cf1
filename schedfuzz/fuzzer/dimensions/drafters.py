"""Nouns: drafters: methods, widths by batch size, drafters that propose less, pipeline ranks."""

from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.relations import V2_METHODS
from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.fuzzer.dimensions.dimension import Dimension
from schedfuzz.fuzzer.draft import Draft
from schedfuzz.fuzzer.edges import Fragment
from schedfuzz.fuzzer.motifs import random_accept, random_request
from schedfuzz.fuzzer.repair import clamp


def _width(rng: Random, engine: Engine) -> int:
    return engine.num_speculative_tokens or rng.choice((1, 2, 3, 3, 5, 7))


def _method(rng: Random, engine: Engine) -> Engine:
    method = rng.choice(("eagle", "eagle", "mtp", "dflash", "dflash", "draft_model"))
    return replace(engine, spec_method=method, num_speculative_tokens=_width(rng, engine))


def _tight(rng: Random, engine: Engine) -> Engine:
    """A drafter with a token budget that the seats and their drafts just fill."""
    shaped = _method(rng, engine)
    width, seats = shaped.num_speculative_tokens, rng.choice((1, 2, 3, 4))
    budget = seats * (1 + width) + rng.choice((0, 1, seats, seats * width))
    return replace(shaped, max_num_seqs=seats, max_num_batched_tokens=budget, chunked_prefill=True)


def _ngram(rng: Random, engine: Engine) -> Engine:
    return replace(
        engine, spec_method="ngram", num_speculative_tokens=_width(rng, engine),
        async_scheduling=False, model_runner="v1",
    )  # fmt: skip


def _proposals(rng: Random, engine: Engine, request: Request) -> Request:
    """Give an ngram drafter's luck: nothing, something, everything by position."""
    if engine.spec_method != "ngram" or rng.random() < 0.2:
        return request
    width = engine.num_speculative_tokens
    some = tuple(rng.choice((0, 0, rng.randint(0, width), width)) for _ in range(rng.randint(1, 5)))
    return replace(request, proposals=some, accept=random_accept(rng, engine))


def _by_batch(rng: Random, engine: Engine) -> Engine:
    width = _width(rng, engine)
    first = rng.randint(1, 2)
    rows = ((1, first, width), (first + 1, 64, rng.randint(0, width)))
    return replace(engine, num_speculative_tokens=width, spec_widths=rows)


def _ranks(rng: Random, engine: Engine) -> Engine:
    """Ranks with async scheduling, which only v2 takes, or without drafts."""
    ranks = rng.choice((2, 2, 3))
    if rng.random() < 0.5:
        return replace(
            engine, pipeline_parallel_size=ranks, async_scheduling=False, num_speculative_tokens=0
        )
    method = engine.spec_method if engine.spec_method in V2_METHODS else "eagle"
    return replace(
        engine, pipeline_parallel_size=ranks, async_scheduling=True, model_runner="v2",
        spec_method=method,
    )  # fmt: skip


def saturated(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """Every seat decodes at once, so that each step's drafts compete for the budget."""
    count = clamp(engine.max_num_seqs, 1, 6)
    requests = []
    for index in range(count):
        request = random_request(rng, engine, number + index, step)
        length = clamp(request.prompt.length % 12 + 1, 1, engine.max_model_len - 1)
        prompt = replace(request.prompt, length=length, shared=None)
        outputs = clamp(rng.randint(3, 12), 1, engine.max_model_len - length)
        requests.append(replace(request, prompt=prompt, max_tokens=outputs))
    return requests, []


def change_method(draft: Draft, rng: Random) -> None:
    draft.engine = _method(rng, draft.engine)


def _with_method(engine: Engine) -> bool:
    return engine.num_speculative_tokens > 0 and engine.spec_method != "ngram"


DRAFTERS: tuple[Dimension, ...] = (
    Dimension("draft method", 4, _method, _with_method, motifs=(saturated,),
              edits=(change_method,)),
    Dimension("tight draft budget", 2, _tight, lambda engine: False),
    Dimension("ngram", 3, _ngram, lambda e: e.spec_method == "ngram", _proposals),
    Dimension("widths by batch size", 2, _by_batch, lambda engine: bool(engine.spec_widths)),
    Dimension("pipeline ranks", 3, _ranks, lambda engine: engine.pipeline_parallel_size > 1),
)  # fmt: skip
