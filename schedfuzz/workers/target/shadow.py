"""Nouns: shadow KV cache, slot, prefix digest.

The insight: a slot that holds the digest of the whole prefix it was computed for proves, when it is
read, that the block table led to this very content: stale blocks, doubly owned blocks, wrong prefix
hits and blocks freed in flight all read as a wrong digest.
"""

EMPTY = 0  # no digest is 0 in practice: 62 random bits


class ShadowKV:
    """The contents of one KV group: `num_blocks` blocks of `block_size` slots."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.num_blocks = num_blocks
        self._blocks: dict[int, list[int]] = {}

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
            block[offset : offset + stop - position] = digests[position:stop]
            position = stop

    def first_mismatch(self, table: list[int], digests: list[int], end: int) -> int | None:
        """Return the first position below `end` whose slot does not hold its digest, or None."""
        size = self.block_size
        for index in range(-(-end // size)):
            low = index * size
            high = min(end, low + size)
            block = self._blocks.get(table[index])
            if block is None:
                return low
            if block[: high - low] != digests[low:high]:
                pairs = zip(block, digests[low:high], strict=False)
                return low + next(i for i, (slot, want) in enumerate(pairs) if slot != want)
        return None

    def slot(self, table: list[int], position: int) -> int:
        """Return the digest stored for `position`, EMPTY when never written."""
        block = self._blocks.get(table[position // self.block_size])
        return EMPTY if block is None else block[position % self.block_size]

    def clear(self, block_ids: list[int]) -> None:
        """Zero whole blocks, as the worker does before a block's first use."""
        for block_id in block_ids:
            self._blocks.pop(block_id, None)
