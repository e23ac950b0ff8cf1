"""Nouns: KV groups, align mode, prefix match unit.

The groups come from the layers' KV specs (`specs`); a config only learns of mamba's cache mode. It
is set after creation, since the tiny model has no mamba layer, and checked as for one that has.
"""

import functools
from pathlib import Path
from typing import Any

from schedfuzz.corpus.fitting import has_group
from schedfuzz.corpus.scenario import Engine
from schedfuzz.workers.target.checkpoints import places
from schedfuzz.workers.target.model import model_dir
from schedfuzz.workers.target.seam import Arguments, Rejected, Seam, Unsupported


def _unit(engine: Engine) -> Arguments:
    return {"prefix_match_unit": engine.prefix_match_unit} if engine.prefix_match_unit else {}


def _layers(engine: Engine) -> Arguments:
    """Return a model that tells the checkable one of its windows, one for each attention layer."""
    windows = [group.window for group in engine.groups if group.kind != "mamba"]
    if engine.model != "autoregressive" or not any(windows):
        return {}
    return {"model": model_dir("-windows-" + "-".join(map(str, windows)), windows=windows)}


def _align(engine: Engine, config: Any) -> None:
    if not has_group(engine, "mamba"):
        return
    config.cache_config.mamba_cache_mode = "align"
    config.cache_config.mamba_block_size = engine.block_size
    if engine.model_runner == "v2" and not _v2_aligns():
        raise Unsupported("engine.groups")
    try:
        config.validate_block_size()
    except AssertionError as error:
        raise Rejected(f"AssertionError: {error}"[:200]) from None


@functools.cache
def _v2_aligns() -> bool:
    """Return whether the release's V2 runner has the align mode; importing it wants a GPU."""
    import vllm

    model_state = Path(vllm.__file__).parent / "v1/worker/gpu/model_states/mamba_hybrid.py"
    return model_state.is_file() and "align" in model_state.read_text()


def _retention(engine: Engine) -> Arguments:
    interval = engine.prefix_cache_retention_interval
    return {} if interval == 0 else {"prefix_cache_retention_interval": interval}


def _junctions(engine: Engine) -> Arguments:
    on = engine.mamba_shared_prefix_checkpoint
    return {"enable_mamba_shared_prefix_checkpoint": True} if on else {}


def _checkpoints(engine: Engine, config: Any) -> None:
    if engine.prefill_checkpoint_alignment and places() is None:
        raise Unsupported("engine.prefill_checkpoint_alignment")


GROUP_SEAMS: tuple[Seam, ...] = (
    Seam("prefix_match_unit", _unit),
    Seam("groups", _layers, _align),
    Seam("prefix_cache_retention_interval", _retention),
    Seam("mamba_shared_prefix_checkpoint", _junctions),
    Seam("prefill_checkpoint_alignment", finish=_checkpoints),
)
