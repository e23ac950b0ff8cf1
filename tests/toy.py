"""A toy scheduler and toy faults: predicates for the minimizer that need no vLLM.

Each fault mimics the kind of a real one: a relation between lengths, limits, times and prefixes,
not a magic value. A predicate returns the engine steps when its fault shows, else None.
"""

from collections.abc import Callable, Iterator
from random import Random

from schedfuzz.corpus.events import Abort, ResetPrefixCache
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.sizing import blocks_for
from schedfuzz.fuzzer.generate import generate
from schedfuzz.fuzzer.mutate import crossover, mutate

Predicate = Callable[[Scenario], int | None]


def begin(scenario: Scenario, request: Request) -> int:
    """Return the first step in which the request decodes."""
    budget = scenario.engine.max_num_batched_tokens
    return request.arrival + blocks_for(request.prompt.length, budget)


def end(scenario: Scenario, request: Request) -> int:
    """Return the step after the request's last: accepted drafts save steps, an abort ends it."""
    engine = scenario.engine
    wanted = min(request.max_tokens, engine.max_model_len - request.prompt.length)
    step, tokens = begin(scenario, request), 1
    while tokens < wanted:
        accepted = request.accept[(request.prompt.length + tokens - 1) % len(request.accept)]
        tokens += 1 + min(accepted, engine.num_speculative_tokens)
        step += 1
    aborts = [e.step for e in scenario.events if isinstance(e, Abort) and e.request == request.id]
    return min([step, *(max(at, request.arrival) for at in aborts)])


def steps(scenario: Scenario) -> int:
    """Return how many steps the toy takes for the whole scenario."""
    last = max(end(scenario, request) for request in scenario.requests)
    return 1 + max([last, *(event.step for event in scenario.events)])


def agree(one: Request, other: Request) -> int:
    """Return how many tokens the two prompts have in common."""
    if one.prompt.family != other.prompt.family:
        return 0
    return min(
        prompt.length if prompt.shared is None else prompt.shared
        for prompt in (one.prompt, other.prompt)
    )


def padded_past_limit(scenario: Scenario) -> int | None:
    """A one-token tail after a cached prefix, a draft window from the limit, while one decodes."""
    engine = scenario.engine
    if not engine.num_speculative_tokens or not engine.prefix_caching:
        return None
    for late in scenario.requests:
        cached = late.prompt.length - 1
        if cached < engine.block_size or cached % engine.block_size:
            continue
        if cached + 1 + engine.num_speculative_tokens != engine.max_model_len:
            continue
        others = [other for other in scenario.requests if other.id != late.id]
        warm = any(agree(o, late) >= cached and begin(scenario, o) <= late.arrival for o in others)
        busy = any(begin(scenario, o) <= late.arrival < end(scenario, o) for o in others)
        if warm and busy:
            return steps(scenario)
    return None


def reset_in_flight(scenario: Scenario) -> int | None:
    """A preempting reset while a request decodes whose drafts get rejected, async only."""
    if not scenario.engine.async_scheduling or not scenario.engine.num_speculative_tokens:
        return None
    for event in scenario.events:
        if isinstance(event, ResetPrefixCache) and event.preempt_running:
            for request in scenario.requests:
                last = end(scenario, request)
                if begin(scenario, request) + 1 < event.step < last and 0 in request.accept:
                    return steps(scenario)
    return None


def victim_of_pressure(scenario: Scenario) -> int | None:
    """Live requests of two priorities outgrow the pool, the less urgent one came first."""
    engine = scenario.engine
    if engine.policy != "priority":
        return None
    for late in scenario.requests:
        held = 0
        older = False
        for other in scenario.requests:
            if other.arrival <= late.arrival < end(scenario, other):
                held += blocks_for(other.prompt.length + 1, engine.block_size)
                older |= other.arrival < late.arrival and other.priority > late.priority
        if older and held > engine.num_blocks - 1:
            return steps(scenario)
    return None


