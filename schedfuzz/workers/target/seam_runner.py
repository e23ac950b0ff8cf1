"""Nouns: runner generation.

The scheduler's output depends on which model runner it is for. A release chooses that by platform
and environment; here the scenario chooses, for each config on its own.
"""

import functools
from typing import Any

from schedfuzz.corpus.scenario import Engine
from schedfuzz.workers.target.seam import Arguments, Seam, Unsupported

ATTRIBUTE = "schedfuzz_model_runner"


class _Chosen:
    """The generation of the config that is being made."""

    generation = "v1"


@functools.cache
def _take_over() -> None:
    """Let each VllmConfig answer for itself. Raises Unsupported without the property."""
    import vllm.config.vllm as module

    if not isinstance(vars(module.VllmConfig).get("use_v2_model_runner"), property):
        raise Unsupported("model_runner")

    def use_v2_model_runner(config: Any) -> bool:
        chosen = getattr(config, "cache_config", None)
        return getattr(chosen, ATTRIBUTE, _Chosen.generation) == "v2"

    module.VllmConfig.use_v2_model_runner = property(use_v2_model_runner)
    if hasattr(module, "HAS_TRITON"):
        module.HAS_TRITON = True


def _choose(engine: Engine) -> Arguments:
    _take_over()
    _Chosen.generation = engine.model_runner
    return {}


def _keep(engine: Engine, config: Any) -> None:
    # A drafter's config is a copy of the fields of the target's, with the same cache config.
    object.__setattr__(config.cache_config, ATTRIBUTE, engine.model_runner)


RUNNER_SEAMS: tuple[Seam, ...] = (Seam("model_runner", _choose, _keep),)
