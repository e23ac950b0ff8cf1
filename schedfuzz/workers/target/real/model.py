"""Nouns: checkable model, sum.

The model's next token is an exact function of what attention reads back from the paged KV cache.
Every position writes a code made from its token and its position; all queries are zero, so
attention is the plain mean over what is visible, and the mean times the number of visible positions
rounds to the exact sum of their codes, whatever the order, the batch and the kernel. The digest of
the sums decides what the model says (`voice`): a wrong block, slot, position or input token shows
as a wrong token at the very position, without any tolerance.

Sums stay exact in float32 beyond the largest `max_model_len` (4096 positions of 0..15 < 2^16).
"""

from typing import Any

import torch
from torch import nn
from vllm.model_executor.layers.attention import Attention

from schedfuzz.corpus.sampling import NEVER, PEAK, SPACING, SURE, lead
from schedfuzz.corpus.tokens import VOCAB
from schedfuzz.workers.target.real.code import LANES, codes, digests
from schedfuzz.workers.target.real.voice import VOICE


class CheckableModel(nn.Module):
    """One attention layer per window of the model's config; a drafter has one of full attention.

    `forward` returns float32 [n, hidden_size], whose first two columns are what `VOICE` returned,
    the third is the position.
    """

    newest = 0  # how far behind the newest token's position a drafter's first pass is

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__()
        self.drafter = bool(prefix)
        config = vllm_config.model_config.hf_config
        self.hidden_size: int = config.hidden_size
        self.vocabulary: int = config.vocab_size
        windows = [0] if self.drafter else getattr(config, "windows", [0])
        self.layers = {
            window: Attention(
                1, LANES, 1.0, num_kv_heads=1, cache_config=vllm_config.cache_config,
                per_layer_sliding_window=window or None,
                prefix=f"{prefix + '.' if prefix else ''}model.layers.{index}.attn",
            )
            for index, window in enumerate(windows)
        }  # fmt: skip
        self.attention = nn.ModuleList(self.layers.values())
        self.weight = nn.Parameter(torch.zeros(1), requires_grad=False)
        # Where vLLM looks for what a head shares with its target.
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(1, 1)

    def embed_input_ids(self, input_ids: Any, *args: Any, **kwargs: Any) -> Any:
        """Return zeros [n, hidden_size]: the model reads the token ids themselves."""
        return torch.zeros(len(input_ids), self.hidden_size, device=input_ids.device)

    def forward(
        self, input_ids: Any, positions: Any, intermediate_tensors: Any = None,
        inputs_embeds: Any = None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Write the codes, read their sums back, and say what follows each position."""
        value = codes(input_ids, positions)
        nothing = torch.zeros_like(value)
        means = {w: layer(nothing, nothing, value) for w, layer in self.layers.items()}
        hidden = torch.zeros(len(positions), self.hidden_size, device=positions.device)
        said = self._say(positions, means)
        hidden[:, 2] = positions
        if said is not None:
            hidden[:, :2] = said
        return hidden

    def _say(self, positions: Any, means: dict[int, Any]) -> Any | None:
        first = self.attention[0].layer_name
        if self.drafter:
            return VOICE.propose(first, positions + self.newest)
        read = {}
        for window, mean in means.items():
            visible = positions + 1
            visible = visible.clamp(max=window) if window else visible
            read[window] = digests((mean * visible[:, None]).round().to(torch.int64))
        return VOICE.speak(first, positions, read)

    def compute_logits(self, hidden_states: Any, *args: Any, **kwargs: Any) -> Any:
        """Return logits [n, vocabulary], those of `corpus.sampling.logits`."""
        said, plain, position = hidden_states[:, :3].to(torch.int64).split(1, dim=1)
        tokens = torch.arange(self.vocabulary, device=said.device)[None]
        distance = (tokens - plain) % VOCAB
        logits = PEAK - distance * SPACING - (distance > 0) * lead(position)
        logits[:, VOCAB:] = NEVER
        return logits.masked_fill((tokens == said) & (said >= VOCAB), SURE)

    def load_weights(self, weights: Any) -> set[str]:
        """Return no names: there is nothing to load."""
        return set()


class CheckableHead(CheckableModel):
    """The same as a head that drafts on the target's hidden states, one position behind it.

    An EAGLE head returns its hidden states a second time, to be fed back to it.
    """

    newest = 1
    has_own_embed_tokens = False
    has_own_lm_head = False

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix="head")
        self.twice = vllm_config.speculative_config.method == "eagle"

    def forward(self, input_ids: Any, positions: Any, *args: Any, **kwargs: Any) -> Any:
        """Return what `CheckableModel.forward` does; the target's hidden states are not read."""
        hidden = super().forward(input_ids, positions)
        return (hidden, hidden) if self.twice else hidden
