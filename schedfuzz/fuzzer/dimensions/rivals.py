"""Nouns: rivals: requests of different priority that want the same blocks.

A victim is only interesting where the scheduler does not expect it: before the request that needs
its blocks, not scheduled in this step, or scheduled a moment ago.
"""

from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.events import Event, ThrottlePrefills
from schedfuzz.corpus.scenario import Engine, Prompt, Request
from schedfuzz.corpus.sizing import blocks_for
from schedfuzz.fuzzer.dimensions.dimension import Dimension
from schedfuzz.fuzzer.draft import Draft
from schedfuzz.fuzzer.edges import Fragment
from schedfuzz.fuzzer.motifs import random_accept
from schedfuzz.fuzzer.repair import clamp


def _shape(rng: Random, engine: Engine) -> Engine:
    """A pool of a request or two, and prompts that take several steps."""
    size = engine.block_size
    fit = blocks_for(engine.max_model_len, size)
    threshold = rng.choice((0, size - 4, size, size // 2))
    return replace(
        engine, policy="priority", num_blocks=fit + rng.randint(1, 4),
        long_prefill_token_threshold=threshold,
    )  # fmt: skip


def _dress(rng: Random, engine: Engine, request: Request) -> Request:
    if request.priority or rng.random() < 0.4:
        return request
    return replace(request, priority=rng.randint(-1, 2))


def stalled_victim(rng: Random, engine: Engine, number: int, step: int) -> Fragment:
    """The least important request stands first and is held back while the others grow."""
    size, limit = engine.block_size, engine.max_model_len
    length = clamp(limit - rng.randint(1, size), 1, limit - 1)
    victim = Request(number, Prompt(length, 7), rng.randint(1, 4), step, priority=3)
    requests = [victim]
    usable = engine.num_blocks - 1
    growers = clamp(rng.randint(2, 4), 1, max(1, usable - 1))
    for index in range(1, growers + 1):
        short = clamp(size - rng.randint(0, 5), 1, limit - 1)
        outputs = clamp(rng.randint(6, size + 4), 1, limit - short)
        requests.append(
            Request(
                number + index, Prompt(short, 8 + index), outputs, step + rng.choice((0, 1, 1, 2)),
                rng.randint(-1, 1), random_accept(rng, engine),
            )
        )  # fmt: skip
    events: list[Event] = []
    if rng.random() < 0.7:
        events.append(ThrottlePrefills(step + rng.randint(1, 5), rng.choice((4, 10, 20))))
    return requests, events


def exchange_priorities(draft: Draft, rng: Random) -> None:
    """Let two requests change places in importance."""
    draft.exchange(rng, "priority")


RIVALS = Dimension(
    "priority rivals", 4, _shape, lambda engine: engine.policy == "priority", _dress,
    (stalled_victim,), (exchange_priorities,),
)  # fmt: skip
