"""Nouns: Scenario, Engine, Request, Prompt, Turn.

A scenario is pure data: prompts are rules (a prefix family and lengths), never token lists, so
that a scenario stays a few hundred readable bytes and two targets see exactly the same input.
New dimensions are new optional fields: a default keeps every older file valid and its canonical
bytes unchanged (defaults are not written). Parts that only some scenarios have stand in `parts`.
"""

from typing import Literal

import msgspec

from schedfuzz.corpus.events import Event
from schedfuzz.corpus.parts import (
    Connector,
    External,
    Group,
    Image,
    Repetition,
    Sampling,
    Structured,
    Turn,
)

SCHEMA_VERSION = 1
NO_ACCEPT: tuple[int, ...] = (0,)  # the default of `accept`: every draft is wrong

SpecMethod = Literal["draft_model", "eagle", "mtp", "dflash", "ngram"]


class Engine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One engine configuration; lengths are in tokens, pools in KV blocks.

    `num_blocks` is vLLM's `num_gpu_blocks_override` (the null block included). The names follow
    vLLM's `EngineArgs` where it has one. 0 or an empty tuple switches a dimension off.
    `spec_widths` holds (least, most batch size, draft width); `groups` are the KV cache groups,
    none means one of full attention; `watermark_percent` is of the pool. `encoder_cache_size` and
    `max_num_encoder_input_tokens` are in encoder tokens: 0 for a text model. With a
    `prefill_checkpoint_alignment` the mamba backend saves a state on its way through a chunk, whole
    multiples of so many tokens after the chunk's start.
    """

    max_model_len: int
    num_blocks: int
    block_size: int = 16
    model: Literal["autoregressive", "diffusion", "pooling", "encoder-decoder"] = "autoregressive"
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 256
    long_prefill_token_threshold: int = 0
    chunked_prefill: bool = True
    prefix_caching: bool = True
    policy: Literal["fcfs", "priority"] = "fcfs"
    async_scheduling: bool = False
    num_speculative_tokens: int = 0
    model_runner: Literal["v1", "v2"] = "v1"
    pipeline_parallel_size: int = 1
    spec_method: SpecMethod = "draft_model"
    spec_widths: tuple[tuple[int, int, int], ...] = ()
    canvas_length: int = 0
    groups: tuple[Group, ...] = ()
    prefix_match_unit: int = 0
    watermark_percent: int = 0
    scheduler_reserve_full_isl: bool = True
    max_num_scheduled_tokens: int = 0
    prefill_schedule_interval: int = 1
    long_prefill_token_threshold_adaptive: bool = False
    encoder_cache_size: int = 0
    max_num_encoder_input_tokens: int = 0
    disable_chunked_mm_input: bool = False
    max_loras: int = 0
    reasoning: bool = False
    grammar_backend: Literal["stub", "xgrammar"] = "stub"
    connector: Connector | None = None
    ec_connector: bool = False
    prefix_cache_retention_interval: int | None = 0
    mamba_shared_prefix_checkpoint: bool = False
    prefill_checkpoint_alignment: int = 0
    max_num_active_seqs: int = 0


class Prompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`length` tokens, the first `shared` of which belong to prefix family `family`.

    Two requests of one family agree on their first min(shared, shared) tokens; the rest is the
    request's own. `shared=None` means the whole prompt.
    """

    length: int
    family: int = 0
    shared: int | None = None


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One client request; `arrival` is the engine step before which it is added.

    `accept` is the draft acceptance pattern: after the output token at absolute position p the
    drafter's first `accept[p % len(accept)]` drafts are right and the next one is wrong. Tied to
    the position, it does not depend on the schedule. `proposals`, tied to it likewise, is how many
    drafts the drafter proposes (empty: the full width). `stop_at` is the index of the output token
    from which on the model says its stop token; `denoise` the denoising steps of each canvas,
    whose width the request may lower (`canvas`) and whose steps it may cap (`max_steps`);
    `read_only` asks for the first canvas as it converged, without the step that commits it.
    `turns` continue the request as a streaming session, the last one closes it; `min_tokens`
    counts for the first turn only. `repetition` makes the model loop, and vLLM look for loops.
    """

    id: int
    prompt: Prompt
    max_tokens: int
    arrival: int = 0
    priority: int = 0
    accept: tuple[int, ...] = NO_ACCEPT
    proposals: tuple[int, ...] = ()
    min_tokens: int = 0
    stop_at: int | None = None
    denoise: int = 1
    canvas: int = 0
    max_steps: int = 0
    read_only: bool = False
    lora: int = 0
    logprobs: bool = False
    prompt_logprobs: bool = False
    images: tuple[Image, ...] = ()
    structured: Structured | None = None
    external: External | None = None
    sampling: Sampling | None = None
    turns: tuple[Turn, ...] = ()
    repetition: Repetition | None = None


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An engine, the requests in order of their ids, the events in order of their steps."""

    engine: Engine
    requests: tuple[Request, ...]
    events: tuple[Event, ...] = ()
    schema: int = SCHEMA_VERSION
