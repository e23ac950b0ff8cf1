"""Nouns: driver, player.

Plays scenarios on the vLLM that the current Python imports, in a process of its own, so that a
crash, a hang or a dead process is an answer. Needs vLLM, msgspec and nothing else beside schedfuzz.
"""

import atexit
import json
import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Literal

from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.corpus.rules import RULES
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace
from schedfuzz.fuzzer.told import told as told
from schedfuzz.workers.environment import FIXED_VARIABLES, Environment, build_kind
from schedfuzz.workers.process import TargetProcess
from schedfuzz.workers.targets import Target

Runner = Literal["simulated", "real"]


class CurrentEnvironment(Environment):
    """The environment that this Python runs in, with whatever vLLM it imports."""

    @property
    def python(self) -> Path:
        """Return this interpreter."""
        return Path(sys.executable)

    def variables(self) -> dict[str, str]:
        """Return the caller's variables with those that make runs alike."""
        path = os.pathsep.join(filter(None, sys.path))
        kept = {**os.environ, **FIXED_VARIABLES, "PYTHONPATH": path}
        kept["VLLM_CACHE_ROOT"] = str(self.cache_dir)
        if self.build == "cpu":
            kept |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
        return kept


def play(scenario: str | dict[str, Any] | Scenario, runner: Runner = "simulated") -> Trace:
    """Return what the current vLLM does with a scenario (JSON, as a text or as objects).

    Raises InputError for what is no scenario, InfraError when the process cannot start.
    """
    if not isinstance(scenario, Scenario):
        scenario = codec.decode(scenario if isinstance(scenario, str) else json.dumps(scenario))
    process = _started(runner)
    process.submit(scenario)
    return process.collect()


def broken(trace: Trace) -> list[str]:
    """Return the broken rules, a line each, with what each of them says; none for a good run."""
    if trace.outcome in ("infra", "unsupported"):
        return [f"{trace.outcome}: {trace.reason}"]
    lines = []
    for item in trace.violations:
        sentence = f" ({RULES[item.rule][1]})" if item.rule in RULES else ""
        who = "" if item.request is None else f", request {item.request}"
        lines.append(f"step {item.step}{who}: {item.kind} {item.rule}: {item.detail}{sentence}")
    return lines


def _started(runner: Runner) -> TargetProcess:
    found = _start(runner)
    if isinstance(found, Exception):
        raise found
    return found


@cache
def _start(runner: Runner) -> TargetProcess | Exception:
    """Return a started process, or why there is none: the next case would not start one either."""
    folder = Path(tempfile.mkdtemp(prefix="schedfuzz-"))
    environment = CurrentEnvironment("current", build_kind(), folder)
    target = Target("current", runner=runner)
    process = TargetProcess(target, environment, folder / "target.log", coverage=False)
    atexit.register(process.stop)
    try:
        process.spawn()
        process.wait_ready()
    except (InfraError, InputError) as error:
        return error
    return process
