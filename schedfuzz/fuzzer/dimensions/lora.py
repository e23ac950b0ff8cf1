"""Nouns: LoRA dimension: more adapters are asked for than a step may use."""

from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.scenario import Engine, Prompt, Request
from schedfuzz.fuzzer.dimensions.dimension import Dimension
from schedfuzz.fuzzer.draft import Draft
from schedfuzz.fuzzer.edges import Fragment
from schedfuzz.fuzzer.motifs import random_length, random_outputs, random_request


def _shape(rng: Random, engine: Engine) -> Engine:
    return replace(engine, max_loras=rng.choice((1, 1, 1, 2, 3)))


def _dress(rng: Random, engine: Engine, request: Request) -> Request:
    return replace(request, lora=request.lora or rng.randint(0, engine.max_loras + 2))


def groups(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """Adapters take turns: those that decode hold the places that the next ones wait for."""
    requests = []
    for index in range(rng.randint(2, 4)):
        request = random_request(rng, engine, number + index, step + rng.choice((0, 0, 1, 2, 4)))
        requests.append(replace(request, lora=1 + rng.randrange(engine.max_loras + 1)))
    return requests, []


def same_words(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """One prompt under several adapters and under none: they must not share what is cached."""
    length = random_length(rng, engine)
    prompt = Prompt(length, 12 + rng.randrange(3))
    requests = []
    for index in range(rng.randint(2, 4)):
        outputs = random_outputs(rng, engine, length)
        arrival = step + index * rng.choice((0, 1, 2, 6))
        lora = rng.randint(0, engine.max_loras + 1)
        requests.append(Request(number + index, prompt, outputs, arrival, lora=lora))
    return requests, []


def change_adapter(draft: Draft, rng: Random) -> None:
    """Give a request another adapter, or that of another request."""
    index, request = draft.pick(rng)
    _, other = draft.pick(rng)
    lora = rng.choice((other.lora, 0, 1, rng.randint(1, draft.engine.max_loras + 1)))
    draft.requests[index] = replace(request, lora=lora)


LORA = Dimension(
    "LoRA", 3, _shape, lambda engine: engine.max_loras > 0, _dress, (groups, same_words),
    (change_adapter,),
)  # fmt: skip
