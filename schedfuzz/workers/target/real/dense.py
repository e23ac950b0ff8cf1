"""Nouns: control weights, dense states.

A tiny llama computed all at once, without any KV cache: what the control must give at each
position. Plain tensors, so that nothing of a runner can be wrong in it.
"""

import functools
from typing import Any

import torch
from torch.nn.functional import embedding, linear, silu

from schedfuzz.workers.target.real.code import LANES

LAYERS = 2
INNER = 64  # the width of the MLP
EPSILON = 1e-6
THETA = 10_000.0
SEED = 20_260_101
# Scores that spread by some two units: attention picks, and yet sees far positions.
SPREAD = 0.25
# ALiBi: by how much the last layer's scores fall with each position that a key lies further back.
# Keys are rotated when they are written, so rotary positions alone see no order of reading.
SLOPE = 1 / 256

Weights = dict[str, Any]
_SHAPES = {
    "self_attn.q_proj": (LANES, LANES), "self_attn.k_proj": (LANES, LANES),
    "self_attn.v_proj": (LANES, LANES), "self_attn.o_proj": (LANES, LANES),
    "mlp.gate_proj": (INNER, LANES), "mlp.up_proj": (INNER, LANES), "mlp.down_proj": (LANES, INNER),
    "input_layernorm": (LANES,), "post_attention_layernorm": (LANES,),
}  # fmt: skip


@functools.cache
def weights(vocabulary: int, device: Any) -> Weights:
    """Return the control's weights by the names of a llama's checkpoint, float32."""
    source = torch.Generator(device="cpu").manual_seed(SEED)

    def drawn(*shape: int) -> Any:
        values = torch.randn(*shape, generator=source, dtype=torch.float32, device="cpu") * SPREAD
        return values + 1 if len(shape) == 1 else values

    named = {"embed_tokens.weight": drawn(vocabulary, LANES) / SPREAD, "norm.weight": drawn(LANES)}
    for layer in range(LAYERS):
        for name, shape in _SHAPES.items():
            named[f"layers.{layer}.{name}.weight"] = drawn(*shape)
    return {name: weight.to(device) for name, weight in named.items()}


def states(tokens: Any, known: Weights) -> Any:
    """Return the last hidden states [n, LANES] of one sequence of tokens [n], read as a whole."""
    positions = torch.arange(len(tokens), device=tokens.device)
    hidden = embedding(tokens, known["embed_tokens.weight"])
    for layer in range(LAYERS):
        part = functools.partial(_weight, known, layer)
        slope = SLOPE if layer == LAYERS - 1 else 0.0
        hidden = hidden + _attention(_norm(hidden, part("input_layernorm")), positions, part, slope)
        normed = _norm(hidden, part("post_attention_layernorm"))
        inner = silu(linear(normed, part("mlp.gate_proj"))) * linear(normed, part("mlp.up_proj"))
        hidden = hidden + linear(inner, part("mlp.down_proj"))
    return _norm(hidden, known["norm.weight"])


def _weight(known: Weights, layer: int, name: str) -> Any:
    return known[f"layers.{layer}.{name}.weight"]


def _norm(hidden: Any, weight: Any) -> Any:
    return hidden * torch.rsqrt(hidden.square().mean(-1, keepdim=True) + EPSILON) * weight


def _attention(hidden: Any, positions: Any, part: Any, slope: float) -> Any:
    query, key, value = (linear(hidden, part(f"self_attn.{name}_proj")) for name in "qkv")
    back = positions[:, None] - positions[None]
    scores = _rotated(query, positions) @ _rotated(key, positions).T / LANES**0.5 - back * slope
    mean = scores.masked_fill(back < 0, -torch.inf).softmax(-1) @ value
    return linear(mean, part("self_attn.o_proj"))


def _rotated(vectors: Any, positions: Any) -> Any:
    """Turn each pair of lanes (one of either half) by an angle that grows with the position."""
    exponents = torch.arange(0, LANES, 2, device=vectors.device) / LANES
    angles = positions[:, None] * THETA**-exponents
    first, second = vectors.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
