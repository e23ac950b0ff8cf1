"""Nouns: Dimension.

One thing that a scheduler may have to deal with besides plain requests. The generator switches some
on in an engine and then lets each dress the requests and bring its own motifs and edits, so that
dimensions meet each other without knowing of each other.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from schedfuzz.corpus.events import Event
from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.fuzzer.draft import Edit
from schedfuzz.fuzzer.edges import Motif


def undressed(rng: Random, engine: Engine, request: Request) -> Request:
    """Return the request as it is."""
    return request


def unshaped(rng: Random, engine: Engine) -> Engine:
    """Return the engine as it is: the dimension is one of requests or events."""
    return engine


def never(engine: Engine) -> bool:
    """Return False: no engine shows the dimension."""
    return False


def untold(requests: Sequence[Request], events: Sequence[Event]) -> bool:
    """Return False: no story shows the dimension."""
    return False


class Dimension(NamedTuple):
    """`shape` switches it on, `on` says whether it is on, `dress` gives a request its share.

    A dimension that is nothing of the engine leaves `shape` and `on` as `unshaped` and `never`;
    `told` says whether a story's requests and events have it.
    What they return may break rules of the language: whoever applies them repairs afterwards.
    `weight` is the chance to be chosen, relative to the others'.
    """

    name: str
    weight: int
    shape: Callable[[Random, Engine], Engine]
    on: Callable[[Engine], bool]
    dress: Callable[[Random, Engine, Request], Request] = undressed
    motifs: tuple[Motif, ...] = ()
    edits: tuple[Edit, ...] = ()
    told: Callable[[Sequence[Request], Sequence[Event]], bool] = untold
