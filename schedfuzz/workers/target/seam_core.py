"""Nouns: core seams: limits, switches and stops, as all releases take them."""

from typing import Any

from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.corpus.tokens import STOP
from schedfuzz.workers.target.seam import Arguments, Seam


def _limits(engine: Engine) -> Arguments:
    return {
        "max_model_len": engine.max_model_len,
        "block_size": engine.block_size,
        "num_gpu_blocks_override": engine.num_blocks,
        "max_num_seqs": engine.max_num_seqs,
        "max_num_batched_tokens": engine.max_num_batched_tokens,
        "long_prefill_token_threshold": engine.long_prefill_token_threshold,
        "enable_chunked_prefill": engine.chunked_prefill,
        "enable_prefix_caching": engine.prefix_caching,
        "scheduling_policy": engine.policy,
        "async_scheduling": False,
    }


def _async(engine: Engine, config: Any) -> None:
    # The CPU platform forces it off; the scheduler class is chosen lazily from this flag.
    config.scheduler_config.async_scheduling = engine.async_scheduling


def _optional(field: str, name: str, off: Any) -> Seam:
    """Return the seam of a field that `EngineArgs` takes as it is when it is not `off`."""

    def arguments(engine: Engine) -> Arguments:
        value = getattr(engine, field)
        return {} if value == off else {name: value}

    return Seam(field, arguments)


def _watermark(engine: Engine) -> Arguments:
    return {"watermark": engine.watermark_percent / 100} if engine.watermark_percent else {}


def _stops(engine: Engine, request: Request, arguments: Arguments) -> None:
    if request.stop_at is not None:
        arguments["sampling"]["stop_token_ids"] = [STOP]
    if request.min_tokens:
        arguments["sampling"]["min_tokens"] = request.min_tokens


def _loops(engine: Engine, request: Request, arguments: Arguments) -> None:
    loop = request.repetition
    if loop is None:
        return
    from vllm.sampling_params import RepetitionDetectionParams

    arguments["sampling"]["repetition_detection"] = RepetitionDetectionParams(
        max_pattern_size=loop.max_pattern_size,
        min_pattern_size=loop.min_pattern_size,
        min_count=loop.min_count,
    )


CORE_SEAMS: tuple[Seam, ...] = (
    Seam("max_model_len", _limits, _async),
    Seam("stop_at", request=_stops),
    Seam("repetition", request=_loops),
    Seam("watermark_percent", _watermark),
    _optional("scheduler_reserve_full_isl", "scheduler_reserve_full_isl", True),
    _optional("max_num_scheduled_tokens", "max_num_scheduled_tokens", 0),
    _optional("prefill_schedule_interval", "prefill_schedule_interval", 1),
    _optional("max_num_active_seqs", "max_num_active_seqs", 0),
    _optional("long_prefill_token_threshold_adaptive", "long_prefill_token_threshold_adaptive",
              False),
)  # fmt: skip
