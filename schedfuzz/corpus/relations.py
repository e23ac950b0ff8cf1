"""Nouns: relation, mend.

What the fields of an engine must keep to each other so that a user could really ask for it. One
table serves two readers: validation names the field and the cure, repair applies the mend; so the
two can never disagree. Mends go towards the defaults and are applied in the order of the table.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from schedfuzz.corpus.fitting import (
    fitting_connector,
    has_group,
    mended_group,
    mended_widths,
    retained,
    widths_fit,
    window_fits,
)
from schedfuzz.corpus.scenario import Engine
from schedfuzz.corpus.sizing import kept_apart, least_blocks, least_token_budget


class Relation(NamedTuple):
    """`holds` says whether an engine keeps it; `changes` are the fields that make it do so."""

    field: str
    cure: str
    holds: Callable[[Engine], bool]
    changes: Callable[[Engine], dict[str, Any]]


def mend(engine: Engine) -> Engine:
    """Return the engine with every relation kept, the same object if it keeps them all."""
    for relation in RELATIONS:
        if not relation.holds(engine):
            engine = replace(engine, **relation.changes(engine))
    return engine


def _only(model: str) -> Callable[[Engine], bool]:
    return lambda engine: engine.model == model


_diffusion, _pooling, _encdec = _only("diffusion"), _only("pooling"), _only("encoder-decoder")


def _plain(engine: Engine) -> bool:
    """Return whether nothing is on that only autoregressive decoder models have."""
    return not (
        engine.num_speculative_tokens
        or engine.groups
        or engine.connector
        or engine.ec_connector
        or engine.reasoning
        or engine.pipeline_parallel_size > 1
    )


_PLAIN: dict[str, Any] = {
    "num_speculative_tokens": 0, "spec_widths": (), "groups": (), "prefix_match_unit": 0,
    "connector": None, "ec_connector": False, "reasoning": False, "pipeline_parallel_size": 1,
}  # fmt: skip
V2_METHODS = ("eagle", "mtp", "dflash")

RELATIONS: tuple[Relation, ...] = (
    Relation(
        "model", "only an autoregressive model has drafts, KV groups, connectors, reasoning or "
        "pipeline ranks here",
        lambda e: e.model == "autoregressive" or _plain(e), lambda e: _PLAIN,
    ),
    Relation(
        "canvas_length", "a diffusion model has a canvas of 2 or more tokens, others have 0",
        lambda e: e.canvas_length > 1 if _diffusion(e) else e.canvas_length == 0,
        lambda e: {"canvas_length": 8 if _diffusion(e) else 0},
    ),
    Relation(
        "model_runner", "diffusion needs v2; encoder-decoder, ngram and draft_model need v1",
        lambda e: e.model_runner == "v2" if _diffusion(e) else not (
            e.model_runner == "v2" and (_encdec(e) or (
                e.num_speculative_tokens > 0 and e.spec_method not in V2_METHODS))),
        lambda e: {"model_runner": "v2" if _diffusion(e) else "v1"},
    ),
    Relation(
        "prefix_caching", "an encoder-decoder model has none",
        lambda e: not (_encdec(e) and e.prefix_caching), lambda e: {"prefix_caching": False},
    ),
    Relation(
        "chunked_prefill", "an encoder-decoder model has none",
        lambda e: not (_encdec(e) and e.chunked_prefill), lambda e: {"chunked_prefill": False},
    ),
    Relation(
        "long_prefill_token_threshold", "an encoder-decoder model has none",
        lambda e: not (_encdec(e) and e.long_prefill_token_threshold),
        lambda e: {"long_prefill_token_threshold": 0},
    ),
    Relation(
        "encoder_cache_size", "an encoder-decoder model needs one, diffusion and pooling have none",
        lambda e: e.encoder_cache_size > 0 if _encdec(e) else not (
            e.encoder_cache_size and (_diffusion(e) or _pooling(e))),
        lambda e: {"encoder_cache_size": 64 if _encdec(e) else 0},
    ),
    Relation(
        "max_num_encoder_input_tokens", "is set exactly when encoder_cache_size is",
        lambda e: (e.max_num_encoder_input_tokens > 0) == (e.encoder_cache_size > 0),
        lambda e: {"max_num_encoder_input_tokens": e.encoder_cache_size},
    ),
    Relation(
        "disable_chunked_mm_input", "needs an encoder cache; an encoder-decoder model chunks none",
        lambda e: (e.encoder_cache_size > 0 and not _encdec(e)) or not e.disable_chunked_mm_input,
        lambda e: {"disable_chunked_mm_input": False},
    ),
    Relation(
        "ec_connector", "needs an encoder cache",
        lambda e: e.encoder_cache_size > 0 or not e.ec_connector,
        lambda e: {"ec_connector": False},
    ),
    Relation(
        "spec_method", "async_scheduling does not take ngram drafts",
        lambda e: not (e.spec_method == "ngram" and e.async_scheduling),
        lambda e: {"spec_method": "draft_model"},
    ),
    Relation(
        "spec_widths", "rows (from, to, width) count batch sizes up from 1 without a gap; width is "
        "at most num_speculative_tokens",
        widths_fit, lambda e: {"spec_widths": mended_widths(e)},
    ),
    Relation(
        "spec_widths", "needs num_speculative_tokens",
        lambda e: e.num_speculative_tokens > 0 or not e.spec_widths,
        lambda e: {"spec_widths": ()},
    ),
    Relation(
        "pipeline_parallel_size", "above 1 it needs async_scheduling on v2 (v1 has it without "
        "pipeline ranks only), or else no drafts",
        lambda e: e.pipeline_parallel_size == 1
        or (e.model_runner == "v2" if e.async_scheduling else not e.num_speculative_tokens),
        lambda e: {"pipeline_parallel_size": 1},
    ),
    Relation(
        "groups", "a sliding_window group has a window, others have none",
        lambda e: all(map(window_fits, e.groups)),
        lambda e: {"groups": tuple(map(mended_group, e.groups))},
    ),
    Relation(
        "groups", "vLLM would merge them: one must differ from all others",
        lambda e: kept_apart(e.groups),
        lambda e: {"groups": tuple(dict.fromkeys(e.groups))},
    ),
    Relation(
        "num_speculative_tokens", "with mamba groups must be less than block_size: a step's states "
        "lie in consecutive blocks",
        lambda e: not has_group(e, "mamba") or e.num_speculative_tokens < e.block_size,
        lambda e: {"num_speculative_tokens": e.block_size - 1},
    ),
    Relation(
        "disable_chunked_mm_input", "mamba groups need it off (vLLM's align mode)",
        lambda e: not (has_group(e, "mamba") and e.disable_chunked_mm_input),
        lambda e: {"disable_chunked_mm_input": False},
    ),
    Relation(
        "groups", "mamba groups need chunked_prefill and prefix_caching (vLLM's align mode)",
        lambda e: not has_group(e, "mamba") or (e.chunked_prefill and e.prefix_caching),
        lambda e: {"chunked_prefill": True, "prefix_caching": True},
    ),
    Relation(
        "prefix_cache_retention_interval", "is 0, or with prefix_caching and a sliding_window or "
        "mamba group a multiple of block_size or null",
        lambda e: retained(e) == e.prefix_cache_retention_interval,
        lambda e: {"prefix_cache_retention_interval": retained(e)},
    ),
    Relation(
        "prefill_checkpoint_alignment", "needs mamba groups",
        lambda e: e.prefill_checkpoint_alignment == 0 or has_group(e, "mamba"),
        lambda e: {"prefill_checkpoint_alignment": 0},
    ),
    Relation(
        "prefix_match_unit", "needs two or more groups, and divides block_size",
        lambda e: e.prefix_match_unit == 0
        or (len(e.groups) > 1 and e.prefix_caching and e.block_size % e.prefix_match_unit == 0),
        lambda e: {"prefix_match_unit": 0},
    ),
    Relation(
        "mamba_shared_prefix_checkpoint", "needs mamba groups and a prefix_match_unit",
        lambda e: not e.mamba_shared_prefix_checkpoint
        or (has_group(e, "mamba") and e.prefix_match_unit > 0),
        lambda e: {"mamba_shared_prefix_checkpoint": False},
    ),
    Relation(
        "connector", "offload_blocks is set exactly for the offloading connector, which has "
        "store_steps and load_steps too, but no role, policy, restores_state or single_group of "
        "its own, and takes one KV group of full attention here; as a single_group one does",
        lambda e: fitting_connector(e) == e.connector,
        lambda e: {"connector": fitting_connector(e)},
    ),
    Relation(
        "max_num_batched_tokens", "is too small for max_num_seqs, the draft window and "
        "chunked_prefill as given",
        lambda e: e.max_num_batched_tokens >= least_token_budget(e),
        lambda e: {"max_num_batched_tokens": least_token_budget(e)},
    ),
    Relation(
        "max_num_scheduled_tokens", "is 0 or from the least token budget to max_num_batched_tokens",
        lambda e: e.max_num_scheduled_tokens == 0
        or least_token_budget(e) <= e.max_num_scheduled_tokens <= e.max_num_batched_tokens,
        lambda e: {"max_num_scheduled_tokens": 0},
    ),
    Relation(
        "max_num_active_seqs", "must not exceed max_num_seqs",
        lambda e: e.max_num_active_seqs <= e.max_num_seqs,
        lambda e: {"max_num_active_seqs": e.max_num_seqs},
    ),
    Relation(
        "num_blocks", "is too small for one request of max_model_len",
        # Releases from 0.29.0 on count the null block too.
        lambda e: e.num_blocks >= least_blocks(e), lambda e: {"num_blocks": least_blocks(e) + 1},
    ),
    Relation(
        "long_prefill_token_threshold", "must not exceed max_model_len",
        lambda e: e.long_prefill_token_threshold <= e.max_model_len,
        lambda e: {"long_prefill_token_threshold": e.max_model_len},
    ),
)  # fmt: skip
