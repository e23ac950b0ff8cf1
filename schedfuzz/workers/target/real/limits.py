"""Nouns: what the real runner cannot play, on which build.

Each entry names the field that a pair then leaves out, with the one value that is possible where it
is not the default.
"""

import os
from collections.abc import Callable
from typing import Literal

from schedfuzz.corpus.scenario import Engine, Scenario
from schedfuzz.workers.target.real.device import TRITON, on_gpu
from schedfuzz.workers.target.seam import Unsupported

Build = Literal["cpu", "gpu"]

# Attention kernels take whole multiples of this many tokens: vLLM's own for a CPU (0.29.0 on), and
# Triton's on a GPU, the only ones that take float32 there.
KERNEL_BLOCK, GPU_KERNEL_BLOCK = 32, 16
# The value that a limit names stands for its whole multiples too.
MULTIPLES = {"engine.block_size"}
_KERNEL_BLOCKS: dict[Build, int] = {"cpu": KERNEL_BLOCK, "gpu": GPU_KERNEL_BLOCK}

_LIMITS: tuple[tuple[str, Callable[[Engine], bool]], ...] = (
    ("engine.model", lambda e: e.model != "autoregressive"),
    ("engine.canvas_length", lambda e: e.canvas_length > 0),
    ("engine.groups", lambda e: any(group.kind == "mamba" for group in e.groups)),
    ("engine.groups", lambda e: _mixes_layers(e)),
    ("engine.pipeline_parallel_size", lambda e: e.pipeline_parallel_size > 1),
    ("engine.encoder_cache_size", lambda e: e.encoder_cache_size > 0),
    ("engine.max_loras", lambda e: e.max_loras > 0),
    ("engine.connector", lambda e: e.connector is not None),
    ("engine.ec_connector", lambda e: e.ec_connector),
    ("engine.spec_method", lambda e: e.spec_method == "dflash"),
)


def _mixes_layers(engine: Engine) -> bool:
    """Return whether vLLM would not put each window's one layer into a group of its own.

    A drafter has a layer of full attention too.
    """
    windows = [group.window for group in engine.groups]
    drafts = engine.num_speculative_tokens > 0 and engine.spec_method != "ngram"
    return len(set(windows)) < len(windows) or (drafts and any(windows))


def block_size(build: Build) -> str:
    """Return the entry of the block size that the attention kernels of a build take."""
    return f"engine.block_size {_KERNEL_BLOCKS[build]}"


def exceeded(scenario: Scenario, build: Build = "cpu") -> str | None:
    """Return the first field that the real runner has no way to play, None for a scenario it has.

    It imports nothing of vLLM: what makes scenarios asks it before a target has to.
    """
    engine = scenario.engine
    if engine.block_size % _KERNEL_BLOCKS[build]:
        return block_size(build)
    name = next((name for name, exceeds in _LIMITS if exceeds(engine)), None)
    # Asked last: diffusion needs v2, so a scenario can give that up only after its model.
    if name is None and engine.model_runner == "v2" and build == "cpu":
        return _beyond_interpreter(scenario)
    return name


def _beyond_interpreter(scenario: Scenario) -> str | None:
    """Return what keeps the second runner generation off a CPU, None when Triton is interpreted.

    Its interpreter refuses a mask of the kernel for grammars.
    """
    if not os.environ.get(TRITON):
        return "engine.model_runner"
    grammars = any(request.structured is not None for request in scenario.requests)
    return "requests.structured" if grammars else None


def parting(scenario: Scenario, build: Build = "cpu") -> str | None:
    """Return what the two runners do not play alike, besides what the real one cannot play.

    Its n-gram drafter looks real tokens up; the simulated one follows the scenario's script.
    """
    if scenario.engine.spec_method == "ngram":
        return 'engine.spec_method "draft_model"'
    return exceeded(scenario, build)


def check(scenario: Scenario) -> None:
    """Raise Unsupported with the first field that the real runner has no way to play."""
    name = exceeded(scenario, "gpu" if on_gpu() else "cpu")
    if name is not None:
        raise Unsupported(name)