def abort_then_twin(scenario: Scenario) -> int | None:
    """A request is aborted in flight and its twin, a whole block in common, comes right after."""
    requests = {request.id: request for request in scenario.requests}
    for event in scenario.events:
        if isinstance(event, Abort) and event.in_flight:
            leaver = requests[event.request]
            if leaver.arrival > event.step or begin(scenario, leaver) > event.step:
                continue
            for twin in scenario.requests:
                common = agree(leaver, twin) >= scenario.engine.block_size
                if twin.id != leaver.id and common and 0 <= twin.arrival - event.step <= 2:
                    return steps(scenario)
    return None


def head_never_fits(scenario: Scenario) -> int | None:
    """A pool that is one block short: the null block was not counted for the longest request."""
    engine = scenario.engine
    usable = (engine.num_blocks - 1) * engine.block_size
    if any(request.prompt.length > usable for request in scenario.requests):
        return steps(scenario)
    return None


def drafts_past_blocks(scenario: Scenario) -> int | None:
    """A whole prompt in one chunk ends within a draft window of a block boundary."""
    engine = scenario.engine
    for request in scenario.requests:
        length, size = request.prompt.length, engine.block_size
        left = -length % size
        if length <= engine.max_num_batched_tokens and left < engine.num_speculative_tokens:
            return steps(scenario)
    return None


def one_token_chunk(scenario: Scenario) -> int | None:
    """The last chunk of a long prompt is one token, and comes while every seat is taken."""
    engine = scenario.engine
    threshold = engine.long_prefill_token_threshold
    if threshold < 2:
        return None
    for request in scenario.requests:
        length = request.prompt.length
        if length > threshold and length % threshold == 1:
            at = begin(scenario, request)
            taken = sum(o.arrival <= at < end(scenario, o) for o in scenario.requests)
            if taken >= engine.max_num_seqs:
                return steps(scenario)
    return None


WITNESSES: dict[Predicate, Scenario] = {
    padded_past_limit: Scenario(
        Engine(68, 40, max_num_seqs=4, num_speculative_tokens=3, async_scheduling=True),
        (
            Request(0, Prompt(64, family=2), 9, accept=(1,)),
            Request(1, Prompt(20), 12, arrival=2),
            Request(2, Prompt(65, family=2), 3, arrival=11),
        ),
    ),
    reset_in_flight: Scenario(
        Engine(90, 40, num_speculative_tokens=4, async_scheduling=True),
        (Request(0, Prompt(33), 20, arrival=3, accept=(0, 2)),),
        (ResetPrefixCache(8, preempt_running=True),),
    ),
    victim_of_pressure: Scenario(
        Engine(130, 14, policy="priority"),
        (
            Request(0, Prompt(60), 20, arrival=1, priority=2),
            Request(1, Prompt(50), 8, arrival=3, priority=1),
            Request(2, Prompt(100), 5, arrival=5, priority=-1),
        ),
    ),
    abort_then_twin: Scenario(
        Engine(100, 50, block_size=32, num_speculative_tokens=2),
        (Request(0, Prompt(70, 1), 20, arrival=2), Request(1, Prompt(50, 1), 9, arrival=9)),
        (Abort(7, 0, in_flight=True),),
    ),
    head_never_fits: Scenario(
        Engine(130, 9, num_speculative_tokens=2),
        (Request(0, Prompt(20), 20), Request(1, Prompt(129), 1, arrival=5)),
    ),
    drafts_past_blocks: Scenario(
        Engine(120, 30, num_speculative_tokens=4, async_scheduling=True),
        (Request(0, Prompt(40), 9), Request(1, Prompt(62), 9, arrival=3)),
    ),
    one_token_chunk: Scenario(
        Engine(120, 30, max_num_seqs=2, long_prefill_token_threshold=16),
        (Request(0, Prompt(20), 15), Request(1, Prompt(49), 9, arrival=3)),
    ),
}


def starts(predicate: Predicate, seed: int, count: int, least: int = 5) -> Iterator[Scenario]:
    """Yield `count` noisy scenarios that show the fault, each with `least` or more requests."""
    rng = Random(seed)
    while count:
        scenario = WITNESSES[predicate]
        for _ in range(30):
            if rng.random() < 0.3:
                other = crossover(scenario, generate(rng), rng)
            else:
                other = mutate(scenario, rng)
            if predicate(other) is not None:
                scenario = other
        if len(scenario.requests) >= least:
            count -= 1
            yield scenario
