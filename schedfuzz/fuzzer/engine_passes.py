"""Nouns: engine passes (limit, switches, numbers, window, block size, pool).

Limits and the lengths near them must move together: a request that fails one draft window short
of max_model_len still does when both are a block smaller, and never when only one of them is.
"""

from collections.abc import Callable

from msgspec.structs import replace

from schedfuzz.corpus.order import DEFAULTS, NUMBERS, SWITCHES, roomy
from schedfuzz.corpus.scenario import Request, Scenario
from schedfuzz.corpus.validate import ENGINE_BOUNDS
from schedfuzz.fuzzer.edges import window
from schedfuzz.fuzzer.passes import (
    Less,
    Pass,
    Search,
    chunks,
    descend,
    paced,
    pool_following,
    retimed,
    shorter,
    times_of,
)

Follow = Callable[[Scenario, Request], int]  # share of the shift that a request follows: 0 or 1
LEAST_LIMIT = ENGINE_BOUNDS["max_model_len"][0]


def _nobody(_: Scenario, __: Request) -> int:
    return 0


def _near_ones(scenario: Scenario, request: Request) -> int:
    """Requests whose prompt ends within a draft window and a block of the limit."""
    slack = window(scenario.engine) + scenario.engine.block_size
    return int(request.prompt.length + slack >= scenario.engine.max_model_len)


def _everybody(_: Scenario, __: Request) -> int:
    return 1


def limit(best: Scenario) -> Search:
    """Lower max_model_len with the prompts near it, with all prompts, alone, or with outputs."""
    for follow in (_near_ones, _everybody, _nobody):
        for unit in (best.engine.block_size, 1):
            best = yield from descend(best, _depth(best, follow), _lowering(follow), unit)
    return (yield from descend(best, _output_depth(best), _lower_with_outputs))


def _depth(scenario: Scenario, follow: Follow) -> int:
    """Return how far the limit can fall before the longest follower has one token left."""
    most = scenario.engine.max_model_len - LEAST_LIMIT
    followers = [r.prompt.length - 1 for r in scenario.requests if follow(scenario, r)]
    return min(most, max(followers, default=most))


def _lowering(follow: Follow) -> Less:
    def less(best: Scenario, amount: int) -> Scenario:
        requests = tuple(
            shorter(request, amount * follow(best, request)) for request in best.requests
        )
        return _lowered(best, amount, requests)

    return less


def _lowered(before: Scenario, amount: int, requests: tuple[Request, ...]) -> Scenario:
    """Return the scenario with a lower limit, these requests, and the pool following."""
    top = max(LEAST_LIMIT, before.engine.max_model_len - amount)
    lower = replace(before.engine, max_model_len=top)
    return pool_following(before, replace(before, engine=lower, requests=requests))


def _reaching(scenario: Scenario) -> list[Request]:
    top = scenario.engine.max_model_len
    return [r for r in scenario.requests if r.prompt.length + r.max_tokens >= top]


def _output_depth(scenario: Scenario) -> int:
    """Return how far the limit can fall at the cost of outputs that reach it."""
    spare = [r.max_tokens - 1 for r in _reaching(scenario)]
    return min([scenario.engine.max_model_len - LEAST_LIMIT, *spare]) if spare else 0


def _lower_with_outputs(best: Scenario, amount: int) -> Scenario:
    reaching = {request.id for request in _reaching(best)}
    requests = tuple(
        replace(r, max_tokens=r.max_tokens - amount) if r.id in reaching else r
        for r in best.requests
    )
    return _lowered(best, amount, requests)


def switches(best: Scenario) -> Search:
    """Set everything but limits, window and async to its default at once, else field by field."""
    kept = best.engine
    calm = replace(
        DEFAULTS,
        max_model_len=kept.max_model_len,
        num_blocks=roomy(best),
        num_speculative_tokens=kept.num_speculative_tokens,
        async_scheduling=kept.async_scheduling,
    )
    best = yield replace(best, engine=calm)
    for name in SWITCHES:
        best = yield _with_engine(best, name, getattr(DEFAULTS, name))
    return best


def _with_engine(scenario: Scenario, name: str, value: object) -> Scenario:
    return replace(scenario, engine=replace(scenario.engine, **{name: value}))


