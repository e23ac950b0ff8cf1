"""Nouns: turn, script of drafts.

What a request's model says at each position, from the scenario alone; no tensors, no vLLM.
"""

import functools
from typing import NamedTuple

from schedfuzz.corpus.outputs import conversation, turn_views, until_stop
from schedfuzz.corpus.sampling import truth
from schedfuzz.corpus.scenario import Request
from schedfuzz.corpus.tokens import draft, extend_digests, plain_speaker, speaker, spoken

# One scenario differs from the next in few requests; a turn takes some tens of kilobytes.
REMEMBERED = 256


class Turn(NamedTuple):
    """One turn, an entry per position: its token, what the model says after it, and plainly."""

    tokens: list[int]
    says: list[int]
    plain: list[int]
    drafts: list[list[int]]
    prompt: int
    end: int


@functools.lru_cache(maxsize=REMEMBERED)
def turns(request: Request, limit: int, width: int) -> list[Turn]:
    """Return the truth of a request's turns, up to `limit` positions each (max_model_len).

    `drafts` has the `width` drafts after each position from the prompt's last on, `end` is behind
    the turn's last token.
    """
    found = []
    for view, turn in zip(turn_views(request), conversation(request, limit), strict=False):
        length = len(turn.prompt)
        pick = truth(view, turn.prompt)
        # A step may run past max_tokens, and the next one may be on its way before that is known.
        count = min(limit - length, view.max_tokens + 2 * (1 + width))
        output = spoken(pick, turn.prompt, count)
        tokens = turn.prompt + output
        prefix: list[int] = []
        extend_digests(prefix, tokens)
        say, plainly = speaker(view, length), plain_speaker(view, length)
        says = [say(digest, at) for at, digest in enumerate(prefix)]
        plain = [plainly(digest, at) for at, digest in enumerate(prefix)]
        drafts = [
            draft(pick, digest, at, request.accept, width, output[: at + 1 - length])
            for at, digest in enumerate(prefix[length - 1 :], length - 1)
        ]
        drafts = [[0] * width] * (length - 1) + drafts  # nothing is sampled before
        end = length + len(until_stop(output))
        found.append(padded(Turn(tokens, says, plain, drafts, length, end), limit, width))
    return found


def padded(turn: Turn, limit: int, width: int) -> Turn:
    """Return the turn with entries for all `limit` positions; nobody gets to those added."""
    left = limit - len(turn.tokens)
    rest = [0] * left
    return turn._replace(
        tokens=turn.tokens + rest, says=turn.says + rest, plain=turn.plain + rest,
        drafts=turn.drafts + [[0] * width] * left,
    )  # fmt: skip
