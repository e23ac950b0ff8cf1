"""Nouns: worker: vLLM's own, made anew for each scenario in milliseconds."""

import os
import tempfile
from pathlib import Path
from typing import Any

# Of the device's memory: vLLM checks that it is free; how large a pool is, the scenario says.
MEMORY_SHARE = 0.01


def distributed_args() -> tuple[str, int, int]:
    """Return (init method, rank, local rank) for one process that listens nowhere."""
    return f"file://{_store()}", 0, 0


def new_worker(executor: Any) -> Any:
    """Return a fresh worker; of earlier ones only the process's distributed groups are left."""
    from vllm.distributed.kv_transfer import kv_transfer_state
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    config = executor.vllm_config
    config.compilation_config.static_forward_context.clear()
    config.cache_config.gpu_memory_utilization = MEMORY_SHARE
    kv_transfer_state._KV_CONNECTOR_AGENT = None  # else the next engine is given the last one's
    UniProcExecutor._init_executor(executor)
    _store().unlink(missing_ok=True)  # one process has no more use for it
    return executor.driver_worker


def _store() -> Path:
    return Path(tempfile.gettempdir()) / f"schedfuzz-{os.getpid()}-store"
