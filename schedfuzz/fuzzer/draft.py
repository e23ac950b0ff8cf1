"""Nouns: draft, edit.

An edit is one small change of a valid scenario, written on a draft (the scenario's parts as
lists). It may break any rule of the language: whoever applies it repairs afterwards.
"""

from collections.abc import Callable, Sequence
from random import Random

from msgspec.structs import replace

from schedfuzz.corpus.events import Abort, Event
from schedfuzz.corpus.scenario import Engine, Request, Scenario

NEVER = 6  # steps after a request's last likely token at which an event may still matter
SMALL_STEPS = (-8, -3, -2, -1, -1, 1, 1, 2, 3, 8)


class Draft:
    """A scenario being edited: an engine, a list of requests and a list of events."""

    def __init__(self, scenario: Scenario) -> None:
        self.engine: Engine = scenario.engine
        self.requests: list[Request] = list(scenario.requests)
        self.events: list[Event] = list(scenario.events)
        self.started_with = len(self.requests)

    def free_id(self) -> int:
        """Return an id above all others."""
        return 1 + max((request.id for request in self.requests), default=-1)

    def pick(self, rng: Random) -> tuple[int, Request]:
        """Return a random request with its index."""
        index = int(rng.random() * len(self.requests))
        return index, self.requests[index]

    def exchange(self, rng: Random, field: str) -> None:
        """Exchange a field of two random requests."""
        here, one = self.pick(rng)
        there, other = self.pick(rng)
        self.requests[here] = replace(one, **{field: getattr(other, field)})
        if there != here:
            self.requests[there] = replace(other, **{field: getattr(one, field)})

    def insert(self, requests: Sequence[Request], events: Sequence[Event], shift: int) -> None:
        """Add a story with fresh ids, `shift` steps later than written."""
        first = self.free_id()
        renamed = {request.id: first + index for index, request in enumerate(requests)}
        for request in requests:
            arrival = request.arrival + shift
            self.requests.append(replace(request, id=renamed[request.id], arrival=arrival))
        for event in events:
            step = event.step + shift
            if not isinstance(event, Abort):
                self.events.append(replace(event, step=step))
            elif event.request in renamed:
                self.events.append(Abort(step, renamed[event.request], event.in_flight))

    def moment(self, rng: Random) -> int:
        """Return a step relative to what exists: an arrival or an event, and a little later."""
        if self.events and rng.random() < 0.2:
            return self.events[int(rng.random() * len(self.events))].step + rng.choice((-1, 0, 1))
        _, request = self.pick(rng)
        return request.arrival + rng.randint(0, min(request.max_tokens, 20) + NEVER)


Edit = Callable[[Draft, Random], None]
