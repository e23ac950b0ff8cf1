"""Nouns: code, digest.

Small integers that a position writes as its value, and what becomes of their sum. Pure tensor
functions: the model and the truth must agree on them bit by bit.
"""

from typing import Any

import torch

LANES = 32  # also the head size
LEVELS = 16


def codes(tokens: Any, positions: Any) -> Any:
    """Return the code of each (token, position): float32 integers 0..15, [n, LANES]."""
    lanes = torch.arange(LANES, dtype=torch.int64, device=tokens.device)
    value = tokens.to(torch.int64)[:, None] * 1_000_003 + positions.to(torch.int64)[:, None] * 7919
    value = (value + lanes * 104_729 + 12_345) * 0x2545F4914F6CDD1D
    value = (value ^ (value >> 29)) * 0x1B873593CC9E2D51
    return ((value >> 41) & (LEVELS - 1)).to(torch.float32)


def digests(sums: Any) -> Any:
    """Return a 64-bit digest of each row of integer sums: [n] from [n, LANES]."""
    lanes = torch.arange(1, LANES + 1, dtype=torch.int64, device=sums.device)
    value = (sums * (lanes * 0x9E3779B97F4A7C1 | 1)).sum(-1)
    return value ^ (value >> 31)
