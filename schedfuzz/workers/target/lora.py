"""Nouns: adapter limit: a worker has room for max_loras adapters at once, whatever the queue."""

from typing import Any

from schedfuzz.workers.target import checks
from schedfuzz.workers.target.part import Part
from schedfuzz.workers.target.runner import SimulatedRunner
from schedfuzz.workers.target.state import State


class Adapters(Part):
    """The adapters of a step's requests."""

    def __init__(self, runner: SimulatedRunner) -> None:
        self.runner = runner
        self.active: set[int] = set()

    def join(self, core: Any) -> None:
        self.scheduler = core.scheduler

    def begin(self, output: Any) -> None:
        self.active = set()

    def attend(self, state: State, start: int, end: int) -> None:
        if state.request.lora:
            self.active.add(state.request.lora)
        limit = self.runner.engine.max_loras
        if len(self.active) > limit:
            detail = f"{len(self.active)} adapters in one step, max_loras {limit}"
            checks.fail(self.runner, "lora-limit", detail, state)

    def holds_back(self, request: Any) -> bool:
        """Return whether the running requests have taken every place for an adapter."""
        running = {other.lora_request for other in self.scheduler.running} - {None}
        wanted = request.lora_request
        return (
            bool(wanted)
            and wanted not in running
            and (len(running) >= self.runner.engine.max_loras)
        )
