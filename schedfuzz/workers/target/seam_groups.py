"""Nouns: KV groups, align mode, prefix match unit.

The groups come from the layers' KV specs (`specs`); a config only learns of mamba's cache mode. It
is set after creation, since the tiny model has no mamba layer, and checked as for one that has.
"""

import functools
from pathlib import Path
from typing import Any

from schedfuzz.corpus.relations import has_group
from schedfuzz.corpus.scenario import Engine
from schedfuzz.workers.target.seam import Arguments, Rejected, Seam, Unsupported


def _unit(engine: Engine) -> Arguments:
    return {"prefix_match_unit": engine.prefix_match_unit} if engine.prefix_match_unit else {}


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


GROUP_SEAMS: tuple[Seam, ...] = (
    Seam("prefix_match_unit", _unit),
    Seam("groups", finish=_align),
)
