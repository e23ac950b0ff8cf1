"""Nouns: truth, turn, content digest, script of drafts.

What a scenario wants at each position of each request, as tensors: which digest of the KV cache's
content is the request's own, what the model says where it reads it, and what the drafter proposes.
"""

from typing import Any, NamedTuple

import torch
from msgspec.structs import replace

from schedfuzz.corpus.outputs import conversation, turn_views
from schedfuzz.corpus.scenario import Request, Scenario
from schedfuzz.corpus.tokens import (
    STOP,
    draft,
    extend_digests,
    next_token,
    speaker,
    spoken,
    truth,
)
from schedfuzz.workers.target.real.code import codes, digests

NO_ROOM = 1 << 30  # the prompt of a turn that a request does not have


class Turn(NamedTuple):
    """One turn, an entry per position: its token, what the model says after it, and plainly."""

    tokens: list[int]
    says: list[int]
    plain: list[int]
    drafts: list[list[int]]
    prompt: int
    end: int


def turns(request: Request, limit: int, width: int) -> list[Turn]:
    """Return the truth of a request's turns, up to `limit` positions each (max_model_len).

    `drafts` has the `width` drafts after each position, `end` is behind the turn's stop token.
    """
    found = []
    for view, turn in zip(turn_views(request), conversation(request, limit), strict=False):
        length = len(turn.prompt)
        tokens = turn.prompt + spoken(truth(view, length), turn.prompt, limit - length)
        prefix: list[int] = []
        extend_digests(prefix, tokens)
        # It is the real sampler that keeps a stop from the first min_tokens.
        say = speaker(replace(view, min_tokens=0), length)
        says = [say(digest, position) for position, digest in enumerate(prefix)]
        plain = [next_token(digest) for digest in prefix]
        guess = truth(view, length)
        drafts = [draft(guess, digest, position, request.accept, width)
                  for position, digest in enumerate(prefix)]  # fmt: skip
        stop = tokens.index(STOP, length) + 1 if STOP in tokens[length:] else limit
        found.append(Turn(tokens, says, plain, drafts, length, stop))
    return found


class Truth:
    """Tables of int64 [requests, turns, positions] but where noted.

    `own` holds, per window (0: full attention), the digest of a request's own content; `says` and
    `plain` what the model says there; `drafts` [.., width] what follows each position; `prompt`
    and `end` [requests, turns] where a turn's output begins and its stop token stands.
    """

    def __init__(self, scenario: Scenario, windows: set[int], device: Any) -> None:
        limit, width = scenario.engine.max_model_len, scenario.engine.num_speculative_tokens
        told = [turns(request, limit, width) for request in scenario.requests]
        self.index = {str(request.id): row for row, request in enumerate(scenario.requests)}
        self.lengths = [[turn.prompt for turn in request] for request in told]
        silent = Turn([0] * limit, [0] * limit, [0] * limit, [[0] * width] * limit, NO_ROOM, 0)
        depth = max(1, *map(len, told))
        told = [request + [silent] * (depth - len(request)) for request in told]

        def table(field: str) -> Any:
            values = [[getattr(turn, field) for turn in request] for request in told]
            return torch.tensor(values, device=device)

        tokens = table("tokens")
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
