"""Nouns: worker: vLLM's own, made anew for each scenario in milliseconds."""

import os
import tempfile
from pathlib import Path
from typing import Any


def distributed_args() -> tuple[str, int, int]:
    """Return (init method, rank, local rank) for one process that listens nowhere."""
    path = Path(tempfile.gettempdir()) / f"schedfuzz-{os.getpid()}-store"
    return f"file://{path}", 0, 0


def new_worker(executor: Any) -> Any:
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    executor.vllm_config.compilation_config.static_forward_context.clear()
    UniProcExecutor._init_executor(executor)
    return executor.driver_worker
