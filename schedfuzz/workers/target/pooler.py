"""Nouns: pooler: answers a finished prompt with its digest, in place of a sampled token."""

from typing import Any

from schedfuzz.workers.target.part import Part
from schedfuzz.workers.target.state import State


class Pooler(Part):
    """The last step of a pooling model."""

    def __init__(self) -> None:
        self.pooled: dict[str, Any] = {}

    def attend(self, state: State, start: int, end: int) -> None:
        """Pool a prompt whose last chunk this is."""
        import torch

        if end >= len(state.prompt):
            digest = state.digests[len(state.prompt) - 1]
            self.pooled[str(state.number)] = torch.tensor([digest], dtype=torch.int64)

    def end(self, output: Any, samples: dict[str, list[int]]) -> dict[str, Any]:
        """Return the batch's answers, None for a prompt that is not finished."""
        pooled, self.pooled = self.pooled, {}
        return {"pooler_output": [pooled.get(req_id) for req_id in samples]}
