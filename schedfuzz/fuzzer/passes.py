"""Nouns: pass, search, descend.

A pass is a generator: it yields candidates and is sent the best scenario so far, which is a new
object exactly when the candidate won. So passes read like plain loops, know nothing of running,
and carry on from where they are when something was won.
"""

from collections.abc import Callable, Generator

from msgspec.structs import replace

from schedfuzz.corpus.order import roomy
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.sizing import blocks_for

Search = Generator[Scenario, Scenario, Scenario]
Pass = Callable[[Scenario], Search]
Less = Callable[[Scenario, int], Scenario]


def descend(best: Scenario, most: int, less: Less, unit: int = 1) -> Search:
    """Take `most` from a number at once, else gallop in strides of `unit`; return the best.

    `less(best, amount)` builds the candidate with `amount` taken away. A number that cannot move
    at all costs two calls.
    """
    strides = most // unit
    if strides <= 0:
        return best
    found = yield less(best, strides * unit)
    if found is not best:
        return found
    stride, growing = 1, True
    while stride:
        won = False
        if stride <= strides:
            found = yield less(best, stride * unit)
            won = found is not best
        if won:
            best, strides = found, strides - stride
        growing = growing and won
        stride = stride * 2 if growing else stride // 2
    return best


def decode_steps(request: Request, engine: Engine) -> int:
    """Return how many steps the request decodes when nothing disturbs it."""
    wanted = min(request.max_tokens, engine.max_model_len - request.prompt.length)
    tokens, count = 1, 0
    while tokens < wanted:
        tokens += _step_tokens(request, engine, tokens)
        count += 1
    return count


def _step_tokens(request: Request, engine: Engine, tokens: int) -> int:
    """Return what the next decode step yields after `tokens` outputs: one and accepted drafts."""
    pattern, position = request.accept, request.prompt.length + tokens - 1
    return 1 + min(pattern[position % len(pattern)], engine.num_speculative_tokens)


def chunks(engine: Engine, request: Request) -> int:
    """Return how many steps the request's prompt takes when nothing else is scheduled."""
    share = engine.max_num_batched_tokens
    share = min(share, engine.long_prefill_token_threshold or share)
    return -(-request.prompt.length // share)


def paced(before: Scenario, after: Scenario) -> Scenario:
    """Return `after` with max_tokens such that each request decodes as many steps as in `before`.

    For changes of what a step yields: the times of the story keep their meaning.
    """
    requests = []
    for old, new in zip(before.requests, after.requests, strict=True):
        tokens = 1
        for _ in range(decode_steps(old, before.engine)):
            tokens += _step_tokens(new, after.engine, tokens)
        requests.append(replace(new, max_tokens=tokens))
    return replace(after, requests=tuple(requests))


def pool_following(before: Scenario, after: Scenario) -> Scenario:
    """Return `after` with a pool as roomy, or as much too tight, as it was in `before`.

    A tight pool loses the blocks that the prompts lost: the pressure stays what it was.
    """
    if before.engine.num_blocks >= roomy(before):
        pool = before.engine.num_blocks - roomy(before) + roomy(after)
    else:
        pool = before.engine.num_blocks - _held(before) + _held(after)
    return replace(after, engine=replace(after.engine, num_blocks=pool))


def _held(scenario: Scenario) -> int:
    size = scenario.engine.block_size
    return sum(blocks_for(request.prompt.length + 1, size) for request in scenario.requests)


def with_request(scenario: Scenario, index: int, request: Request) -> Scenario:
    """Return the scenario with another request at `index`."""
    requests = scenario.requests
    return replace(scenario, requests=(*requests[:index], request, *requests[index + 1 :]))


def times_of(scenario: Scenario) -> list[int]:
    """Return the distinct times of the story in order, in steps."""
    arrivals = {request.arrival for request in scenario.requests}
    turns = {turn.step for request in scenario.requests for turn in request.turns}
    return sorted(arrivals | turns | {event.step for event in scenario.events})


def retimed(scenario: Scenario, moved: Callable[[int], int]) -> Scenario:
    """Return the scenario with every time of its story (arrival, turn, event) moved."""
    return replace(
        scenario,
        requests=tuple(
            replace(
                request,
                arrival=moved(request.arrival),
                turns=tuple(replace(turn, step=moved(turn.step)) for turn in request.turns),
            )
            for request in scenario.requests
        ),
        events=tuple(replace(event, step=moved(event.step)) for event in scenario.events),
    )


def shorter(request: Request, amount: int) -> Request:
    """Return the request with a prompt `amount` tokens shorter, at least one token."""
    prompt = request.prompt
    shared = prompt.shared if prompt.shared is None else max(0, prompt.shared - amount)
    return replace(request, prompt=Prompt(max(1, prompt.length - amount), prompt.family, shared))
