"""Nouns: repetition: what vLLM does anew for every engine, with the same result each time.

Each scenario gets a fresh worker and model runner, so nothing of another one can be left in them.
What makes that cheap is to ask once per process what has the same answer for ever, and to leave
out what only serves a server that runs for days.
"""

import functools
import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

# Functions (module, name) that look at the machine, or at a class.
_SAME_ANSWER = (
    ("vllm.v1.worker.cpu_worker", "get_allowed_cpu_list"),
    ("vllm.v1.worker.cpu_worker", "get_visible_memory_node"),
    ("vllm.v1.sample.logits_processor", "_load_logitsprocs_plugins"),
    ("vllm.config.utils", "is_init_field"),
)
# Modules that collect garbage for the sake of a model's size: ours has one parameter.
_COLLECTING = ("vllm.model_executor.model_loader.base_loader", "vllm.v1.worker.gpu_worker")


def do_once() -> None:
    """Take the repetition out of vLLM's modules, on any machine."""
    for module, name in _SAME_ANSWER:
        _replace(module, name, functools.cache)
    for module in _COLLECTING:
        _replace(module, "gc", _without_collect)
    # Spans go nowhere here; to look for their parent copies the environment each time.
    _replace("vllm.tracing.otel", "_get_smart_context", lambda _: _nothing)


def do_once_on_cpu(torch: Any, platform: Any) -> None:
    """Take out what only a build without a GPU repeats.

    Raises RuntimeError where vLLM's compiled parts were not loaded.
    """
    if not hasattr(torch.ops._C, "init_cpu_memory_env"):
        raise RuntimeError("vLLM's compiled parts do not fit the torch beside them, so only the "
                           "simulated runner can play this release")  # fmt: skip
    # Without a device each seed is queued, with its stack, for a device that never comes.
    for backend in (torch.cuda, torch.xpu, torch.mtia):
        backend.manual_seed_all = _nothing
    # Binding memory to the same node again changes nothing and writes a line to the log.
    torch.ops._C.init_cpu_memory_env = _once(torch.ops._C.init_cpu_memory_env)
    # It rebinds what every imported module holds.
    name = "register_triton_kernel_overrides"
    if hasattr(platform, name):
        setattr(platform, name, staticmethod(functools.cache(getattr(platform, name))))


def _replace(module_name: str, name: str, make: Callable[[Any], Any]) -> None:
    """Put `make(old)` in a module's attribute's place, if this release has both."""
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError:
        return
    if hasattr(module, name):
        setattr(module, name, make(getattr(module, name)))


def _without_collect(gc: Any) -> SimpleNamespace:
    return SimpleNamespace(**vars(gc) | {"collect": _nothing})


def _nothing(*args: Any) -> None:
    pass


def _once(bind: Callable[[list[int]], Any]) -> Callable[[list[int]], Any]:
    """Return `bind` such that it is called once for each list."""
    cached = functools.cache(lambda nodes: bind(list(nodes)))
    return lambda nodes: cached(tuple(nodes))
