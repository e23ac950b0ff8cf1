"""Nouns: draft method, dynamic widths, pipeline ranks.

A tiny EAGLE head stands for every head-like drafter: the other methods want a model of their own
to be configured, but a scheduler only looks at the method's name and widths.
"""

from typing import Any

from schedfuzz.corpus.scenario import Engine
from schedfuzz.workers.target.model import model_dir
from schedfuzz.workers.target.seam import Arguments, Seam, Unsupported

HEADS = ("mtp", "dflash")


def _drafts(engine: Engine) -> Arguments:
    width = engine.num_speculative_tokens
    if not width:
        return {}
    method = "eagle" if engine.spec_method in HEADS else engine.spec_method
    config: dict[str, Any] = {"method": method, "num_speculative_tokens": width}
    if method == "ngram":
        config |= {"prompt_lookup_max": 2, "prompt_lookup_min": 1}
    else:
        config["model"] = model_dir()
    if engine.spec_widths:
        config["num_speculative_tokens_per_batch_size"] = [list(r) for r in engine.spec_widths]
    return {"speculative_config": config}


def _head(engine: Engine, config: Any) -> None:
    """Rename the drafter and have the token budget worked out again for it."""
    if not engine.num_speculative_tokens or engine.spec_method not in HEADS:
        return
    if not hasattr(config.speculative_config, "use_eagle"):
        raise Unsupported("engine.spec_method")
    config.speculative_config.method = engine.spec_method
    if engine.spec_method == "dflash":
        config.speculative_config.parallel_drafting = True
    config.scheduler_config.max_num_scheduled_tokens = engine.max_num_scheduled_tokens or None
    config._set_max_num_scheduled_tokens()


def _pipeline(engine: Engine, config: Any) -> None:
    # EngineArgs would ask for as many devices; the simulated runner is the last rank.
    ranks = engine.pipeline_parallel_size
    if ranks > 1:
        config.parallel_config.pipeline_parallel_size = ranks
        config.parallel_config.world_size = ranks


SPEC_SEAMS: tuple[Seam, ...] = (
    Seam("num_speculative_tokens", _drafts, _head),
    Seam("pipeline_parallel_size", finish=_pipeline),
)
