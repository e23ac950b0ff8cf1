"""Nouns: repair, request bounds.

A mutation may ignore every rule of the language, because one clamp at the end makes its result
valid again. Clamping moves an out-of-range value to the nearest bound, which is where schedulers
break anyway; a valid scenario comes back as it was.
"""

from collections.abc import Iterable
from itertools import count

import msgspec

from schedfuzz.corpus.scenario import (
    NO_ACCEPT,
    SCHEMA_VERSION,
    Abort,
    Engine,
    Event,
    Prompt,
    Request,
    ResetPrefixCache,
    Scenario,
)
from schedfuzz.corpus.validate import (
    BLOCK_SIZES,
    ENGINE_BOUNDS,
    MAX_ACCEPT,
    MAX_ACCEPTED,
    MAX_EVENTS,
    MAX_FAMILY,
    MAX_ID,
    MAX_PRIORITY,
    MAX_REQUESTS,
    MAX_STEP,
    blocks_for,
    event_order,
    least_token_budget,
)


def repair(scenario: Scenario) -> Scenario:
    """Return the nearest valid scenario in canonical order; idempotent, raises nothing.

    Without requests it gets the smallest one; an abort of an unknown request is dropped.
    """
    engine = repair_engine(scenario.engine)
    requests = _requests(engine, scenario.requests)
    ids = {request.id for request in requests}
    events = _events(scenario.events, ids) if scenario.events else ()
    return Scenario(engine, requests, events, SCHEMA_VERSION)


def repair_engine(engine: Engine) -> Engine:
    """Return the nearest valid engine, the same object if it is valid."""
    changes: dict[str, int] = {}
    for name, (least, most) in ENGINE_BOUNDS.items():
        value = getattr(engine, name)
        if not least <= value <= most:
            changes[name] = clamp(value, least, most)
    if engine.block_size not in BLOCK_SIZES:
        size = engine.block_size
        changes["block_size"] = min(BLOCK_SIZES, key=lambda known: (abs(known - size), known))
    if changes:
        engine = msgspec.structs.replace(engine, **changes)
    return _relations(engine)


def _relations(engine: Engine) -> Engine:
    changes: dict[str, int] = {}
    fit = blocks_for(engine.max_model_len, engine.block_size)
    if engine.num_blocks < fit:
        changes["num_blocks"] = fit
    budget = least_token_budget(engine)
    if engine.max_num_batched_tokens < budget:
        changes["max_num_batched_tokens"] = budget
    if engine.long_prefill_token_threshold > engine.max_model_len:
        changes["long_prefill_token_threshold"] = engine.max_model_len
    return msgspec.structs.replace(engine, **changes) if changes else engine


def clamp(value: int, least: int, most: int) -> int:
    """Return `value` moved into least..most."""
    return least if value < least else most if value > most else value


def _requests(engine: Engine, requests: tuple[Request, ...]) -> tuple[Request, ...]:
    """Return valid requests by id; a second user of an id gets the lowest free one."""
    if not requests:
        return (Request(0, Prompt(1), 1),)
    kept = [_request(engine, request) for request in requests[:MAX_REQUESTS]]
    taken = {request.id for request in kept}
    if len(taken) < len(kept):
        free = (number for number in count() if number not in taken)
        seen: set[int] = set()
        for index, request in enumerate(kept):
            if request.id in seen:
                kept[index] = msgspec.structs.replace(request, id=next(free))
            seen.add(request.id)
    kept.sort(key=lambda request: request.id)
    return tuple(kept)


def _request(engine: Engine, request: Request) -> Request:
    """Return the nearest valid request, the same object if it is valid."""
    prompt, limit = request.prompt, engine.max_model_len
    length = clamp(prompt.length, 1, limit - 1)
    shared = prompt.shared
    if shared is not None:
        shared = clamp(shared, 0, length)
    family = clamp(prompt.family, 0, MAX_FAMILY)
    if (length, family, shared) != (prompt.length, prompt.family, prompt.shared):
        prompt = Prompt(length, family, shared)
    accept = request.accept[:MAX_ACCEPT]
    if accept in ((), (0,)):
        accept = NO_ACCEPT
    elif max(accept) > MAX_ACCEPTED or min(accept) < 0:
        accept = tuple(clamp(value, 0, MAX_ACCEPTED) for value in accept)
        accept = NO_ACCEPT if accept == NO_ACCEPT else accept
    fixed = Request(
        clamp(request.id, 0, MAX_ID),
        prompt,
        clamp(request.max_tokens, 1, limit),
        clamp(request.arrival, 0, MAX_STEP),
        clamp(request.priority, -MAX_PRIORITY, MAX_PRIORITY),
        accept,
    )
    return request if fixed == request and accept is request.accept else fixed


def _events(events: Iterable[Event], ids: set[int]) -> tuple[Event, ...]:
    kept: list[Event] = []
    for event in events:
        step = clamp(event.step, 0, MAX_STEP)
        if isinstance(event, Abort):
            if event.request in ids:
                kept.append(Abort(step, event.request, event.in_flight))
        else:
            kept.append(ResetPrefixCache(step, event.preempt_running))
    kept.sort(key=event_order)
    return tuple(kept[:MAX_EVENTS])
