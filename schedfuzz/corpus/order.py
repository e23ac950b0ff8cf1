"""Nouns: order, roomy pool.

Minimizing needs one total order, or its answer depends on the path. Fewer requests beat fewer
events beat fewer engine steps beat an engine nearer to the defaults beat shorter lengths; the
canonical bytes break the last tie, so two different scenarios are never equal.
"""

from typing import Any

import msgspec

from schedfuzz.corpus.codec import encode
from schedfuzz.corpus.scenario import Engine, Scenario
from schedfuzz.corpus.sizing import blocks_for

Rank = tuple[int, int, int, int, int, int, int, int, bytes]

# max_model_len and num_blocks have no default; the pool's is `roomy`.
DEFAULTS = Engine(max_model_len=4, num_blocks=2)
NUMBERS = (
    "block_size",
    "max_num_seqs",
    "max_num_batched_tokens",
    "long_prefill_token_threshold",
    "num_speculative_tokens",
    "pipeline_parallel_size",
    "canvas_length",
    "prefix_match_unit",
    "watermark_percent",
    "max_num_scheduled_tokens",
    "prefill_schedule_interval",
    "encoder_cache_size",
    "max_num_encoder_input_tokens",
    "max_loras",
    "prefill_checkpoint_alignment",
    "max_num_active_seqs",
)
# every other field that has a default
SWITCHES = tuple(
    name
    for name in Engine.__struct_fields__
    if name not in (*NUMBERS, "max_model_len", "num_blocks")
)


def order(scenario: Scenario, steps: int) -> Rank:
    """Return the rank of a scenario that took `steps` engine steps; the smaller, the simpler."""
    away, distance = _engine_distance(scenario)
    return (
        len(scenario.requests),
        len(scenario.events),
        steps,
        away,
        distance,
        _size(scenario),
        _non_defaults(scenario),
        len(raw := encode(scenario)),
        raw,
    )


def roomy(scenario: Scenario) -> int:
    """Return the num_blocks that holds all requests at full length: no pressure, ever."""
    engine = scenario.engine
    return 1 + len(scenario.requests) * blocks_for(engine.max_model_len, engine.block_size)


def _engine_distance(scenario: Scenario) -> tuple[int, int]:
    """Return (fields that are not at their default, sum of their distances)."""
    engine = scenario.engine
    gaps = [abs(getattr(engine, name) - getattr(DEFAULTS, name)) for name in NUMBERS]
    gaps += [getattr(engine, name) != getattr(DEFAULTS, name) for name in SWITCHES]
    gaps.append(abs(engine.num_blocks - roomy(scenario)))
    return sum(gap > 0 for gap in gaps), sum(gaps)


def _size(scenario: Scenario) -> int:
    """Return the sum of lengths and times; an output token weighs double, for it costs a step."""
    total = scenario.engine.max_model_len + sum(map(_weight, scenario.events))
    for part in (*scenario.engine.groups, scenario.engine.connector):
        total += _weight(part)
    for request in scenario.requests:
        total += _weight(request) + request.max_tokens - request.id - request.prompt.family
    return total


def _weight(part: Any) -> int:
    """Return the sum of all numbers in a part, whatever their sign."""
    if isinstance(part, msgspec.Struct):
        return sum(_weight(getattr(part, name)) for name in part.__struct_fields__)
    if isinstance(part, tuple):
        return sum(map(_weight, part))
    return abs(part) if isinstance(part, int) else 0


def _non_defaults(scenario: Scenario) -> int:
    """Return how many optional fields of requests and events are written."""
    return sum(map(_written, (*scenario.requests, *scenario.events)))


def _written(part: Any) -> int:
    if isinstance(part, tuple):
        return sum(map(_written, part))
    if not isinstance(part, msgspec.Struct):
        return 0
    count = 0
    for field in msgspec.structs.fields(type(part)):
        value = getattr(part, field.name)
        count += not field.required and value != field.default
        count += _written(value)
    return count
