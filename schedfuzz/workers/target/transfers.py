"""Nouns: load, handoff, tables: what the halves of a KV connector tell each other.

Also what both directions of a transfer ask of the runner: the digests of a request's positions and
the slots behind a block table.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from schedfuzz.corpus.tokens import contents, extend_digests, prompt_tokens, seed_of
from schedfuzz.workers.target.state import State

if TYPE_CHECKING:
    from schedfuzz.workers.target.kv import KVCache
    from schedfuzz.workers.target.runner import SimulatedRunner

Tables = tuple[list[int], ...]  # a block table per KV group


class Load(NamedTuple):
    """Positions start..end-1 are to be loaded through `tables`.

    `is_first` says that nothing was loaded for the request before.
    """

    request: str
    tables: Tables
    start: int
    end: int
    is_async: bool
    is_first: bool


class Handoff(NamedTuple):
    """A request ended with `tokens` tokens, `computed` by the scheduler's count, in `tables`.

    `kept` says that the connector holds the blocks back to send them.
    """

    request: str
    tables: Tables
    computed: int
    tokens: int
    kept: bool


class Contents:
    """What each position of a request holds; `states` are the requests that ever ran."""

    def __init__(self, runner: "SimulatedRunner") -> None:
        self.runner = runner
        self.states: dict[str, State] = {}

    def digests(self, req_id: str) -> list[int]:
        """Return the digest after each position of the request that is known so far."""
        state = self.states.get(req_id)
        if state is not None:
            return state.digests
        request = self.runner.requests[req_id]
        digests: list[int] = []
        tokens = prompt_tokens(request)
        extend_digests(digests, contents(request, tokens), seed_of(request.lora))
        return digests


def slots(
    kv: "KVCache", tables: Tables, start: int, end: int, query: int
) -> Iterator[tuple[int, int]]:
    """Yield (position, content) of positions start..end-1 that have a block, group by group.

    Only those that queries from position `query` on attend to.
    """
    size = kv.engine.block_size
    for index, group in kv.attention:
        table = tables[index]
        low = max(start, group.first(query))
        for position in range(low, min(end, len(table) * size)):
            if table[position // size]:
                yield position, group.slot(table, position)
