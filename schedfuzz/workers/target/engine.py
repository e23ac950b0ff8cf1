"""Nouns: engine config, adapter seams.

Every place where the releases differ in how an engine is configured or looked into is a function
here. Configs are cached by engine: building one costs milliseconds, and vLLM only writes back the
values it was given.
"""

import dataclasses
import functools
import inspect
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.corpus.tokens import prompt_tokens

MODEL_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 64,
    "max_position_embeddings": 1 << 20,
    "torch_dtype": "float32",
}
CACHED_CONFIGS = 512


class Rejected(Exception):
    """The release refuses this configuration or request with a validation error."""


def quiet() -> None:
    """Silence and cheapen what an engine does per construction and per exception."""
    import vllm.v1.engine.core as core

    for name in ("dump_engine_exception", "freeze_gc_heap", "maybe_attach_gc_debug_callback"):
        if hasattr(core, name):
            setattr(core, name, lambda *args, **kwargs: None)


def model_dir() -> str:
    """Return a directory with a tiny model's config.json, made on first use."""
    path = Path(os.environ["VLLM_CACHE_ROOT"]) / "schedfuzz-model"
    path.mkdir(parents=True, exist_ok=True)
    config = path / "config.json"
    if not config.exists():
        partial = path / f"config.json.{os.getpid()}"
        partial.write_text(json.dumps(MODEL_CONFIG))
        partial.replace(config)
    return str(path)


def vllm_config(engine: Engine) -> Any:
    """Return the release's VllmConfig for an engine. Raises Rejected if it refuses it."""
    config = _config(config_key(engine))
    config.cache_config.num_gpu_blocks_override = engine.num_blocks
    return config


def config_key(engine: Engine) -> Engine:
    """Return the part of an engine that shapes its config: all but the pool size."""
    return msgspec.structs.replace(engine, num_blocks=engine.max_model_len)


@functools.lru_cache(maxsize=CACHED_CONFIGS)
def _config(engine: Engine) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    arguments: dict[str, Any] = {
        "model": model_dir(),
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "enforce_eager": True,
        "dtype": "float32",
        "disable_log_stats": True,
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
    if engine.num_speculative_tokens:
        arguments["speculative_config"] = {
            "method": "draft_model",
            "model": model_dir(),
            "num_speculative_tokens": engine.num_speculative_tokens,
        }
    try:
        config = EngineArgs(**arguments).create_engine_config()
    except (ValueError, NotImplementedError) as error:
        raise Rejected(first_line(error)) from None
    # The CPU platform forces it off; the scheduler class is chosen lazily from this flag.
    config.scheduler_config.async_scheduling = engine.async_scheduling
    return config


def first_line(error: BaseException) -> str:
    """Return the first meaningful line of an exception's text, at most 200 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = next((line for line in lines if "Value error" in line), lines[0] if lines else "")
    return f"{type(error).__name__}: {text}"[:200]


@functools.lru_cache(maxsize=4)
def _request_parameters(cls: type) -> frozenset[str]:
    return frozenset(inspect.signature(cls).parameters)


@functools.lru_cache(maxsize=1024)
def _sampling(max_tokens: int) -> Any:
    from vllm import SamplingParams

    return SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)


def vllm_request(request: Request, hasher: Callable[..., Any] | None) -> Any:
    """Return vLLM's Request for ours; the arrival time is the step, then the id: no clock."""
    from vllm.v1.request import Request as VllmRequest

    arguments = {
        "request_id": str(request.id),
        "prompt_token_ids": prompt_tokens(request),
        "sampling_params": _sampling(request.max_tokens),
        "pooling_params": None,
        "arrival_time": request.arrival + request.id / 100_000,
        "priority": request.priority,
        "block_hasher": hasher,
        "eos_token_id": None,
    }
    known = _request_parameters(VllmRequest)
    return VllmRequest(**{name: value for name, value in arguments.items() if name in known})


def kv_spec(block_size: int) -> Any:
    """Return the full-attention KV spec of the one simulated layer."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    values = {
        "block_size": block_size,
        "num_kv_heads": 1,
        "head_size": 8,
        "head_size_v": 8,
        "dtype": torch.float32,
    }
    known = {field.name for field in dataclasses.fields(FullAttentionSpec)}
    return FullAttentionSpec(**{name: value for name, value in values.items() if name in known})


def runner_output(ids: list[str], sampled: list[list[int]]) -> Any:
    """Return vLLM's ModelRunnerOutput for the step's requests and their sampled tokens."""
    from vllm.v1.outputs import ModelRunnerOutput

    values = {
        "req_ids": ids,
        "req_id_to_index": {req_id: index for index, req_id in enumerate(ids)},
        "sampled_token_ids": sampled,
        "logprobs": None,
        "prompt_logprobs_dict": {},
        "pooler_output": [],
    }
    known = {field.name for field in dataclasses.fields(ModelRunnerOutput)}
    return ModelRunnerOutput(**{name: value for name, value in values.items() if name in known})
