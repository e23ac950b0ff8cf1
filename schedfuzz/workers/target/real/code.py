"""Nouns: code, digest.

Small integers that a position writes as its value, and what becomes of their sum. Pure tensor
functions: the model and the truth must agree on them bit by bit.
"""

import functools
from typing import Any

import torch

LANES = 32  # also the head size
LEVELS = 16


def codes(tokens: Any, positions: Any) -> Any:
    """Return the code of each (token, position): float32 integers 0..15, [n, LANES]."""
    value = tokens.to(torch.int64) * 1_000_003 + positions.to(torch.int64) * 7919
    value = (value[:, None] + _lanes(tokens.device)) * 0x2545F4914F6CDD1D
    value = (value ^ (value >> 29)) * 0x1B873593CC9E2D51
    return ((value >> 41) & (LEVELS - 1)).to(torch.float32)


def digests(sums: Any) -> Any:
    """Return a 64-bit digest of each row of integer sums: [n] from [n, LANES]."""
    value = (sums * _weights(sums.device)).sum(-1)
    return value ^ (value >> 31)


@functools.cache
def _lanes(device: Any) -> Any:
    return torch.arange(LANES, dtype=torch.int64, device=device) * 104_729 + 12_345


@functools.cache
def _weights(device: Any) -> Any:
    """Return an odd number for each lane, with no relation between them: sums must not cancel."""
    value = torch.arange(1, LANES + 1, dtype=torch.int64, device=device) * 0x2545F4914F6CDD1D
    value = (value ^ (value >> 29)) * 0x1B873593CC9E2D51
    return (value ^ (value >> 32)) * 0x2545F4914F6CDD1D | 1
