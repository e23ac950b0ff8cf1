"""Nouns: engine config, vLLM's request.

What the releases are given, put together from the table of seams. Configs are cached by engine:
building one costs milliseconds, and vLLM only writes back the values it was given.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import msgspec

from schedfuzz.corpus.printable import plain
from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.corpus.tokens import prompt_tokens
from schedfuzz.workers.target.model import model_dir
from schedfuzz.workers.target.parsing import parse_once
from schedfuzz.workers.target.seam import Arguments, Rejected, Unsupported
from schedfuzz.workers.target.seam_asks import Spelled
from schedfuzz.workers.target.seams import SEAMS

CACHED_CONFIGS = 512


def quiet() -> None:
    """Silence and cheapen what an engine does per construction and per exception."""
    import vllm.v1.engine.core as core

    for name in ("dump_engine_exception", "freeze_gc_heap", "maybe_attach_gc_debug_callback"):
        if hasattr(core, name):
            setattr(core, name, lambda *args, **kwargs: None)
    parse_once()


def vllm_config(engine: Engine) -> Any:
    """Return the release's VllmConfig. Raises Rejected if it refuses it, Unsupported."""
    config = _config(config_key(engine))
    config.cache_config.num_gpu_blocks_override = engine.num_blocks
    return config


def config_key(engine: Engine) -> Engine:
    """Return the part of an engine that shapes its config: all but the pool size."""
    return msgspec.structs.replace(engine, num_blocks=engine.max_model_len)


@functools.lru_cache(maxsize=CACHED_CONFIGS)
def _config(engine: Engine) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    arguments: Arguments = {
        "model": model_dir(),
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "enforce_eager": True,
        "dtype": "float32",
        "disable_log_stats": True,
    }
    known = _parameters(EngineArgs)
    for seam in SEAMS:
        added = seam.arguments(engine)
        if not added.keys() <= known:
            raise Unsupported(f"engine.{seam.field}")
        arguments |= added
    try:
        config = EngineArgs(**arguments).create_engine_config()
    except (ValueError, NotImplementedError) as error:
        raise Rejected(first_line(error)) from None
    for seam in SEAMS:
        seam.finish(engine, config)
    return config


def first_line(error: BaseException) -> str:
    """Return the first meaningful line of an exception's text, at most 200 characters."""
    try:
        said = str(error)
    except Exception:
        said = "(its text cannot be had)"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    text = next((line for line in lines if "Value error" in line), lines[0] if lines else "")
    return plain(f"{type(error).__name__}: {text}"[:200])


@functools.lru_cache(maxsize=16)
def _parameters(cls: Any) -> frozenset[str]:
    """Return the names of a class's constructor arguments or fields."""
    return frozenset(inspect.signature(cls).parameters)


@functools.lru_cache(maxsize=1024)
def _sampling(items: tuple[tuple[str, Any], ...]) -> Any:
    from vllm import SamplingParams

    params = SamplingParams(temperature=0.0, ignore_eos=True, **dict(items))
    params.update_from_tokenizer(Spelled())
    return params


def sampling_params(arguments: Arguments) -> Any:
    """Return vLLM's SamplingParams, a shared object where its arguments are simple values."""
    items = tuple((name, arguments[name]) for name in sorted(arguments))
    try:
        return _sampling(items)
    except TypeError:  # a list or a dict among them
        return _sampling.__wrapped__(items)


def vllm_request(
    engine: Engine,
    request: Request,
    hasher: Callable[..., Any] | None,
    tokens: list[int] | None = None,
) -> Any:
    """Return vLLM's Request for ours, with its own prompt or `tokens`, a session's next input.

    The arrival time is the step, then the id: no clock.
    """
    from vllm.v1.request import Request as VllmRequest

    arguments: Arguments = {
        "request_id": str(request.id),
        "prompt_token_ids": prompt_tokens(request) if tokens is None else tokens,
        "sampling": {"max_tokens": request.max_tokens},
        "pooling_params": None,
        "arrival_time": request.arrival + request.id / 100_000,
        "priority": request.priority,
        "block_hasher": hasher,
        "eos_token_id": None,
    }
    for seam in SEAMS:
        seam.request(engine, request, arguments)
    sampling = arguments.pop("sampling")
    arguments["sampling_params"] = sampling_params(sampling) if sampling else None
    known = _parameters(VllmRequest)
    return VllmRequest(**{name: value for name, value in arguments.items() if name in known})


def runner_output(ids: list[str], sampled: list[list[int]], more: dict[str, Any]) -> Any:
    """Return vLLM's ModelRunnerOutput for the step's requests and their sampled tokens."""
    from vllm.v1.outputs import ModelRunnerOutput

    values = {
        "req_ids": ids,
        "req_id_to_index": {req_id: index for index, req_id in enumerate(ids)},
        "sampled_token_ids": sampled,
        "logprobs": None,
        "prompt_logprobs_dict": {},
        "pooler_output": [],
    } | more
    known = _parameters(ModelRunnerOutput)
    return ModelRunnerOutput(**{name: value for name, value in values.items() if name in known})
