"""Nouns: Scenario, Engine, Request, Prompt, Abort, ResetPrefixCache.

A scenario is pure data: prompts are rules (a prefix family and lengths), never token lists, so
that a scenario stays a few hundred readable bytes and two targets see exactly the same input.
New dimensions are new optional fields: a default keeps every older file valid and its canonical
bytes unchanged (defaults are not written).
"""

from typing import Literal

import msgspec

SCHEMA_VERSION = 1
NO_ACCEPT: tuple[int, ...] = (0,)  # the default of `accept`: every draft is wrong


class Engine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One engine configuration; lengths are in tokens, pools in KV blocks.

    `num_blocks` is vLLM's `num_gpu_blocks_override` (the null block included). The names follow
    vLLM's `EngineArgs` where it has one.
    """

    max_model_len: int
    num_blocks: int
    block_size: int = 16
    model: Literal["autoregressive"] = "autoregressive"
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 256
    long_prefill_token_threshold: int = 0
    chunked_prefill: bool = True
    prefix_caching: bool = True
    policy: Literal["fcfs", "priority"] = "fcfs"
    async_scheduling: bool = False
    num_speculative_tokens: int = 0


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
    the position, it does not depend on the schedule.
    """

    id: int
    prompt: Prompt
    max_tokens: int
    arrival: int = 0
    priority: int = 0
    accept: tuple[int, ...] = NO_ACCEPT


class Abort(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="abort"
):
    """The client leaves before `step`, or, with `in_flight`, while that step is executing."""

    step: int
    request: int
    in_flight: bool = False


class ResetPrefixCache(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag="reset_prefix_cache",
):
    """Before `step` the prefix cache is dropped; `preempt_running` first preempts what runs."""

    step: int
    preempt_running: bool = False


Event = Abort | ResetPrefixCache


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An engine, the requests in order of their ids, the events in order of their steps."""

    engine: Engine
    requests: tuple[Request, ...]
    events: tuple[Event, ...] = ()
    schema: int = SCHEMA_VERSION
