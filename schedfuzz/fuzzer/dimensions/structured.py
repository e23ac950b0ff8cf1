"""Nouns: structured output: grammars, their compilation, the end of the reasoning.

What is hard about a grammar is when it begins and ends: a marker inside a draft window, a
compilation that others overtake, a stop token that only the grammar allows. So its numbers lie
within a window of those moments.
"""

from random import Random
from typing import Literal

from msgspec.structs import replace

from schedfuzz.corpus.events import Abort, Event, ResetPrefixCache
from schedfuzz.corpus.parts import Structured
from schedfuzz.corpus.scenario import Engine, Prompt, Request
from schedfuzz.fuzzer.dimensions.dimension import Dimension
from schedfuzz.fuzzer.draft import Draft
from schedfuzz.fuzzer.edges import Fragment, window
from schedfuzz.fuzzer.motifs import random_accept, twin
from schedfuzz.fuzzer.repair import clamp

KINDS: tuple[Literal["json", "structural_tag"], ...] = ("json", "structural_tag")


def shape(rng: Random, engine: Engine) -> Engine:
    """Return the engine with a reasoning parser, mostly, and with drafts to be validated."""
    width = engine.num_speculative_tokens or rng.choice((0, 1, 2, 2, 3, 4))
    return replace(
        engine, num_speculative_tokens=width, reasoning=rng.random() < 0.7,
        grammar_backend="xgrammar" if rng.random() < 0.1 else "stub",
    )  # fmt: skip


def dress(rng: Random, engine: Engine, request: Request) -> Request:
    """Give most requests a grammar."""
    if rng.random() < 0.3:
        return request
    return replace(request, structured=_script(rng, engine, request))


def _script(rng: Random, engine: Engine, request: Request) -> Structured:
    reasoning_end = None
    if engine.reasoning and rng.random() < 0.8:
        most = max(0, request.max_tokens - 1)
        reasoning_end = rng.randint(0, min(most, 2 * window(engine) + 2))
        if rng.random() < 0.15:
            reasoning_end = clamp(most + rng.randint(-2, 1), 0, engine.max_model_len)
    ends_after = 0
    if rng.random() < 0.4:
        room = request.max_tokens - (0 if reasoning_end is None else reasoning_end + 1)
        ends_after = max(1, room - rng.randint(0, 2 * window(engine)))
    return Structured(
        kind=rng.choice(KINDS),
        compile_steps=rng.choice((0, 0, 0, 0, 1, 2, 3, 5)),
        fails=rng.random() < 0.02,
        ends_after=ends_after,
        reasoning_end=reasoning_end,
    )


def thinking(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """Requests whose drafts are all right end their reasoning inside a window, side by side."""
    width = window(engine)
    requests = []
    for index in range(rng.randint(1, 3)):
        length = clamp(rng.randint(1, engine.block_size + 2), 1, engine.max_model_len - 1)
        outputs = clamp(rng.randint(width + 1, 4 * width + 4), 1, engine.max_model_len - length)
        accept = random_accept(rng, engine) if rng.random() < 0.3 else (width - 1,)
        prompt = Prompt(length, rng.randint(3, 6))
        requests.append(
            Request(number + index, prompt, outputs, step + rng.randint(0, 2), accept=accept)
        )
    return requests, _reset(rng, step) if rng.random() < 0.3 else []


def compiling(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """A grammar is still compiled while a twin of its request caches the prefix and decodes."""
    requests, events = twin(rng, engine, number, step)
    late = requests[-1]
    script = replace(_script(rng, engine, late), compile_steps=rng.randint(1, 8))
    requests[-1] = replace(late, structured=script)
    if rng.random() < 0.3:
        at = late.arrival + rng.randint(0, script.compile_steps + 2)
        events = [*events, Abort(at, late.id, rng.random() < 0.5)]
    return requests, events


def _reset(rng: Random, step: int) -> list[Event]:
    return [ResetPrefixCache(step + rng.randint(2, 9), True)]


def move_marker(draft: Draft, rng: Random) -> None:
    """Move the end of the reasoning or of the grammar by a token or a window."""
    index, request = draft.pick(rng)
    script = request.structured
    if script is None:
        return
    by = rng.choice((-1, 1, window(draft.engine), -window(draft.engine)))
    if script.ends_after and rng.random() < 0.5:
        script = replace(script, ends_after=max(0, script.ends_after + by))
    else:
        script = replace(script, reasoning_end=max(0, (script.reasoning_end or 0) + by))
    draft.requests[index] = replace(request, structured=script)


def change_script(draft: Draft, rng: Random) -> None:
    """Deal one request another grammar, none, or another time of compilation."""
    index, request = draft.pick(rng)
    roll = rng.random()
    script: Structured | None = _script(rng, draft.engine, request)
    if request.structured is not None and roll < 0.6:
        script = replace(request.structured, compile_steps=rng.randint(0, 8))
        if roll < 0.3:
            script = replace(request.structured, kind=rng.choice(KINDS))
    elif roll > 0.85:
        script = None
    draft.requests[index] = replace(request, structured=script)


STRUCTURED = Dimension(
    "structured output", 6, shape, lambda engine: engine.reasoning, dress, (thinking, compiling),
    (move_marker, change_script),
    lambda requests, events: any(request.structured is not None for request in requests),
)  # fmt: skip
