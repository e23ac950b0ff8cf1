"""Nouns: scheduler options, the V2 runner.

Dimensions that are a value or two of the engine and nothing of its requests.
"""

from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.relations import V2_METHODS
from schedfuzz.corpus.scenario import Engine
from schedfuzz.corpus.sizing import least_token_budget
from schedfuzz.fuzzer.dimensions.dimension import Dimension


def _option(name: str, weight: int, **values: tuple[int | bool, ...]) -> Dimension:
    """Return the dimension of plain fields with the values worth trying."""

    def shape(rng: Random, engine: Engine) -> Engine:
        return replace(engine, **{field: rng.choice(some) for field, some in values.items()})

    def on(engine: Engine) -> bool:
        return any(getattr(engine, field) in some for field, some in values.items())

    return Dimension(name, weight, shape, on)


def _budget_shape(rng: Random, engine: Engine) -> Engine:
    least = least_token_budget(engine)
    return replace(engine, max_num_scheduled_tokens=least + rng.choice((0, 0, 1, 4, 16)))


def _fewer_active(rng: Random, engine: Engine) -> Engine:
    seats = max(2, engine.max_num_seqs)
    return replace(engine, max_num_seqs=seats, max_num_active_seqs=rng.randint(1, seats - 1))


def _v2(rng: Random, engine: Engine) -> Engine:
    return replace(engine, model_runner="v2", spec_method=rng.choice(V2_METHODS))


OPTIONS: tuple[Dimension, ...] = (
    _option("watermark", 2, watermark_percent=(1, 5, 10, 30)),
    _option("no full-prompt reserve", 3, scheduler_reserve_full_isl=(False,)),
    _option("prefill interval", 1, prefill_schedule_interval=(2, 3, 4)),
    _option("adaptive threshold", 1, long_prefill_token_threshold_adaptive=(True,),
            long_prefill_token_threshold=(4, 16, 24)),
    Dimension("scheduled-token budget", 1, _budget_shape,
              lambda engine: engine.max_num_scheduled_tokens > 0),
    Dimension("active seats", 1, _fewer_active, lambda engine: engine.max_num_active_seqs > 0),
)  # fmt: skip
V2_RUNNER = Dimension("V2 runner", 6, _v2, lambda engine: engine.model_runner == "v2")
