"""Nouns: forgotten kernel.

vLLM's builds without Triton put functions of their own in the kernels' places. 0.30.0 forgot two of
them, and would die of that in every step that proposes two drafts or verifies one.
"""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

# (module, what calls the kernel there, the function among those for the kernels' places)
_USED = (
    (
        "vllm.v1.spec_decode.utils", "_eagle_step_slot_mapping_metadata",
        "eagle_step_slot_mapping_metadata_kernel",
    ),
    (
        "vllm.v1.sample.rejection_sampler", "_rejection_greedy_sample",
        "rejection_greedy_sample_kernel",
    ),
)  # fmt: skip


class _InPlace:
    """A function in a kernel's place: it is called by the kernel's names, and has others."""

    def __init__(self, kernel: Callable[..., None], function: Callable[..., None]) -> None:
        self.arg_names = tuple(inspect.signature(kernel).parameters)
        self.function = function

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda **values: self.function(*(values[name] for name in self.arg_names))


def supply() -> None:
    """Put vLLM's own functions in the places of the kernels that this build forgot, if any."""
    functions = importlib.import_module("vllm.utils.cpu_triton_utils")
    for module, caller_name, name in _USED:
        caller: Any = getattr(importlib.import_module(module), caller_name, None)
        function = getattr(functions, name, None)
        kernel = getattr(caller, "kernel", None)
        if function is not None and inspect.isfunction(kernel):
            caller.kernel = _InPlace(kernel, function.func)
