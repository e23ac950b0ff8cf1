"""Nouns: preparation: what a target's process does once so that it plays on the real runner."""

from typing import Any

from schedfuzz.workers.target import model
from schedfuzz.workers.target.real import kernels
from schedfuzz.workers.target.real.code import LANES
from schedfuzz.workers.target.real.device import on_gpu
from schedfuzz.workers.target.real.repetition import do_once, do_once_on_cpu

ARCHITECTURE = "SchedfuzzCheckableModel"


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


def prepare(control: bool = False) -> Any:
    """Return the executor class of the real runner; on a GPU build `do_once` is left to do.

    With `control` an ordinary model goes along and is checked too.
    """
    import torch

    # The few helpers that vLLM compiles even in eager mode do the same uncompiled, at once.
    torch._dynamo.config.disable = True
    from vllm import ModelRegistry

    from schedfuzz.workers.target.real.executor import RealExecutor
    from schedfuzz.workers.target.real.model import CheckableHead, CheckableModel

    played, executor = CheckableModel, RealExecutor
    if control:
        from schedfuzz.workers.target.real.control import ControlledExecutor, ControlledModel

        played, executor = ControlledModel, ControlledExecutor
    ModelRegistry.register_model(ARCHITECTURE, played)
    ModelRegistry.register_model("Eagle" + ARCHITECTURE, CheckableHead)
    model.play("schedfuzz-checkable", architectures=[ARCHITECTURE], head_dim=LANES,
               hidden_size=LANES)  # fmt: skip
    if not on_gpu():
        from vllm.platforms import current_platform

        do_once()
        _stand_in(torch)
        _allow_async(type(current_platform))
        do_once_on_cpu(torch, type(current_platform))
        kernels.supply()
    return executor


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
