"""Nouns: logits, sampler, allowed tokens, bad words, penalties, row.

The model's logits and what a client's wishes make of them, exactly. Logits are multiples of 2**-14
below 2**10, from which penalties take integers or a half, so float32 and Python agree to the last
bit on the token that comes out on top. How far the second stands behind the first tells the
position: a logprob says for which token and position it was computed, whoever computed it.
"""

import functools
from collections import Counter
from collections.abc import Sequence
from math import exp, inf, isclose, log
from typing import NamedTuple

from schedfuzz.corpus.parts import Sampling
from schedfuzz.corpus.scenario import Request
from schedfuzz.corpus.tokens import (
    SEED,
    STOP,
    VOCAB,
    Pick,
    allowed,
    first_allowed,
    grammar_start,
    mix,
    plain_speaker,
    speaker,
)

KNOWN = 64  # the model's tokens; those from VOCAB on have a meaning of their own, or none
PLAIN = (1 << VOCAB) - 1
EVERYTHING = (1 << KNOWN) - 1
# The logit of the plain token on top, and by how much each one after it, cyclically, lies lower. No
# integer and no half makes up for a difference, so no two tokens ever draw.
PEAK, SPACING = 40.0, 65 / 64
# Far above and below what tells the plain tokens apart.
SURE, NEVER = 1000.0, -1000.0
WORDS_AFTER = 2  # how many tokens are forbidden after each plain one


def lead(position: int) -> float:
    """Return what the first plain token at a position has ahead of the others, beside SPACING."""
    return (2 * position + 1) / (1 << 14)


def logits(said: int, plain: int, position: int) -> list[float]:
    """Return the model's logits after a position, of all KNOWN tokens.

    `plain` is the plain token that it says, `said` that or the token with a meaning that it says
    instead: that one is on top, then come the plain ones in cyclic order.
    """
    found = [NEVER] * KNOWN
    behind = lead(position)
    for distance in range(VOCAB):
        found[(plain + distance) % VOCAB] = PEAK - distance * SPACING - (distance and behind)
    if said >= VOCAB:
        found[said] = SURE
    return found


class Row(NamedTuple):
    """One row of logprobs: of the token that it is for, and of the likeliest one."""

    token: int
    logprob: float
    likeliest: int
    most: float

    def is_like(self, other: "Row") -> bool:
        """Return whether another row says the same, up to the error of a float32 softmax."""
        pairs = ((self.logprob, other.logprob), (self.most, other.most))
        return (self.token, self.likeliest) == (other.token, other.likeliest) and all(
            isclose(*pair, rel_tol=1e-6, abs_tol=1e-5) for pair in pairs
        )

    def __str__(self) -> str:
        return f"{self.token}: {self.logprob:.5f}, {self.likeliest}: {self.most:.5f}"


def row(token: int, values: list[float], mask: int = EVERYTHING) -> Row:
    """Return the row of a token where the logits are `values`, but for tokens out of `mask`."""
    masked = [value if mask >> token & 1 else -inf for token, value in enumerate(values)]
    most = max(masked)
    total = most + log(sum(exp(value - most) for value in masked))
    return Row(token, masked[token] - total, masked.index(most), most - total)


@functools.cache
def allowed_tokens(rule: int) -> tuple[int, ...]:
    """Return the tokens of a rule of `Sampling.allowed`: about half of the plain ones and the stop.

    Every eighth is among them, so that bad words never leave nothing.
    """
    bits = mix(mix(SEED, 13_000_000), rule) >> 9 & PLAIN | 0x0101_0101 << rule % 8
    return (*(token for token in range(VOCAB) if bits >> token & 1), STOP)


@functools.cache
def bad_words(rule: int) -> tuple[tuple[int, ...], ...]:
    """Return the token sequences of a rule of `Sampling.bad_words`: single tokens and pairs."""
    name = mix(mix(SEED, 14_000_000), rule)
    pairs = (
        (token, mix(mix(name, token), index) % VOCAB)
        for token in range(VOCAB)
        for index in range(WORDS_AFTER)
    )
    return ((name % VOCAB,), *pairs)


@functools.cache
def _forbidden(rule: int) -> dict[int, int]:
    """Return the tokens, as bits, that bad words end with, by the token before (-1: any)."""
    found: dict[int, int] = {}
    for *first, last in bad_words(rule):
        after = first[0] if first else -1
        found[after] = found.get(after, 0) | 1 << last
    return found


class Sampler:
    """What one request samples, whose output follows the tokens `prompt`.

    Positions are absolute, `before` is the output so far. Source: `Sampler` of vLLM's `v1/sample`.
    """

    def __init__(self, request: Request, prompt: Sequence[int]) -> None:
        self.request = request
        self.say = speaker(request, len(prompt))
        self.plain = plain_speaker(request, len(prompt))
        self.least = len(prompt) + request.min_tokens
        self.grammar = None if request.structured is None else len(prompt) + grammar_start(request)
        self.wishes = request.sampling
        wishes = request.sampling or Sampling()
        self.penal = wishes.penalizes
        self.allowed = _bits(allowed_tokens(wishes.allowed)) if wishes.allowed else EVERYTHING
        self.words = _forbidden(wishes.bad_words) if wishes.bad_words else {}
        self.prompt = frozenset(token for token in prompt if token < VOCAB)

    def mask(self, position: int) -> int:
        """Return the tokens, as bits, that the request's grammar accepts after a position."""
        if self.grammar is None or position + 1 < self.grammar:
            return EVERYTHING
        return allowed(self.request, position + 1 - self.grammar)

    def next(self, digest: int, position: int, before: Sequence[int]) -> int:
        """Return the token that the request must yield after a position."""
        return self.choose(digest, position, before, self.mask(position))

    def choose(self, digest: int, position: int, before: Sequence[int], mask: int) -> int:
        """Return the token that comes out on top after a position, of those in `mask`."""
        said = self.say(digest, position)
        if position + 1 < self.least:
            mask &= ~(1 << STOP)
        if self.wishes is not None:
            mask &= self.allowed & ~self.words.get(-1, 0)
            if before and self.words:
                mask &= ~self.words.get(before[-1], 0)
        if mask >> said & 1 and (said >= VOCAB or not self.penal):
            return said
        plain = self.plain(digest, position)
        if self.penal and mask & PLAIN:
            return self._penalized(logits(plain, plain, position), before, mask & PLAIN)
        return first_allowed(mask & PLAIN or mask, plain)

    def _penalized(self, values: list[float], before: Sequence[int], mask: int) -> int:
        wishes = self.wishes
        assert wishes is not None
        for token, count in Counter(before).items():
            if token < VOCAB:
                values[token] /= wishes.repetition_penalty
                values[token] -= wishes.frequency_penalty * count + wishes.presence_penalty
        for token in self.prompt.difference(before):
            values[token] /= wishes.repetition_penalty
        return max((t for t in range(VOCAB) if mask >> t & 1), key=values.__getitem__)

    def row(self, token: int, digest: int, position: int, mask: int = EVERYTHING) -> Row:
        """Return the row of a token sampled after a position, or of a prompt's next token.

        vLLM tells the model's logprobs ("raw_logprobs"), in which only a grammar's mask shows.
        """
        said, plain = self.say(digest, position), self.plain(digest, position)
        return row(token, logits(said, plain, position), mask)


def truth(request: Request, prompt: Sequence[int]) -> Pick:
    """Return the tokens that the request must yield: the model's, as its client wants them."""
    return Sampler(request, prompt).next


def _bits(tokens: Sequence[int]) -> int:
    return sum(1 << token for token in tokens)
