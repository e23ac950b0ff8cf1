"""Nouns: request state.

What the V1 runner remembers of one request between steps; some of it only as long as the request
stays in the persistent batch.
"""

from typing import Any

from schedfuzz.corpus.tokens import extend_digests
from schedfuzz.corpus.trace import Path


class State:
    """What the runner remembers of one request between steps."""

    __slots__ = (
        "accept", "blocks", "computed", "digests", "next_drafts", "number", "outputs", "path",
        "prev_drafts", "prev_start", "prev_valid", "prompt", "reported_outputs",
    )  # fmt: skip

    def __init__(self, number: int, accept: tuple[int, ...], data: Any) -> None:
        self.number = number
        self.accept = accept
        self.prompt: list[int] = list(data.prompt_token_ids)
        self.outputs: list[int] = []
        self.digests: list[int] = []
        extend_digests(self.digests, self.prompt)
        self.blocks: list[int] = list(data.block_ids[0])
        self.computed: int = data.num_computed_tokens
        self.path: Path = "new"
        self.reported_outputs = 0
        self.next_drafts: list[int] = []
        self.leave_batch()

    def leave_batch(self) -> None:
        """Forget what only the persistent batch carries from one step to the next."""
        self.prev_drafts = self.prev_start = self.prev_valid = 0
        self.next_drafts = []

    def set_outputs(self, tokens: list[int]) -> None:
        """Replace the output tokens and the digests that follow from them."""
        self.outputs = tokens
        del self.digests[len(self.prompt) :]
        extend_digests(self.digests, tokens)

    @property
    def known(self) -> int:
        """The number of tokens the runner knows: prompt and outputs."""
        return len(self.prompt) + len(self.outputs)
