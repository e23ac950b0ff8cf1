"""Nouns: diffusion model, canvas: how the releases take a model that denoises."""

import importlib
from typing import Any

from schedfuzz.corpus.scenario import Engine, Request
from schedfuzz.workers.target.model import model_dir
from schedfuzz.workers.target.seam import Arguments, Seam, Unsupported

SCHEDULERS = "vllm.v1.core.sched.diffusion_scheduler"  # since 0.31


def _diffusion(engine: Engine) -> Arguments:
    length = engine.canvas_length
    if engine.model != "diffusion":
        return {}
    model = model_dir(f"-diffusion-{length}", canvas_length=length)
    return {"model": model, "diffusion_config": {"canvas_length": length}}


def _scheduler(engine: Engine, config: Any) -> None:
    """Choose the scheduler anew: config creation did before async scheduling was set."""
    if engine.model != "diffusion":
        return
    name = "DiffusionAsyncScheduler" if engine.async_scheduling else "DiffusionScheduler"
    config.scheduler_config.scheduler_cls = f"{SCHEDULERS}.{name}" if _has(name) else None


def _has(name: str) -> bool:
    try:
        return hasattr(importlib.import_module(SCHEDULERS), name)
    except ImportError:
        return False


def _canvas(engine: Engine, request: Request, arguments: Arguments) -> None:
    asked = {
        "diffusion_canvas_length": request.canvas,
        "diffusion_max_steps": request.max_steps,
        "diffusion_read_only": request.read_only,
    }
    extra = {name: value for name, value in asked.items() if value}
    if not extra:
        return
    if not _has("DiffusionAsyncScheduler"):
        raise Unsupported("requests.canvas")
    sampling = arguments["sampling"]
    sampling["extra_args"] = extra
    if request.read_only:  # as vLLM's input processor does
        width = request.canvas or engine.canvas_length
        sampling["max_tokens"] = min(sampling["max_tokens"], width)


DIFFUSION_SEAMS: tuple[Seam, ...] = (
    Seam("canvas_length", _diffusion, _scheduler, _canvas),
)  # fmt: skip
