"""Nouns: supported, left out.

A release that lacks a dimension answers `unsupported` with the field's name. The pair then leaves
that dimension out: whatever is generated from then on has the field at its default.
"""

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


class Supported:
    """What both targets of a pair have; `left_out` holds `engine.x`, `requests.x`, `events.X`.

    A field may be named with the one value, as JSON, that is possible: `engine.x true`.
    """

    def __init__(self) -> None:
        self.left_out: set[str] = set()

    def learn(self, reason: str) -> None:
        """Take over a trace's reason for being unsupported: the name of a field."""
        self.left_out.add(reason)

    def fit(self, scenario: Scenario) -> Scenario:
        """Return a scenario without what is left out, the same object if it has none of it."""
        if not self.left_out:
            return scenario
        engine = self._engine(scenario.engine)
        request = {
            name: _REQUEST_DEFAULTS[name]
            for name in self._names("requests")
            if name in _REQUEST_DEFAULTS
            and any(getattr(one, name) != _REQUEST_DEFAULTS[name] for one in scenario.requests)
        }
        happenings = set(self._names("events"))
        events = tuple(e for e in scenario.events if type(e).__name__ not in happenings)
        if not engine and not request and len(events) == len(scenario.events):
            return scenario
        requests = tuple(replace(one, **request) for one in scenario.requests)
        return repair(Scenario(mend(replace(scenario.engine, **engine)), requests, events))

    def _engine(self, engine: Engine) -> dict[str, Any]:
        """Return the fields of an engine that must change, with their values."""
        changes: dict[str, Any] = {}
        for entry in self._names("engine"):
            name, _, value = entry.partition(" ")
            wanted = msgspec.json.decode(value) if value else getattr(DEFAULTS, name, None)
            if getattr(engine, name, wanted) != wanted:
                changes[name] = wanted
        return changes

    def _names(self, part: str) -> list[str]:
        return [name.split(".", 1)[1] for name in self.left_out if name.startswith(part + ".")]
