"""Nouns: cross attention KV.

What the decoder of an encoder-decoder model attends to beside itself: the KV of the request's one
encoder input, written in the step that runs the encoder and read in every later one.
"""

from schedfuzz.corpus.tokens import picture
from schedfuzz.workers.target.rows import Row
from schedfuzz.workers.target.shadow import EMPTY, ShadowKV


class CrossKV(ShadowKV):
    """A KV group indexed by encoder positions; `fresh` are the requests whose encoder just ran."""

    fresh: set[int]

    def uncovered(self, table: list[int], start: int, end: int) -> str:
        return ""  # decoder positions say nothing of this table

    def compute(self, table: list[int], row: Row) -> None:
        (image,) = row.state.request.images
        if row.state.number in self.fresh and not self._lacks(table, image.length):
            self.write(table, 0, picture(image), image.length)

    def mismatch(self, table: list[int], row: Row) -> str:
        (image,) = row.state.request.images
        if self._lacks(table, image.length):
            return f"{len(table)} blocks for {image.length} encoder tokens"
        position = self.first_mismatch(table, picture(image), image.length)
        if position is None:
            return ""
        held = "nothing" if self.slot(table, position) == EMPTY else "other content"
        return f"encoder position {position} holds {held}"

    def _lacks(self, table: list[int], length: int) -> bool:
        return bool(super().uncovered(table, 0, length))
