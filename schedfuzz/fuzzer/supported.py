"""Nouns: supported, left out, limit.

A release that lacks a dimension answers `unsupported` with the field's name. The pair then leaves
that dimension out: whatever is generated from then on has the field at its default. What a runner
cannot play is known beforehand, and only scenarios beyond such a limit are changed.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import fields, replace

from schedfuzz.corpus.order import DEFAULTS
from schedfuzz.corpus.relations import mend
from schedfuzz.corpus.scenario import Engine, Request, Scenario
from schedfuzz.fuzzer.repair import repair

_REQUEST_DEFAULTS = {
    field.name: field.default for field in fields(Request) if not field.required
}  # fmt: skip

# Returns the first field that cannot be played, as `unsupported` would name it.
Limit = Callable[[Scenario], str | None]


class Supported:
    """What both targets of a pair have; `left_out` holds `engine.x`, `requests.x`, `events.X`.

    A field may be named with the one value, as JSON, that is possible: `engine.x true`.
    """

    def __init__(self, limit: Limit | None = None) -> None:
        self.limit = limit
        self.left_out: set[str] = set()

    def learn(self, reason: str) -> None:
        """Take over a trace's reason for being unsupported: the name of a field."""
        self.left_out.add(reason)

    def fit(self, scenario: Scenario) -> Scenario:
        """Return a scenario without what is left out, the same object if it has none of it."""
        fitted = _without(scenario, self.left_out)
        beyond: set[str] = set()
        while self.limit is not None and (name := self.limit(fitted)) is not None:
            if name in beyond:  # repair brought it back
                break
            beyond.add(name)
            fitted = _without(fitted, self.left_out | beyond)
        return fitted


def _without(scenario: Scenario, left_out: set[str]) -> Scenario:
    if not left_out:
        return scenario
    engine = _engine(scenario.engine, _names(left_out, "engine"))
    request = {
        name: _REQUEST_DEFAULTS[name]
        for name in _names(left_out, "requests")
        if name in _REQUEST_DEFAULTS
        and any(getattr(one, name) != _REQUEST_DEFAULTS[name] for one in scenario.requests)
    }
    happenings = set(_names(left_out, "events"))
    events = tuple(e for e in scenario.events if type(e).__name__ not in happenings)
    if not engine and not request and len(events) == len(scenario.events):
        return scenario
    requests = tuple(replace(one, **request) for one in scenario.requests)
    return repair(Scenario(mend(replace(scenario.engine, **engine)), requests, events))


def _engine(engine: Engine, entries: Iterable[str]) -> dict[str, Any]:
    """Return the fields of an engine that must change, with their values."""
    changes: dict[str, Any] = {}
    for entry in entries:
        name, _, value = entry.partition(" ")
        wanted = msgspec.json.decode(value) if value else getattr(DEFAULTS, name, None)
        if getattr(engine, name, wanted) != wanted:
            changes[name] = wanted
    return changes


def _names(left_out: set[str], part: str) -> list[str]:
    return [name.split(".", 1)[1] for name in sorted(left_out) if name.startswith(part + ".")]
