"""Nouns: story passes (requests, events, times, outputs, lengths).

Numbers of a story hang together (a request arrives while another decodes), so beside single
moves there are joint ones: a gap in time closes for all that follows, a family shrinks as one.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from schedfuzz.corpus.scenario import Prompt, Request, Scenario
from schedfuzz.fuzzer.passes import (
    Less,
    Pass,
    Search,
    chunks,
    descend,
    pool_following,
    retimed,
    shorter,
    times_of,
    with_request,
)

FEW = 4  # requests in a story whose pairs are few enough to try


def drop_requests(best: Scenario) -> Search:
    """Drop halves, quarters, ... single requests, the last arrivals first."""
    size = max(1, len(best.requests) // 2)
    while size:
        end = len(best.requests)
        while end > 0 and len(best.requests) > 1:
            leaving = _by_arrival(best)[max(0, end - size) : end]
            found = yield _without(best, leaving)
            if found is best and size == 1:
                without = _without(best, leaving)
                found = yield _close_gap(without, leaving[0].arrival)
                if found is best:
                    found = yield pool_following(best, without)
                if found is best:
                    found = yield _fewer_seats(without)
            end -= size
            best = found
        size //= 2
    return best


def _fewer_seats(scenario: Scenario) -> Scenario:
    """Return the scenario with a seat less: a request that only took a seat goes with it."""
    engine = replace(scenario.engine, max_num_seqs=scenario.engine.max_num_seqs - 1)
    return replace(scenario, engine=engine)


def merge_requests(best: Scenario) -> Search:
    """Let one request do the work of two: it comes with the first and lives until the second ends.

    Pairs are many, so only small stories are tried.
    """
    pairs = [(one, other) for other in range(len(best.requests)) for one in range(other)]
    for pair in pairs if len(best.requests) <= FEW else ():
        for keep, leave in (pair, pair[::-1]):
            merged = _merged(best, best.requests[keep], best.requests[leave])
            found = yield merged
            if found is best:
                found = yield _fewer_seats(merged)
            if found is not best:
                return found
    return best


def _merged(scenario: Scenario, kept: Request, left: Request) -> Scenario:
    arrival = min(kept.arrival, left.arrival)
    last = max(request.arrival + request.max_tokens for request in (kept, left))
    one = replace(kept, arrival=arrival, max_tokens=last - arrival)
    requests = tuple(one if request.id == kept.id else request for request in scenario.requests)
    merged = _without(replace(scenario, requests=requests), (left,))
    return pool_following(scenario, merged)


def _by_arrival(scenario: Scenario) -> list[Request]:
    return sorted(scenario.requests, key=lambda request: (request.arrival, request.id))


def _without(scenario: Scenario, leaving: Iterable[Request]) -> Scenario:
    gone = {request.id for request in leaving}
    kept = tuple(request for request in scenario.requests if request.id not in gone)
    # Repair would replace an empty story by a request of its own: keep one instead.
    return replace(scenario, requests=kept or scenario.requests[:1])


def _close_gap(scenario: Scenario, since: int) -> Scenario:
    """Return the scenario with all times after `since` moved so that the first falls on it."""
    later = [time for time in times_of(scenario) if time > since]
    return _sooner(scenario, later[0], later[0] - since) if later else scenario


def drop_events(best: Scenario) -> Search:
    """Drop all events, then single ones, the last first."""
    best = yield replace(best, events=())
    for index in reversed(range(len(best.events))):
        best = yield replace(best, events=best.events[:index] + best.events[index + 1 :])
    return best


def _sooner(scenario: Scenario, since: int, amount: int) -> Scenario:
    """Return the scenario with everything from step `since` on `amount` steps sooner."""
    return retimed(scenario, lambda time: time - amount if time >= since else time)


def times(best: Scenario) -> Search:
    """Close gaps (all that follows moves along), then move single arrivals and events."""
    best = yield replace(best, requests=tuple(replace(r, arrival=0) for r in best.requests))
    number = 0
    while number < len(found := times_of(best)):
        gap = found[number] - (found[number - 1] if number else 0)
        best = yield from descend(best, gap, _closing(number))
        if len(times_of(best)) == len(found):
            number += 1
    for index in range(len(best.requests)):
        best = yield from descend(best, best.requests[index].arrival, _arriving(index))
    for index in range(len(best.events)):
        best = yield from descend(best, best.events[index].step, _happening(index))
    return best


def _closing(number: int) -> Less:
    return lambda best, amount: _sooner(best, times_of(best)[number], amount)


def _arriving(index: int) -> Less:
    def less(best: Scenario, amount: int) -> Scenario:
        request = best.requests[index]
        return with_request(best, index, replace(request, arrival=request.arrival - amount))

    return less


def _happening(index: int) -> Less:
    def less(best: Scenario, amount: int) -> Scenario:
        events = list(best.events)
        events[index] = replace(events[index], step=events[index].step - amount)
        return replace(best, events=tuple(events))

    return less


def outputs(best: Scenario) -> Search:
    """Lower max_tokens: first to what fits the limit, then as far as it goes."""
    for index in range(len(best.requests)):
        request = best.requests[index]
        room = best.engine.max_model_len - request.prompt.length
        if request.max_tokens > room:
            best = yield with_request(best, index, replace(request, max_tokens=room))
        most = best.requests[index].max_tokens - 1
        best = yield from descend(best, most, _fewer_outputs(index))
    return best


def _fewer_outputs(index: int) -> Less:
    def less(best: Scenario, amount: int) -> Scenario:
        request = best.requests[index]
        return with_request(best, index, replace(request, max_tokens=request.max_tokens - amount))

    return less


def lengths(best: Scenario) -> Search:
    """Shorten prompts by blocks, chunks, then tokens: whole families first, then one by one."""
    for family in sorted({request.prompt.family for request in best.requests}):
        members = _members(best, family)
        if len(members) > 1:
            best = yield from _shorten(best, members)
    for index in range(len(best.requests)):
        best = yield from _shorten(best, (index,))
        best = yield _in_one_chunk(best, index)
        shared = best.requests[index].prompt.shared
        if shared is not None:
            best = yield from descend(best, shared, _less_shared(index))
    return best


def _in_one_chunk(scenario: Scenario, index: int) -> Scenario:
    """Return the scenario with a one-token prompt; what follows moves by the chunks saved."""
    request = scenario.requests[index]
    saved = chunks(scenario.engine, request) - 1
    short = with_request(scenario, index, shorter(request, request.prompt.length))
    later = [time for time in times_of(scenario) if time > request.arrival]
    if not later:
        return short
    return _sooner(short, later[0], min(saved, later[0] - request.arrival))


def _members(scenario: Scenario, family: int) -> tuple[int, ...]:
    requests = enumerate(scenario.requests)
    return tuple(index for index, request in requests if request.prompt.family == family)


def _shorten(best: Scenario, indices: tuple[int, ...]) -> Search:
    for unit in (best.engine.block_size, best.engine.long_prefill_token_threshold or 1, 1):
        for less in (_shortening(indices), _shortening_with_pool(indices)):
            most = min(best.requests[index].prompt.length for index in indices) - 1
            best = yield from descend(best, most, less, unit)
    return best


def _shortening(indices: tuple[int, ...]) -> Less:
    def less(best: Scenario, amount: int) -> Scenario:
        for index in indices:
            best = with_request(best, index, shorter(best.requests[index], amount))
        return best

    return less


def _shortening_with_pool(indices: tuple[int, ...]) -> Less:
    shorten = _shortening(indices)
    return lambda best, amount: pool_following(best, shorten(best, amount))


def _less_shared(index: int) -> Less:
    def less(best: Scenario, amount: int) -> Scenario:
        request = best.requests[index]
        prompt = request.prompt
        smaller = Prompt(prompt.length, prompt.family, (prompt.shared or 0) - amount)
        return with_request(best, index, replace(request, prompt=smaller))

    return less


STORY_PASSES: tuple[Pass, ...] = (
    drop_requests,
    merge_requests,
    drop_events,
    times,
    outputs,
    lengths,
)
