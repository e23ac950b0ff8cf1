"""Nouns: plain passes (rewrites to defaults, ids, order).

Whatever a story does not need is written as its default, for all requests at once where that
holds and one by one where not; ids follow arrivals, so that stories that differ only in their
names come out as the same bytes.
"""

from collections.abc import Callable
from itertools import pairwise

from msgspec.structs import replace

from schedfuzz.corpus.events import Abort, Event
from schedfuzz.corpus.scenario import Prompt, Request, Scenario
from schedfuzz.fuzzer.passes import Pass, Search, paced, with_request

Rewrite = Callable[[Scenario, Request], Request]


def _plain(_: Scenario, request: Request) -> Request:
    prompt = Prompt(request.prompt.length)
    return Request(request.id, prompt, request.max_tokens, request.arrival)


def _first_family(_: Scenario, request: Request) -> Request:
    prompt = request.prompt
    return replace(request, prompt=Prompt(prompt.length, 0, prompt.shared))


def _whole_prompt(_: Scenario, request: Request) -> Request:
    return replace(request, prompt=Prompt(request.prompt.length, request.prompt.family))


def _new_family(scenario: Scenario, request: Request) -> Request:
    """Share nothing with others, said by a family of its own."""
    others = {r.prompt.family for r in scenario.requests if r.id != request.id}
    family = next(number for number in range(len(others) + 1) if number not in others)
    return replace(request, prompt=Prompt(request.prompt.length, family))


def _ranked_priority(scenario: Scenario, request: Request) -> Request:
    ranks = sorted({r.priority for r in scenario.requests})
    return replace(request, priority=ranks.index(request.priority))


def _no_priority(_: Scenario, request: Request) -> Request:
    return replace(request, priority=0)


def _all_rejected(_: Scenario, request: Request) -> Request:
    return replace(request, accept=(0,))


def _all_accepted(scenario: Scenario, request: Request) -> Request:
    return replace(request, accept=(scenario.engine.num_speculative_tokens,))


def _first_accept(_: Scenario, request: Request) -> Request:
    return replace(request, accept=request.accept[:1])


def _last_accept(_: Scenario, request: Request) -> Request:
    return replace(request, accept=request.accept[1:] or request.accept)


REWRITES: tuple[Rewrite, ...] = (
    _plain,
    _first_family,
    _whole_prompt,
    _new_family,
    _no_priority,
    _ranked_priority,
    _all_rejected,
    _all_accepted,
    _first_accept,
    _last_accept,
)


def defaults(best: Scenario) -> Search:
    """Rewrite the optional fields of all requests at once, else of one after the other."""
    for rewrite in REWRITES:
        found = yield _rewritten(best, rewrite)
        if found is best:
            found = yield paced(best, _rewritten(best, rewrite))
        if found is not best or len(best.requests) == 1:
            best = found
            continue
        for index in range(len(best.requests)):
            best = yield with_request(best, index, rewrite(best, best.requests[index]))
    for index, event in enumerate(best.events):
        plain: Event = (
            Abort(event.step, event.request)
            if isinstance(event, Abort)
            else type(event)(event.step)
        )
        best = yield replace(best, events=(*best.events[:index], plain, *best.events[index + 1 :]))
    return best


def _rewritten(scenario: Scenario, rewrite: Rewrite) -> Scenario:
    requests = tuple(rewrite(scenario, request) for request in scenario.requests)
    return replace(scenario, requests=requests)


def names(best: Scenario) -> Search:
    """Number the requests by arrival and the families by appearance, then try exchanges."""
    ordered = sorted(best.requests, key=lambda request: (request.arrival, request.id))
    best = yield _renumbered(best, ordered)
    best = yield _families_by_appearance(best)
    for index in range(len(best.requests) - 1):
        exchanged = list(best.requests)
        exchanged[index : index + 2] = reversed(exchanged[index : index + 2])
        best = yield _renumbered(best, exchanged)
    for one, other in pairwise(sorted({r.prompt.family for r in best.requests})):
        best = yield _with_families(best, {one: other, other: one})
    return best


def _renumbered(scenario: Scenario, ordered: list[Request]) -> Scenario:
    """Return the scenario with ids 0, 1, ... in the given order, aborts along."""
    number = {request.id: index for index, request in enumerate(ordered)}
    return replace(
        scenario,
        requests=tuple(replace(request, id=number[request.id]) for request in ordered),
        events=tuple(
            replace(event, request=number[event.request]) if isinstance(event, Abort) else event
            for event in scenario.events
        ),
    )


def _families_by_appearance(scenario: Scenario) -> Scenario:
    families = dict.fromkeys(request.prompt.family for request in scenario.requests)
    return _with_families(scenario, {family: index for index, family in enumerate(families)})


def _with_families(scenario: Scenario, number: dict[int, int]) -> Scenario:
    def renamed(_: Scenario, request: Request) -> Request:
        prompt = request.prompt
        family = number.get(prompt.family, prompt.family)
        return replace(request, prompt=Prompt(prompt.length, family, prompt.shared))

    return _rewritten(scenario, renamed)


PLAIN_PASSES: tuple[Pass, ...] = (defaults, names)
