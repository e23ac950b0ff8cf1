"""Nouns: shadow KV, slot, window.

The insight: a slot that holds the digest of the whole prefix it was computed for proves, when it is
read, that the block table led to this very content: stale blocks, doubly owned blocks, wrong prefix
hits and blocks freed in flight all read as a wrong digest.
"""

from collections.abc import Callable

from schedfuzz.workers.target.rows import Row

EMPTY = 0  # no digest is 0 in practice: 62 random bits


class ShadowKV:
    """The contents of one KV group of attention layers: blocks of `block_size` slots.

    With a `window` a query attends to itself and the window - 1 positions before it. `taken` is
    told of a block that this group starts to write.
    """

    def __init__(
        self, num_blocks: int, block_size: int, window: int = 0,
        taken: Callable[[int], None] | None = None,
    ) -> None:  # fmt: skip
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.window = window
        self.taken = taken
        self._blocks: dict[int, list[int]] = {}

    def first(self, start: int) -> int:
        """Return the first position that a query at `start` attends to."""
        return max(0, start - self.window + 1) if self.window else 0

    def uncovered(self, table: list[int], start: int, end: int) -> str:
        """Return what a table lacks for queries at start..end-1, "" for nothing."""
        needed = -(-end // self.block_size)
        if len(table) < needed:
            return f"{len(table)} blocks for {end} tokens, {needed} needed"
        used = table[self.first(start) // self.block_size : needed]
        if any(not 0 < block < self.num_blocks for block in used):
            return "the null block or no block within its tokens"
        return ""

    def write(self, table: list[int], start: int, digests: list[int], end: int) -> None:
        """Store digests[start:end] at positions start..end-1 through the block table."""
        size = self.block_size
        position = start
        while position < end:
            index, offset = divmod(position, size)
            stop = min(end, (index + 1) * size)
            block = self._blocks.get(table[index])
            if block is None:
                block = self._blocks[table[index]] = [EMPTY] * size
                if self.taken is not None:
                    self.taken(table[index])
            block[offset : offset + stop - position] = digests[position:stop]
            position = stop

    def compute(self, table: list[int], row: Row) -> None:
        """Store what a row computes."""
        self.write(table, row.start, row.digests, row.end)

    def mismatch(self, table: list[int], row: Row) -> str:
        """Return which position of a row's context holds foreign content, "" for none."""
        position = self.first_mismatch(table, row.digests, row.end, self.first(row.start))
        if position is None:
            return ""
        held = "nothing" if self.slot(table, position) == EMPTY else "other content"
        return f"position {position} of its context holds {held}"

    def first_mismatch(
        self, table: list[int], digests: list[int], end: int, start: int = 0
    ) -> int | None:
        """Return the first of start..end-1 whose slot does not hold its digest, or None."""
        size = self.block_size
        for index in range(start // size, -(-end // size)):
            low = max(start, index * size)
            high = min(end, (index + 1) * size)
            block = self._blocks.get(table[index])
            if block is None:
                return low
            offset = low - index * size
            slots = block[offset : offset + high - low]
            if slots != digests[low:high]:
                pairs = zip(slots, digests[low:high], strict=True)
                return low + next(i for i, (slot, want) in enumerate(pairs) if slot != want)
        return None

    def slot(self, table: list[int], position: int) -> int:
        """Return the digest stored for `position`, EMPTY when never written."""
        block = self._blocks.get(table[position // self.block_size])
        return EMPTY if block is None else block[position % self.block_size]

    def clear(self, block_id: int) -> None:
        """Forget what a block holds."""
        self._blocks.pop(block_id, None)

    def content(self, block_id: int) -> list[int] | None:
        """Return a copy of what a block holds, None for nothing."""
        block = self._blocks.get(block_id)
        return None if block is None else list(block)

    def put(self, block_id: int, content: list[int]) -> None:
        """Let a block hold what `content` of another one returned."""
        self._blocks[block_id] = content
        if self.taken is not None:
            self.taken(block_id)
