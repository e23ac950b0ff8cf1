"""Nouns: truth, turn, content digest.

What a scenario wants at each position of each request, as tensors: which digest of the KV cache's
content is the request's own, and what the model says where it reads it.
"""

from typing import Any, NamedTuple

import torch
from msgspec.structs import replace

from schedfuzz.corpus.outputs import conversation, turn_views
from schedfuzz.corpus.scenario import Request, Scenario
from schedfuzz.corpus.tokens import extend_digests, next_token, speaker, spoken, truth
from schedfuzz.workers.target.real.code import codes, digests

NO_ROOM = 1 << 30  # the prompt of a turn that a request does not have


class Turn(NamedTuple):
    """One turn, an entry per position: its token, what the model says after it, and plainly."""

    tokens: list[int]
    says: list[int]
    plain: list[int]
    prompt: int


def turns(request: Request, limit: int) -> list[Turn]:
    """Return the truth of a request's turns, up to `limit` positions each (max_model_len)."""
    found = []
    for view, turn in zip(turn_views(request), conversation(request, limit), strict=False):
        length = len(turn.prompt)
        tokens = turn.prompt + spoken(truth(view, length), turn.prompt, limit - length)
        prefix: list[int] = []
        extend_digests(prefix, tokens)
        # It is the real sampler that keeps a stop from the first min_tokens.
        say = speaker(replace(view, min_tokens=0), length)
        says = [say(digest, position) for position, digest in enumerate(prefix)]
        found.append(Turn(tokens, says, [next_token(digest) for digest in prefix], length))
    return found


class Truth:
    """Tables of int64 [requests, turns, positions] but where noted.

    `own` holds, per window (0: full attention), the digest of a request's own content; `says` and
    `plain` what the model says there, `follows` the right next token; `prompt` [requests, turns]
    is each turn's prompt length; `right` [requests, positions] how many drafts after a position
    are right.
    """

    def __init__(self, scenario: Scenario, windows: set[int], device: Any) -> None:
        limit = scenario.engine.max_model_len
        told = [turns(request, limit) for request in scenario.requests]
        self.index = {str(request.id): row for row, request in enumerate(scenario.requests)}
        count, depth = len(told), max(1, *map(len, told))
        shape = (count, depth, limit)
        tokens = torch.zeros(shape, dtype=torch.int64)
        self.says, self.plain = torch.zeros_like(tokens), torch.zeros_like(tokens)
        self.prompt = torch.full((count, depth), NO_ROOM)
        for row, request_turns in enumerate(told):
            for column, turn in enumerate(request_turns):
                for table, values in ((tokens, turn.tokens), (self.says, turn.says),
                                      (self.plain, turn.plain)):  # fmt: skip
                    table[row, column] = torch.tensor(values)
                self.prompt[row, column] = turn.prompt
        self.follows = torch.cat((tokens[:, :, 1:], tokens[:, :, :1]), dim=2)
        accept = [[r.accept[p % len(r.accept)] for p in range(limit)] for r in scenario.requests]
        self.right = torch.tensor(accept)
        self.own = {window: _own(tokens, window) for window in windows}
        for name in ("says", "plain", "prompt", "follows", "right"):
            setattr(self, name, getattr(self, name).to(device))
        self.own = {window: table.to(device) for window, table in self.own.items()}


def _own(tokens: Any, window: int) -> Any:
    """Return the digests of what `tokens` [.., positions] leave in the visible window."""
    positions = torch.arange(tokens.shape[-1])
    rows = []
    for row in tokens.reshape(-1, tokens.shape[-1]):
        sums = codes(row, positions).to(torch.int64).cumsum(0)
        if window:
            sums[window:] -= sums[:-window].clone()
        rows.append(digests(sums))
    return torch.stack(rows).reshape(tokens.shape)
