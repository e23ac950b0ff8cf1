"""Nouns: preparation: what a target's process does once so that it plays on the real runner."""

import functools
import importlib
from typing import Any

from schedfuzz.workers.target import model
from schedfuzz.workers.target.real.code import LANES

ARCHITECTURE = "SchedfuzzCheckableModel"
# Modules and their functions that look at the machine, each of which answers the same for ever.
_LOOKS = (
    ("vllm.v1.worker.cpu_worker", "get_allowed_cpu_list"),
    ("vllm.v1.worker.cpu_worker", "get_visible_memory_node"),
    ("vllm.v1.sample.logits_processor", "_load_logitsprocs_plugins"),
)


class _Nothing:
    """Stands for a CUDA stream or event where there is no CUDA: all is done at once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        import torch

        self.device = torch.device("cpu")

    def __enter__(self) -> "_Nothing":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def wait_stream(self, *args: Any) -> None:
        """Wait for nothing."""

    wait_event = record = synchronize = wait = query = record_event = wait_stream


def prepare() -> type:
    """Return the executor class of the real runner."""
    import torch
    from vllm import ModelRegistry

    from schedfuzz.workers.target.real.executor import RealExecutor
    from schedfuzz.workers.target.real.model import CheckableModel

    ModelRegistry.register_model(ARCHITECTURE, CheckableModel)
    model.play("schedfuzz-checkable", architectures=[ARCHITECTURE], head_dim=LANES,
               hidden_size=LANES)  # fmt: skip
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        _stand_in(torch)
        _allow_async(type(current_platform))
        _only_once(type(current_platform), "register_triton_kernel_overrides")
    for name, function in _LOOKS:
        module = importlib.import_module(name)
        if hasattr(module, function):
            setattr(module, function, functools.cache(getattr(module, function)))
    return RealExecutor


def _stand_in(torch: Any) -> None:
    torch.cuda.Stream = torch.cuda.Event = torch.Event = _Nothing
    torch.cuda.stream = torch.cuda.current_stream = _Nothing


def _allow_async(platform: Any) -> None:
    """Keep async scheduling, which the CPU platform switches off in every config it looks at."""
    update = platform.check_and_update_config

    def check_and_update_config(config: Any) -> None:
        wanted = config.scheduler_config.async_scheduling
        update(config)
        config.scheduler_config.async_scheduling = wanted

    platform.check_and_update_config = staticmethod(check_and_update_config)


def _only_once(platform: Any, name: str) -> None:
    """Let a classmethod without arguments that rebinds what every module imported run once."""
    if hasattr(platform, name):
        setattr(platform, name, staticmethod(functools.cache(getattr(platform, name))))
