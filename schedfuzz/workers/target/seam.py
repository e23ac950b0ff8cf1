"""Nouns: seam, unsupported.

A seam is the one place that knows how the releases take one dimension: which `EngineArgs` it needs,
what to set in the config afterwards, which arguments of vLLM's Request. An argument that a release
does not have makes the scenario `unsupported` there, by the name of our field.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from schedfuzz.corpus.scenario import Engine, Request

Arguments = dict[str, Any]


class Rejected(Exception):
    """The release refuses this configuration or request with a validation error."""


class Unsupported(Exception):
    """The release does not have a dimension; `args[0]` is our field's name."""


def _no_arguments(engine: Engine) -> Arguments:
    return {}


def _as_it_is(engine: Engine, config: Any) -> None:
    pass


def _no_request_arguments(engine: Engine, request: Request, arguments: Arguments) -> None:
    pass


class Seam(NamedTuple):
    """One dimension; every function does nothing for an engine that has it off.

    `arguments` returns keyword arguments for `EngineArgs` (one that a release does not know raises
    Unsupported with `field`, ours), `finish` changes the VllmConfig made from them, and `request`
    adds to the arguments of vLLM's Request, whose "sampling" entry is a dict of arguments of
    SamplingParams. Any of them may raise Unsupported itself.
    """

    field: str
    arguments: Callable[[Engine], Arguments] = _no_arguments
    finish: Callable[[Engine, Any], None] = _as_it_is
    request: Callable[[Engine, Request, Arguments], None] = _no_request_arguments
