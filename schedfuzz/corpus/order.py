"""Nouns: order, roomy pool.

Minimizing needs one total order, or its answer depends on the path. Fewer requests beat fewer
events beat fewer engine steps beat an engine nearer to the defaults beat shorter lengths; the
canonical bytes break the last tie, so two different scenarios are never equal.
"""

from schedfuzz.corpus.codec import encode
from schedfuzz.corpus.scenario import Engine, Request, Scenario
from schedfuzz.corpus.validate import blocks_for

Rank = tuple[int, int, int, int, int, int, int, int, bytes]

# max_model_len and num_blocks have no default; the pool's is `roomy`.
DEFAULTS = Engine(max_model_len=4, num_blocks=2)
NUMBERS = (
    "block_size",
    "max_num_seqs",
    "max_num_batched_tokens",
    "long_prefill_token_threshold",
    "num_speculative_tokens",
)
SWITCHES = ("chunked_prefill", "prefix_caching", "policy", "async_scheduling")


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
    total = scenario.engine.max_model_len + sum(event.step for event in scenario.events)
    for request in scenario.requests:
        total += request.prompt.length + (request.prompt.shared or 0)
        total += 2 * request.max_tokens + request.arrival + abs(request.priority)
        total += sum(request.accept)
    return total


def _non_defaults(scenario: Scenario) -> int:
    """Return how many optional fields of requests and events are written."""
    flags = sum(
        bool(getattr(event, "in_flight", False) or getattr(event, "preempt_running", False))
        for event in scenario.events
    )
    return flags + sum(_written(request) for request in scenario.requests)


def _written(request: Request) -> int:
    prompt = request.prompt
    optional = (request.arrival, request.priority, request.accept != (0,), prompt.family)
    return sum(map(bool, optional)) + (prompt.shared is not None)
