"""Nouns: focus.

A hunt may keep to some dimensions. What a scenario has of the others is taken off as what a runner
cannot play is: the limit names the first field that another dimension lives by.
"""

from collections.abc import Collection

from msgspec.structs import fields, replace

from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.order import DEFAULTS
from schedfuzz.corpus.scenario import Request, Scenario
from schedfuzz.fuzzer.dimensions import DIMENSIONS, active
from schedfuzz.fuzzer.dimensions.dimension import Dimension
from schedfuzz.fuzzer.supported import Limit

NAMES = tuple(dimension.name for dimension in DIMENSIONS)
_OPTIONAL = [field for field in fields(Request) if not field.required]


def focused(names: Collection[str]) -> Limit:
    """Return a limit that no scenario with a dimension besides `names` keeps.

    Raises InputError for a name that is no dimension.
    """
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        raise InputError(f"dimension {unknown[0]!r} is unknown; there are: {', '.join(NAMES)}")

    def limit(scenario: Scenario) -> str | None:
        # The last first: a later dimension may need an earlier one.
        for dimension in reversed(active(scenario.engine, scenario.requests, scenario.events)):
            if dimension.name not in names:
                field = _lives_by(dimension, scenario)
                if field is not None:
                    return field
        return None

    return limit


def among(names: Collection[str]) -> tuple[Dimension, ...]:
    """Return the dimensions to generate from: those named, or all for none."""
    return tuple(one for one in DIMENSIONS if one.name in names) or DIMENSIONS


def both_limits(one: Limit | None, other: Limit | None) -> Limit | None:
    """Return the limit that keeps to both."""
    if one is None or other is None:
        return one or other
    first, second = one, other
    return lambda scenario: first(scenario) or second(scenario)


def _lives_by(dimension: Dimension, scenario: Scenario) -> str | None:
    """Return the field without which the scenario does not show the dimension."""
    engine = scenario.engine
    if dimension.on(engine):
        for name in engine.__struct_fields__:
            plain = getattr(DEFAULTS, name, None)
            if getattr(engine, name) != plain and name not in ("max_model_len", "num_blocks"):
                without = replace(engine, **{name: plain})
                if not dimension.on(without):
                    return f"engine.{name}"
        return None
    for field in _OPTIONAL:
        plain = tuple(replace(one, **{field.name: field.default}) for one in scenario.requests)
        if not dimension.told(plain, scenario.events):
            return f"requests.{field.name}"
    for kind in sorted({type(event).__name__ for event in scenario.events}):
        rest = tuple(event for event in scenario.events if type(event).__name__ != kind)
        if not dimension.told(scenario.requests, rest):
            return f"events.{kind}"
    return None
