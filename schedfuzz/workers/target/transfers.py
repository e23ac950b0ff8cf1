"""Nouns: load, handoff: what the halves of a KV connector tell each other."""

from typing import NamedTuple

Tables = tuple[list[int], ...]


class Load(NamedTuple):
    """Positions start..end-1 are to be loaded through `tables` (a block table per KV group)."""

    request: str
    tables: Tables
    start: int
    end: int
    is_async: bool
    is_first: bool


class Handoff(NamedTuple):
    """A request ended with `tokens` tokens, `computed` by the scheduler's count, in `tables`.

    `natural` says that it was not aborted, `kept` that the connector holds the blocks back.
    """

    request: str
    tables: Tables
    computed: int
    tokens: int
    natural: bool
    kept: bool
