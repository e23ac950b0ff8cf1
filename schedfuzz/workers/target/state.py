"""Nouns: request state.

What a model runner remembers of one request between steps; some of it only as long as the request
stays in the persistent batch.
"""

from typing import Any

from schedfuzz.corpus.sampling import Sampler
from schedfuzz.corpus.scenario import Request
from schedfuzz.corpus.tokens import contents, extend_digests, seed_of
from schedfuzz.corpus.trace import Path


class State:
    """What the runner remembers of one request between steps.

    `tables` holds a block table per KV group, `digests` the digest after each known position,
    `prefill` the number of tokens that came with the request (V2: with its outputs so far);
    `computed` is the scheduler's count of computed tokens, `own` the V2 runner's. `recurrent` is
    the column of its running mamba state and how many tokens its last step yielded.
    """

    __slots__ = (
        "computed", "digests", "next_drafts", "number", "outputs", "own", "path",
        "prefill", "prev_drafts", "prev_start", "prev_valid", "prompt", "recurrent",
        "reported_outputs", "request", "sampler", "seed", "slot", "tables",
    )  # fmt: skip

    def __init__(self, request: Request, data: Any) -> None:
        self.number = request.id
        self.request = request
        self.path: Path = "new"
        self.slot = -1
        self.next_drafts: list[int] = []
        self.reported_outputs = 0
        self.recurrent: tuple[int, int] | None = None
        self.restart(data)

    def restart(self, data: Any) -> None:
        """Take over vLLM's NewRequestData: prompt, tables and count; outputs are forgotten."""
        self.prompt: list[int] = list(data.prompt_token_ids)
        self.outputs: list[int] = []
        self.prefill = len(self.prompt)
        self.seed = seed_of(data.lora_request.lora_int_id if data.lora_request else 0)
        self.sampler = Sampler(self.request, self.prompt)
        self.digests: list[int] = []
        extend_digests(self.digests, self.contents(data), self.seed)
        self.tables: list[list[int]] = [list(table) for table in data.block_ids]
        self.computed: int = data.num_computed_tokens
        self.own: int = data.num_computed_tokens
        self.leave_batch()

    def contents(self, data: Any) -> list[int]:
        """Return what stands at each prompt position."""
        return contents(self.request, self.prompt)

    def leave_batch(self) -> None:
        """Forget what only the persistent batch carries from one step to the next."""
        self.prev_drafts = self.prev_start = self.prev_valid = 0
        self.next_drafts = []

    def set_outputs(self, tokens: list[int]) -> None:
        """Replace the output tokens and the digests that follow from them."""
        self.outputs = tokens
        del self.digests[len(self.prompt) :]
        extend_digests(self.digests, tokens, self.seed)

    @property
    def known(self) -> int:
        """The number of tokens the runner knows: prompt and outputs."""
        return len(self.prompt) + len(self.outputs)
