"""Nouns: control, stray.

An ordinary tiny llama beside the checkable model, in the same forward pass: vLLM's own layers with
rotary positions, a KV cache of their own and random weights; the last layer has ALiBi as well. What
it gives where the content read is the request's own must be what the same tokens give without a
cache. So it sees what a sum cannot: queries, keys, and the order in which a cache is read.
"""

import copy
from typing import Any

from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.model_loader.utils import process_weights_after_loading
from vllm.model_executor.models.llama import LlamaModel

from schedfuzz.corpus.scenario import Scenario
from schedfuzz.workers.target.real import dense, limits
from schedfuzz.workers.target.real.code import LANES
from schedfuzz.workers.target.real.executor import RealExecutor
from schedfuzz.workers.target.real.model import CheckableModel
from schedfuzz.workers.target.real.truth import Truth
from schedfuzz.workers.target.real.voice import VOICE, Heard, Stray
from schedfuzz.workers.target.seam import Unsupported

# Measured: up to 3e-5 where all is right, from 1.2e-3 on where an order is lost (real-runner.md).
TOLERANCE = 1e-3
MAX_POSITIONS = 8192  # beyond the largest max_model_len; the table of angles is that long


class Control:
    """vLLM's llama with the control's weights, and the dense states that it must give.

    Its layers come into vLLM's books when it is made; its weights are its own affair.
    """

    def __init__(self, vllm_config: Any) -> None:
        config, model_config = copy.copy(vllm_config), copy.copy(vllm_config.model_config)
        config.model_config = model_config
        model_config.hf_config = _llama(model_config.hf_config)
        self.vocabulary = model_config.hf_config.vocab_size
        self.model = LlamaModel(vllm_config=config, prefix="control")
        _add_alibi(self.model.layers[dense.LAYERS - 1].self_attn, config)
        device = self.model.embed_tokens.weight.device
        self.weights = dense.weights(self.vocabulary, device)
        self.model.load_weights(self.weights.items())
        process_weights_after_loading(self.model, model_config, device)
        self.known: dict[tuple[int, int], Any] = {}

    def __call__(self, tokens: Any, positions: Any) -> Any:
        """Return the hidden states [n, LANES] of a step's tokens; drafts may be no tokens."""
        return self.model(tokens.clamp(0, self.vocabulary - 1), positions, None)

    def strays(self, states: Any, heard: Heard, truth: Truth) -> list[Stray]:
        """Return which states are not those of the request's own content, where that was read."""
        ids, owners = list(truth.index), heard.rows.tolist()
        found = []
        for row, turn in sorted(set(zip(owners, heard.turn.tolist(), strict=True))):
            if row < 0:
                continue
            at = heard.hit & (heard.rows == row) & (heard.turn == turn)
            wanted = self._dense(row, turn, truth)[heard.positions[at]]
            off = (states[at] - wanted).abs().amax(-1)
            astray = ~(off <= TOLERANCE)  # NaN is off too
            if astray.any():
                indices = (at.nonzero().flatten()[astray] - owners.index(row)).tolist()
                found += [
                    (ids[row], *one) for one in zip(indices, off[astray].tolist(), strict=True)
                ]
        return found

    def _dense(self, row: int, turn: int, truth: Truth) -> Any:
        if (row, turn) not in self.known:
            self.known[row, turn] = dense.states(truth.tokens[row, turn], self.weights)
        return self.known[row, turn]


def _llama(config: Any) -> Any:
    """Return a llama's config: one head of the checkable layer's size, and so its KV spec."""
    config = copy.copy(config)
    config.update({
        "hidden_size": LANES, "intermediate_size": dense.INNER, "num_hidden_layers": dense.LAYERS,
        "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": LANES,
        "max_position_embeddings": MAX_POSITIONS, "rms_norm_eps": dense.EPSILON,
        "rope_parameters": {"rope_type": "default", "rope_theta": dense.THETA},
    })  # fmt: skip
    return config


def _add_alibi(attention: Any, config: Any) -> None:
    """Replace a layer's attention by one with ALiBi, which scores by where a key is read."""
    name = attention.attn.layer_name
    del config.compilation_config.static_forward_context[name]
    attention.attn = Attention(
        1, LANES, attention.scaling, num_kv_heads=1, cache_config=config.cache_config,
        alibi_slopes=[dense.SLOPE], prefix=name,
    )  # fmt: skip


class ControlledModel(CheckableModel):
    """The checkable model with its control; a drafter has none."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        # In a tuple, so that it is no part of this module: vLLM would draw its weights anew.
        self.beside = () if self.drafter else (Control(vllm_config),)

    def forward(self, input_ids: Any, positions: Any, *args: Any, **kwargs: Any) -> Any:
        """Return what `CheckableModel.forward` does, and note where the control goes astray."""
        VOICE.heard = None
        hidden = super().forward(input_ids, positions, *args, **kwargs)
        for control in self.beside:
            states = control(input_ids, positions)
            if VOICE.heard is not None and VOICE.truth is not None:
                VOICE.strays = control.strays(states, VOICE.heard, VOICE.truth)
        return hidden


class ControlledExecutor(RealExecutor):
    """The real executor that looks at the control as well."""

    @staticmethod
    def check(scenario: Scenario) -> None:
        """Raise Unsupported as the real executor does, and for windows: the llama has none."""
        limits.check(scenario)
        if any(group.window for group in scenario.engine.groups):
            raise Unsupported("engine.groups")

    def _check_context(self) -> None:
        """Check what was read, then what the control made of it."""
        super()._check_context()
        rows = {str(row.state.number): row for row in self.drive.runner.rows}
        for req_id, index, off in VOICE.strays:
            row = rows[req_id]
            detail = (f"position {row.start + index} has a state that is {off:.2g} off "
                      "that of the same tokens without a cache")  # fmt: skip
            self._blame("runner-control", detail, row.state.number)
