"""Nouns: Group, Connector, External, Image, Structured, Sampling, Turn, Repetition.

What only some engines and requests have. Each is a script: it says what the world around the
scheduler (a KV connector's remote side, a grammar's compiler, an image) will do and when.
"""

from typing import Literal

import msgspec


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A KV cache group: its attention kind, and for a sliding window its `window` in tokens.

    "mamba" is a recurrent state with vLLM's "align" cache mode.
    """

    kind: Literal["full", "sliding_window", "mamba"]
    window: int = 0


class Connector(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The engine's KV connector: ours, which plays each request's script, or vLLM's offloading.

    `failure_policy` is vLLM's `kv_load_failure_policy`. `offload_blocks` is the CPU pool of the
    offloading connector, whose transfers take `store_steps` and `load_steps` engine steps.
    `restores_state` says whether ours brings a whole mamba state along, or only continues the one
    that the scheduler has after the tokens it counts as computed. With `single_group` ours is made
    as connectors were before there were KV groups.
    """

    kind: Literal["scripted", "offloading"] = "scripted"
    role: Literal["kv_both", "kv_producer", "kv_consumer"] = "kv_both"
    failure_policy: Literal["recompute", "fail"] = "recompute"
    offload_blocks: int = 0
    store_steps: int = 0
    load_steps: int = 0
    restores_state: bool = False
    single_group: bool = False


class External(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the scripted KV connector knows of one request.

    The remote side holds KV of its first `tokens` tokens. `asks_later` lookups are answered
    "undecided" first. An async load takes `steps` engine steps; the first load of the blocks
    `failed_blocks` (indices in the request's table) fails, or with `fails` its whole reception.
    After a load, a lookup finds what is left in whole blocks, or nothing with `once`. After the end
    the blocks are held back for `send_steps` engine steps, until they were sent.
    """

    tokens: int = 0
    load_async: bool = False
    asks_later: int = 0
    steps: int = 0
    failed_blocks: tuple[int, ...] = ()
    fails: bool = False
    once: bool = False
    send_steps: int = 0


class Image(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An encoder input: `length` placeholder tokens from prompt position `offset` on.

    Two images with the same `item` (and length) are the same picture. With an EC connector its
    embeddings come only from outside, `delay` engine steps after they are asked for, and again so
    when they were given up meanwhile; None: the engine runs its own encoder for it. That of an
    encoder-decoder model has `length` encoder tokens and no placeholders. A `name` is the client's
    own for it (a multimodal UUID), and whatever has it is the same picture to vLLM.
    """

    offset: int
    length: int
    item: int = 0
    delay: int | None = None
    name: int | None = None


class Structured(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A grammar for the output: compiled after `compile_steps` engine steps, or `fails` to.

    `kind` is what the client asked for: vLLM treats a structural tag's end of reasoning apart.
    After `ends_after` tokens the grammar only accepts the stop token (0: no end). `reasoning_end`
    is the index of the output token that ends the reasoning, up to which the grammar does not
    apply; None: no reasoning.
    """

    kind: Literal["json", "structural_tag"] = "json"
    compile_steps: int = 0
    fails: bool = False
    ends_after: int = 0
    reasoning_end: int | None = None


class Sampling(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a client wants of the sampler; the defaults want nothing.

    `allowed` and `bad_words` are the numbers of rules, 0 for none: `allowed_token_ids` with about
    half of the plain tokens, and token sequences that must not be said. The penalties are vLLM's.
    """

    allowed: int = 0
    bad_words: int = 0
    presence_penalty: int = 0
    frequency_penalty: int = 0
    repetition_penalty: int = 1

    @property
    def penalizes(self) -> bool:
        """Return whether what was said before changes what is said."""
        return bool(self.presence_penalty or self.frequency_penalty) or self.repetition_penalty > 1


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One more input of a streaming session: `length` tokens, sent before `step`.

    The last turn is followed at once by the session's end; with `length` 0 it is only that end.
    """

    step: int
    length: int
    max_tokens: int
    stop_at: int | None = None
    logprobs: bool = False


class Repetition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """From output token `start` on the model says a pattern of `period` tokens over and over.

    The rest is vLLM's `RepetitionDetectionParams`: the request ends once its last `min_count` times
    n tokens are n tokens repeated, for an n of `min_pattern_size` (0: 1) to `max_pattern_size`.
    """

    start: int
    period: int
    max_pattern_size: int
    min_count: int = 2
    min_pattern_size: int = 0
