"""Nouns: truth, content digest.

What a scenario wants at each position of each request, as tensors: which digest of the KV cache's
content is the request's own, what the model says where it reads it, and what the drafter proposes.
"""

from typing import Any

import torch

from schedfuzz.corpus.scenario import Scenario
from schedfuzz.workers.target.real.code import codes, digests
from schedfuzz.workers.target.real.turns import Turn, padded, turns

NO_ROOM = 1 << 30  # the prompt of a turn that a request does not have


class Truth:
    """Tables of int64 [requests, turns, positions] but where noted.

    `tokens` holds a turn's tokens, `own`, per window (0: full attention), the digest of a request's
    own content; `says` and `plain` what the model says there; `drafts` [.., width] what follows
    each position; `prompt` and `end` [requests, turns] where a turn's output begins and its stop
    token stands.
    """

    def __init__(self, scenario: Scenario, windows: set[int], device: Any) -> None:
        limit, width = scenario.engine.max_model_len, scenario.engine.num_speculative_tokens
        told = [turns(request, limit, width) for request in scenario.requests]
        self.index = {str(request.id): row for row, request in enumerate(scenario.requests)}
        self.lengths = [[turn.prompt for turn in request] for request in told]
        silent = padded(Turn([], [], [], [], NO_ROOM, 0), limit, width)
        depth = max(1, *map(len, told))
        told = [request + [silent] * (depth - len(request)) for request in told]

        def table(field: str) -> Any:
            values = [[getattr(turn, field) for turn in request] for request in told]
            return torch.tensor(values, device=device)

        self.tokens = tokens = table("tokens")
        self.says, self.plain, self.drafts = table("says"), table("plain"), table("drafts")
        self.prompt, self.end = table("prompt"), table("end")
        self.own = {window: _own(tokens, window) for window in windows}


def _own(tokens: Any, window: int) -> Any:
    """Return the digests of what `tokens` [.., positions] leave in the visible window."""
    positions = torch.arange(tokens.shape[-1], device=tokens.device)
    rows = []
    for row in tokens.reshape(-1, tokens.shape[-1]):
        sums = codes(row, positions).to(torch.int64).cumsum(0)
        if window:
            sums[window:] -= sums[:-window].clone()
        rows.append(digests(sums))
    return torch.stack(rows).reshape(tokens.shape)
