"""Nouns: mutate, crossover, edit table.

A mutation is a few small edits in the language's own terms (a length to an edge, an arrival by a
step, a twin of another request), never of its bytes. Most edits keep the engine, because a new
engine shape costs a target a new configuration, which is dearer than the run.
"""

from random import Random

from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.validate import MAX_EVENTS
from schedfuzz.fuzzer import engine_edits as engine
from schedfuzz.fuzzer import request_edits as requests
from schedfuzz.fuzzer.dimension_edits import change_dimensions, dress_again
from schedfuzz.fuzzer.dimensions import active
from schedfuzz.fuzzer.draft import Draft, Edit
from schedfuzz.fuzzer.repair import repair

# Longer stories cost steps without new meaning; a seed above this may only shrink or change.
TYPICAL_REQUESTS = 12
ATTEMPTS = 4
DIMENSION_SHARE = 0.3  # of the edits of a scenario with dimensions that are theirs

# weight, edit; num_blocks is free to change in a target, the other engine fields are not
EDITS: tuple[tuple[int, Edit], ...] = (
    (10, requests.length_to_edge),
    (8, requests.nudge_length),
    (8, requests.outputs_to_edge),
    (6, requests.end_at_edge),
    (5, requests.nudge_outputs),
    (8, requests.nudge_arrival),
    (6, requests.arrival_to_moment),
    (4, requests.shift_later_ones),
    (12, requests.delete_request),
    (5, requests.copy_request),
    (2, requests.split_request),
    (9, requests.share_prefix),
    (3, requests.own_prefix),
    (5, requests.change_accept),
    (3, requests.change_priority),
    (2, requests.swap_order),
    (4, engine.add_abort),
    (5, engine.add_reset),
    (5, engine.delete_event),
    (5, engine.move_event),
    (2, engine.flip_event),
    (5, requests.insert_motif),
    (4, engine.pool_to_edge),
    (4, engine.nudge_pool),
    (3, engine.change_limit),
    (3, engine.change_width),
    (2, engine.change_budget),
    (1, engine.change_threshold),
    (2, engine.change_seats),
    (3, engine.flip_async),
    (1, engine.flip_switch),
    (2, change_dimensions),
)

_TABLE = [edit for weight, edit in EDITS for _ in range(weight)]


def mutate(scenario: Scenario, rng: Random) -> Scenario:
    """Return a valid scenario one to four edits away, different from `scenario` if it can be.

    `scenario` must be valid; it is not changed. Same scenario and same state of `rng`, same result.
    """
    for _ in range(ATTEMPTS):
        result = scenario
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
            draft = Draft(result)
            _edit(draft, rng)
            result = _finish(draft)
        if result != scenario:
            break
    return result


def _edit(draft: Draft, rng: Random) -> None:
    """Apply one edit: often one of the dimensions' own when the engine has some on."""
    if rng.random() < DIMENSION_SHARE:
        on = active(draft.engine, draft.requests, draft.events)
        own = [edit for dimension in on for edit in dimension.edits]
        if on:
            rng.choice((*own, *(3 * [dress_again]), change_dimensions))(draft, rng)
            return
    _TABLE[int(rng.random() * len(_TABLE))](draft, rng)


def crossover(one: Scenario, other: Scenario, rng: Random) -> Scenario:
    """Return a valid scenario with the engine of `one` and both stories laid over each other.

    Each parent gives about three quarters of its requests, with the events that go with them.
    """
    draft, guest = Draft(one), Draft(other)
    _thin(draft, rng)
    _thin(guest, rng)
    draft.insert(guest.requests, guest.events, rng.choice((0, 0, 1, 2, 4, 8)))
    return _finish(draft)


def _thin(draft: Draft, rng: Random) -> None:
    """Keep each request with a chance of 3 in 4, but at least one."""
    kept = [request for request in draft.requests if rng.random() < 0.75]
    draft.requests = kept or [rng.choice(draft.requests)]


def _finish(draft: Draft) -> Scenario:
    del draft.requests[max(TYPICAL_REQUESTS, draft.started_with) :]
    del draft.events[MAX_EVENTS:]
    return repair(Scenario(draft.engine, tuple(draft.requests), tuple(draft.events)))
