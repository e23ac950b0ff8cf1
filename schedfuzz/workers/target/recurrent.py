"""Nouns: recurrent state, column, accepted.

A mamba layer keeps one state per sequence instead of a slot per position. In vLLM's "align" mode
the states lie in the blocks of a table: column c of it ends up with the state after (c + 1) blocks
of tokens, which is what a prefix hit resumes from. The model of a state is the digest of the prefix
after which it stands, so a hit, a copy or a rollback that leads to the wrong state reads as a wrong
digest. Source: vLLM's `v1/worker/mamba_utils.py`, both generations.
"""

from collections.abc import Callable

from schedfuzz.workers.target.checkpoints import Place
from schedfuzz.workers.target.rows import Row
from schedfuzz.workers.target.shadow import EMPTY


def target_column(row: Row, block_size: int) -> int:
    """Return the column in which a row keeps its running state: that of its last token."""
    return -(-row.end // block_size) - 1


def source(row: Row, block_size: int) -> tuple[int, int]:
    """Return the column of the state before a row, and by how many accepted drafts it is beyond.

    A request that is new to the runner resumes from the column of its last computed token (-1:
    none). After a verification the state after the i-th accepted draft stands i columns on.
    """
    if row.state.recurrent is None:
        return (row.start - 1) // block_size, 0
    column, accepted = row.state.recurrent
    return column, accepted - 1


class RecurrentKV:
    """The states of one mamba group: block -> digest of the prefix after which its state stands."""

    def __init__(
        self, num_blocks: int, block_size: int, taken: Callable[[int], None] | None = None
    ) -> None:
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.taken = taken
        self.place: Place = lambda row: None
        self._states: dict[int, int] = {}
        self._read: dict[int, int] = {}

    def uncovered(self, table: list[int], start: int, end: int, drafts: int = 0) -> str:
        """Return what a table lacks to keep the state after `end` - `drafts` .. `end` tokens."""
        target = -(-end // self.block_size) - 1
        needed = target + drafts + 1
        if len(table) < needed:
            return f"{len(table)} blocks for {end} tokens and {drafts} drafts, {needed} needed"
        if any(not 0 < block < self.num_blocks for block in table[target:needed]):
            return f"the null block or no block for its state after {end} tokens"
        return ""

    def load(self, tables: list[list[int]], rows: list[Row]) -> None:
        """Bring every row's state before it to where the row keeps it, and read it.

        All rows run at once: none can see a state that another one computes in the same step.
        """
        moved: dict[int, int] = {}
        for table, row in zip(tables, rows, strict=True):
            column, beyond = source(row, self.block_size)
            target = target_column(row, self.block_size)
            if column not in (-1, target):
                moved[table[target]] = self._at(table, column + beyond)
        for block_id, state in moved.items():
            self._keep(block_id, state)
        self._read = {}
        for table, row in zip(tables, rows, strict=True):
            column, beyond = source(row, self.block_size)
            target = target_column(row, self.block_size)
            at = target + beyond if column == target else target
            self._read[row.state.number] = self._at(table, at) if row.start else EMPTY

    def compute(self, table: list[int], row: Row) -> None:
        """Store the state after a row's last known token, after each of its drafts, and its
        checkpoint."""
        newest = row.end - len(row.drafts)
        target = target_column(row, self.block_size)
        for index in range(len(row.drafts) + 1):
            self._keep(table[target + index], row.digests[newest + index - 1])
        checkpoint = self.place(row)
        if checkpoint is not None and table[checkpoint[1]]:
            self._keep(table[checkpoint[1]], row.digests[checkpoint[0] - 1])

    def mismatch(self, table: list[int], row: Row) -> str:
        """Return whether a row started from the wrong state, "" if it did not."""
        if row.start == 0 or self._read[row.state.number] == row.digests[row.start - 1]:
            return ""
        held = "nothing" if self._read[row.state.number] == EMPTY else "another prefix's"
        return f"the recurrent state after {row.start} tokens that it starts from is {held}"

    def settle(self, table: list[int], row: Row, accepted: int) -> None:
        """Save the state at a block boundary that the accepted drafts reached or passed."""
        running = row.end - len(row.drafts)
        column = (running + accepted - 1) // self.block_size - 1
        beyond = (column + 1) * self.block_size - running
        if beyond >= 0:
            target = target_column(row, self.block_size)
            self._keep(table[column], self._at(table, target + beyond))

    def receive(self, table: list[int], digests: list[int], end: int) -> None:
        """Store the state after `end` tokens where a request resumes from it."""
        self._keep(table[(end - 1) // self.block_size], digests[end - 1])

    def holds(self, digest: int) -> bool:
        """Return whether some block has the state after the prefix with this digest."""
        return digest in self._states.values()

    def clear(self, block_id: int) -> None:
        """Forget what a block holds."""
        self._states.pop(block_id, None)

    def content(self, block_id: int) -> int | None:
        """Return what a block holds, None for nothing."""
        return self._states.get(block_id)

    def put(self, block_id: int, content: int) -> None:
        """Let a block hold what `content` of another one returned."""
        self._keep(block_id, content)

    def _at(self, table: list[int], column: int) -> int:
        if column >= len(table):
            return EMPTY
        return self._states.get(table[column], EMPTY)

    def _keep(self, block_id: int, state: int) -> None:
        if block_id not in self._states and self.taken is not None:
            self.taken(block_id)
        self._states[block_id] = state