def numbers(best: Scenario) -> Search:
    """Move the seats, the token budget, the threshold and the pool towards their defaults."""
    for name in NUMBERS:
        if name not in ("block_size", "num_speculative_tokens"):
            target = getattr(DEFAULTS, name)
            if name == "max_num_batched_tokens":
                best = yield _at_once(_with_engine(best, name, target))
                best = yield _unchunked(best, _with_engine(best, name, target))
            if name == "long_prefill_token_threshold":
                most = best.engine.long_prefill_token_threshold - 1
                best = yield from descend(best, most, _thinner_chunks)
            distance = abs(getattr(best.engine, name) - target)
            best = yield from descend(best, distance, _towards(name, target))
    pool = roomy(best)
    distance = abs(best.engine.num_blocks - pool)
    return (yield from descend(best, distance, _towards("num_blocks", pool)))


def _at_once(scenario: Scenario) -> Scenario:
    """Return the scenario with its times 0, 1, 2, ...: larger chunks need less time."""
    rank = {time: index for index, time in enumerate(times_of(scenario))}
    return retimed(scenario, rank.__getitem__)


def _unchunked(before: Scenario, after: Scenario) -> Scenario:
    """Return `after` with as many more outputs as its prompts take fewer steps.

    Every request ends when it did; the limit rises when the outputs need it.
    """
    requests = []
    for request in before.requests:
        saved = chunks(before.engine, request) - chunks(after.engine, request)
        requests.append(replace(request, max_tokens=request.max_tokens + saved))
    top = max(request.prompt.length + request.max_tokens for request in requests)
    engine = replace(after.engine, max_model_len=max(after.engine.max_model_len, top))
    return replace(after, engine=engine, requests=tuple(requests))


def _thinner_chunks(best: Scenario, amount: int) -> Scenario:
    """Return the scenario with a lower threshold; prompts keep their chunks and remainders."""
    old = best.engine.long_prefill_token_threshold
    new = old - amount
    requests = []
    for request in best.requests:
        whole, rest = divmod(request.prompt.length, old)
        length = max(1, whole * new + min(rest, new))
        requests.append(shorter(request, request.prompt.length - length))
    thinner = _with_engine(best, "long_prefill_token_threshold", new)
    return replace(thinner, requests=tuple(requests))


def _towards(name: str, target: int) -> Less:
    def less(best: Scenario, amount: int) -> Scenario:
        value = getattr(best.engine, name)
        return _with_engine(best, name, value + (amount if value < target else -amount))

    return less


def draft_window(best: Scenario) -> Search:
    """Narrow the speculative width: alone, with the limit, and with the prompts near it."""
    for follow in (None, _nobody, _near_ones, _everybody):
        width = best.engine.num_speculative_tokens
        best = yield from descend(best, width, _narrowing(follow))
    return (yield from descend(best, best.engine.num_speculative_tokens - 1, _growing))


def _growing(best: Scenario, amount: int) -> Scenario:
    """Narrow the width and lengthen the prompts and the limit: each window ends where it did."""
    longer = tuple(shorter(request, -amount) for request in best.requests)
    engine = replace(best.engine, max_model_len=best.engine.max_model_len + amount)
    taller = pool_following(best, replace(best, engine=engine, requests=longer))
    return _narrowing(None)(taller, amount)


def _narrowing(follow: Follow | None) -> Less:
    def less(best: Scenario, amount: int) -> Scenario:
        width = best.engine.num_speculative_tokens - amount
        lower = best if follow is None else _lowering(follow)(best, amount)
        requests = tuple(
            replace(r, accept=tuple(min(value, width) for value in r.accept))
            for r in lower.requests
        )
        narrow = _with_engine(replace(lower, requests=requests), "num_speculative_tokens", width)
        return paced(best, narrow)

    return less


def block_size(best: Scenario) -> Search:
    """Use the default block size: as it is, or with all lengths scaled in whole blocks."""
    best = yield _with_engine(best, "block_size", DEFAULTS.block_size)
    return (yield _scaled(best))


def _scaled(scenario: Scenario) -> Scenario:
    """Return the scenario with the same block counts and remainders at the default block size."""
    engine, size = scenario.engine, DEFAULTS.block_size

    def scale(tokens: int) -> int:
        return tokens // engine.block_size * size + tokens % engine.block_size

    requests = tuple(
        shorter(request, request.prompt.length - scale(request.prompt.length))
        for request in scenario.requests
    )
    longest = max(request.prompt.length for request in scenario.requests)
    top = scale(longest) + engine.max_model_len - longest
    scaled = replace(engine, block_size=size, max_model_len=max(LEAST_LIMIT, top))
    return replace(scenario, engine=scaled, requests=requests)


ENGINE_PASSES: tuple[Pass, ...] = (limit, switches, numbers, draft_window, block_size)
