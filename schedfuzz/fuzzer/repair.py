"""Nouns: repair, request bounds.

A mutation may ignore every rule of the language, because one clamp at the end makes its result
valid again. Clamping moves an out-of-range value to the nearest bound, which is where schedulers
break anyway; a valid scenario comes back as it was.
"""

from collections.abc import Iterable
from itertools import count
from typing import Any

import msgspec

from schedfuzz.corpus.events import Abort, Event
from schedfuzz.corpus.relations import mend
from schedfuzz.corpus.request_relations import mend_request
from schedfuzz.corpus.scenario import (
    NO_ACCEPT,
    SCHEMA_VERSION,
    Engine,
    Prompt,
    Request,
    Scenario,
)
from schedfuzz.corpus.validate import (
    BLOCK_SIZES,
    ENGINE_BOUNDS,
    EVENT_BOUNDS,
    MAX_ACCEPT,
    MAX_ACCEPTED,
    MAX_EVENTS,
    MAX_FAMILY,
    MAX_PARTS,
    MAX_REQUESTS,
    PART_BOUNDS,
    REQUEST_BOUNDS,
    Bounds,
    event_order,
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
    changes: dict[str, Any] = _clamped(engine, ENGINE_BOUNDS)
    if engine.block_size not in BLOCK_SIZES:
        size = engine.block_size
        changes["block_size"] = min(BLOCK_SIZES, key=lambda known: (abs(known - size), known))
    if engine.groups or engine.connector or engine.spec_widths:
        changes |= _repaired_parts(engine)
    if changes:
        engine = msgspec.structs.replace(engine, **changes)
    return mend(engine)


def _clamped(part: msgspec.Struct, bounds: Bounds) -> dict[str, Any]:
    """Return the named fields whose values are out of bounds, moved to the nearest bound."""
    changes: dict[str, Any] = {}
    for name, (least, most) in bounds.items():
        value = getattr(part, name, None)
        if isinstance(value, tuple):
            moved = tuple(clamp(entry, least, most) for entry in value[:MAX_PARTS])
            if moved != value:
                changes[name] = moved
        elif value is not None and not least <= value <= most:
            changes[name] = clamp(value, least, most)
    return changes


def _repaired_parts(owner: Engine | Request) -> dict[str, Any]:
    """Return the parts of an engine or request whose own fields are out of bounds, mended."""
    changes: dict[str, Any] = {}
    for name in owner.__struct_fields__:
        value = getattr(owner, name)
        if isinstance(value, tuple) and name != "accept":
            moved = tuple(map(_repaired_part, value[:MAX_PARTS]))
        else:
            moved = _repaired_part(value)
        if moved != value:
            changes[name] = moved
    return changes


def _repaired_part(part: Any) -> Any:
    bounds = PART_BOUNDS.get(type(part).__name__)
    if bounds is None:
        return part
    changes = _clamped(part, bounds)
    return msgspec.structs.replace(part, **changes) if changes else part


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
    changes: dict[str, Any] = _clamped(request, REQUEST_BOUNDS)
    if (length, family, shared) != (prompt.length, prompt.family, prompt.shared):
        changes["prompt"] = Prompt(length, family, shared)
    if not 1 <= request.max_tokens <= limit:
        changes["max_tokens"] = clamp(request.max_tokens, 1, limit)
    accept = _accept(request.accept)
    if accept is not request.accept:
        changes["accept"] = accept
    if request.proposals:
        changes["proposals"] = tuple(
            clamp(value, 0, MAX_ACCEPTED) for value in request.proposals[:MAX_PARTS]
        )
    if _dressed(request):
        changes |= _repaired_parts(request)
    if changes:
        request = msgspec.structs.replace(request, **changes)
    return mend_request(engine, request)


def _dressed(request: Request) -> bool:
    """Return whether the request has parts of its own."""
    parts = (request.images, request.turns, request.structured, request.external)
    return any(parts) or request.repetition is not None or request.sampling is not None


def _accept(accept: tuple[int, ...]) -> tuple[int, ...]:
    """Return the nearest valid pattern, the same object if it is valid."""
    if len(accept) > MAX_ACCEPT:
        accept = accept[:MAX_ACCEPT]
    if accept in ((), (0,)):
        return NO_ACCEPT
    if max(accept) > MAX_ACCEPTED or min(accept) < 0:
        accept = tuple(clamp(value, 0, MAX_ACCEPTED) for value in accept)
    return NO_ACCEPT if accept == NO_ACCEPT else accept


def _events(events: Iterable[Event], ids: set[int]) -> tuple[Event, ...]:
    kept: list[Event] = []
    for event in events:
        if isinstance(event, Abort) and event.request not in ids:
            continue
        changes = _clamped(event, EVENT_BOUNDS)
        kept.append(msgspec.structs.replace(event, **changes) if changes else event)
    kept.sort(key=event_order)
    return tuple(kept[:MAX_EVENTS])
