"""Nouns: scheduler class of the user's own, in place of vLLM's.

vLLM takes a class for each config; whether it is made for async scheduling only the class knows.
"""

import importlib
import sys
from typing import Any

from schedfuzz.corpus.scenario import Engine
from schedfuzz.workers.target.seam import Arguments, Seam, Unsupported


class _Chosen:
    """The class that every engine of this process is to use."""

    cls: Any = None


def use_scheduler(root: str, name: str) -> None:
    """Import `module:Class` from a directory. Raises whatever its import raises."""
    sys.path.append(root)  # last: it must not shadow what the target has installed
    module, _, attribute = name.partition(":")
    _Chosen.cls = getattr(importlib.import_module(module), attribute)


def _scheduler(engine: Engine) -> Arguments:
    if _Chosen.cls is None:
        return {}
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    for_async = issubclass(_Chosen.cls, AsyncScheduler)
    if for_async != engine.async_scheduling:
        raise Unsupported(f"engine.async_scheduling {str(for_async).lower()}")
    return {"scheduler_cls": f"{_Chosen.cls.__module__}.{_Chosen.cls.__qualname__}"}


SCHEDULER_SEAMS: tuple[Seam, ...] = (Seam("scheduler_cls", _scheduler),)
