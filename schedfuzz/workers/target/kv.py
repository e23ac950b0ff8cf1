"""Nouns: KV cache, KV group.

The shadow KV cache of an engine: a shadow per group, addressed through that group's own block
table. All groups draw on one pool of blocks, so what one of them writes to a block destroys what
another had there.
"""

from collections.abc import Callable, Sequence
from typing import Any

from schedfuzz.corpus.parts import Group
from schedfuzz.corpus.scenario import Engine
from schedfuzz.workers.target.cross import CrossKV
from schedfuzz.workers.target.recurrent import RecurrentKV, target_column
from schedfuzz.workers.target.rows import Row
from schedfuzz.workers.target.shadow import ShadowKV
from schedfuzz.workers.target.state import State


class KVCache:
    """All groups of one engine, in the order of a request's block tables."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.zeroes = False  # whether the release says that new blocks need zeroing
        groups = len(engine.groups) or 1
        self.arrange(range(groups + (engine.model == "encoder-decoder")))

    def arrange(self, order: Sequence[int]) -> None:
        """Put the groups into the order in which the engine sends block tables."""
        self.groups: list[ShadowKV | RecurrentKV] = [
            self._shadow(number, index, len(order) > 1) for index, number in enumerate(order)
        ]
        pairs = list(enumerate(self.groups))
        self.attention = [(i, group) for i, group in pairs if isinstance(group, ShadowKV)]
        self.recurrent = [(i, group) for i, group in pairs if isinstance(group, RecurrentKV)]

    def _shadow(self, number: int, index: int, several: bool) -> ShadowKV | RecurrentKV:
        engine = self.engine
        taken = self._taker(index) if several else None
        kinds = engine.groups or (Group("full"),)
        if number == len(kinds):  # beside the decoder's own
            return CrossKV(engine.num_blocks, engine.block_size, taken=taken)
        group = kinds[number]
        if group.kind == "mamba":
            return RecurrentKV(engine.num_blocks, engine.block_size, taken)
        return ShadowKV(engine.num_blocks, engine.block_size, group.window, taken)

    def _taker(self, index: int) -> Callable[[int], None]:
        """Return how the other groups lose a block that this one starts to write."""

        def taken(block_id: int) -> None:
            for other, group in enumerate(self.groups):
                if other != index:
                    group.clear(block_id)

        return taken

    # -- before the forward ----------------------------------------------------------------------

    def begin(self, output: Any) -> None:
        """Apply what the step does to blocks before its forward: zeroing, then copies."""
        for block_id in getattr(output, "new_block_ids_to_zero", None) or ():
            self.clear(block_id)
        copies = getattr(output, "kv_cache_block_copies", None)
        if copies:
            # All sources are read before any target is written.
            held = [(to, [group.content(source) for group in self.groups]) for source, to in copies]
            for to, contents in held:
                self.clear(to)
                for group, content in zip(self.groups, contents, strict=True):
                    if content is not None:
                        group.put(to, content)  # type: ignore[arg-type]

    def clear(self, block_id: int) -> None:
        """Forget what a block holds, whichever group wrote it."""
        for group in self.groups:
            group.clear(block_id)

    def empty(self, block_id: int) -> bool:
        """Return whether no group has written a block."""
        return all(group.content(block_id) is None for group in self.groups)

    def half_filled(self, row: Row) -> int | None:
        """Return a block that a row starts to fill in part while a recurrent state stands in it.

        Attention reads whole blocks and masks afterwards: bytes of a state may be no numbers.
        """
        index = (row.end - 1) // self.engine.block_size
        for at, _ in self.attention if row.end % self.engine.block_size else ():
            table = row.state.tables[at]
            block = table[index] if index < len(table) else 0
            if any(states.content(block) is not None for _, states in self.recurrent):
                return block
        return None

    def uncovered(self, tables: list[list[int]], start: int, end: int, drafts: int = 0) -> str:
        """Return what is wrong with tables for queries at start..end-1, "" for nothing."""
        for index, group in self.attention:
            problem = group.uncovered(tables[index], start, end)
            if problem:
                return problem
        for index, states in self.recurrent:
            problem = states.uncovered(tables[index], start, end, drafts)
            if problem:
                return problem
        return ""

    def unreached(self, tables: list[list[int]], start: int, end: int) -> str:
        """Return what is wrong with tables for a drafter at start..end-1, which has no states."""
        problems = (group.uncovered(tables[index], start, end) for index, group in self.attention)
        return next((problem for problem in problems if problem), "")

    # -- the forward and its end -----------------------------------------------------------------

    def compute(self, rows: list[Row]) -> None:
        """Run the forward of all rows: load recurrent states, then store what is computed."""
        for index, states in self.recurrent:
            states.load([row.state.tables[index] for row in rows], rows)
        for row in rows:
            for group, table in zip(self.groups, row.state.tables, strict=True):
                group.compute(table, row)
        if self.recurrent:
            for row in rows:
                row.state.recurrent = (target_column(row, self.engine.block_size), 1)

    def mismatch(self, row: Row) -> str:
        """Return what a row attends to or starts from that is not its own, "" for nothing."""
        for group, table in zip(self.groups, row.state.tables, strict=True):
            problem = group.mismatch(table, row)
            if problem:
                return problem
        return ""

    def settle(self, row: Row, sampled: int) -> None:
        """Take over how many tokens a row yielded (0: none was kept)."""
        if not self.recurrent:
            return
        accepted = max(1, sampled)
        for index, group in self.recurrent:
            group.settle(row.state.tables[index], row, accepted)
        size = self.engine.block_size
        target = target_column(row, size)
        newest = row.end - len(row.drafts) + accepted - 1
        # A state saved in the very column of the running one has no drafts beyond it any more.
        row.state.recurrent = (target, 1 if newest // size - 1 == target else accepted)

    def used(self, state: State, start: int, end: int) -> set[int]:
        """Return the blocks that queries at start..end-1 read or write."""
        size = self.engine.block_size
        found: set[int] = set()
        for index, group in self.attention:
            found.update(state.tables[index][group.first(start) // size : -(-end // size)])
        for index, _ in self.recurrent:
            table, column = state.tables[index], (start - 1) // size
            if state.recurrent is not None:
                column = sum(state.recurrent) - 1
            if 0 <= column < len(table):
                found.add(table[column])
            found.update(table[-(-end // size) - 1 :])
        return found

    # -- what comes from outside -----------------------------------------------------------------

    def receive(
        self, tables: Sequence[list[int]], digests: list[int], start: int, end: int, states: bool
    ) -> None:
        """Store what a connector loaded for positions start..end-1, wherever there is a block.

        `states` says whether it also restored the recurrent state after `end` tokens.
        """
        size = self.engine.block_size
        for index, group in self.attention:
            table = tables[index]
            for low in range(start // size * size, end, size):
                if low // size < len(table) and table[low // size]:
                    group.write(table, max(start, low), digests, min(end, low + size))
        if states and end > start:
            for index, recurrent in self.recurrent:
                recurrent.receive(tables[index], digests, end)
