"""Nouns: connector part, spoilt row.

The worker's half of the scripted KV connector: loads and handoffs go on from step to step, empty
ones too, and what became of them is told with the step's output. A spoilt row reads what failed to
load; it writes spoilt KV and yields POISON tokens.
"""

from typing import Any

from schedfuzz.corpus.tokens import POISON
from schedfuzz.workers.target import checks
from schedfuzz.workers.target.handoffs import Handoffs
from schedfuzz.workers.target.loads import SPOILT, Loads
from schedfuzz.workers.target.part import Part
from schedfuzz.workers.target.rows import Row
from schedfuzz.workers.target.runner import SimulatedRunner
from schedfuzz.workers.target.seam_connector import reports_failures
from schedfuzz.workers.target.state import State
from schedfuzz.workers.target.transfers import Contents, Load, slots


class ConnectorPart(Part):
    """Plays the transfers of one engine; `clock` counts executed steps."""

    def __init__(self, runner: SimulatedRunner) -> None:
        self.runner = runner
        self.clock = 0
        self.known = Contents(runner)
        self.loads = Loads(runner, self.known)
        self.handoffs = Handoffs(runner, self.known)
        self.undecided: set[str] = set()
        self.spoilt: set[str] = set()
        self.used: list[set[int]] = []  # the blocks of each executed step
        self.processed = 0  # the outputs that the scheduler had taken in at the last step
        self.news = 0  # the last step whose output says something new

    def begin(self, output: Any) -> None:
        orders = output.kv_connector_metadata
        self.clock += 1
        self.spoilt = set()
        self.undecided = orders.undecided
        self.processed = orders.processed
        for handoff in orders.handoffs:
            self.handoffs.take(handoff, self.clock)
        self._check_announced(output, orders.loads)
        for load in orders.loads:
            self.loads.start(load, self.clock, self.used[self.processed :])
        self.loads.check_zeroing(set(getattr(output, "new_block_ids_to_zero", None) or ()))
        self.used.append(set())

    def _check_announced(self, output: Any, loads: list[Load]) -> None:
        """Check that a step whose forward needs what it loads says so: else it loads afterwards.

        Releases before 0.29 say nothing and always load before.
        """
        needed = next((load.request for load in loads if not load.is_async), None)
        if needed is not None and not getattr(output, "has_sync_kv_loads", True):
            detail = "its KV is loaded within a step that is said to load none"
            checks.blame(self.runner, "load-announced", detail, int(needed))

    def attend(self, state: State, start: int, end: int) -> None:
        self.known.states[str(state.number)] = state
        self.used[-1] |= self.runner.kv.used(state, start, end)

    def excuses(self, row: Row) -> bool:
        """Return whether a row reads what failed to load; what it writes is spoilt then too."""
        tables = tuple(row.state.tables)
        read = slots(self.runner.kv, tables, 0, row.end, row.start)
        first = min((position for position, slot in read if slot == SPOILT), default=None)
        if first is None:
            return False
        written = max(first, row.start)
        self.runner.kv.receive(row.state.tables, [SPOILT] * row.end, written, row.end, True)
        self.spoilt.add(str(row.state.number))
        return True

    def end(self, output: Any, samples: dict[str, list[int]]) -> dict[str, Any]:
        from vllm.v1.outputs import KVConnectorOutput

        for req_id in self.spoilt:
            samples[req_id][:] = [POISON] * len(samples[req_id])
        received, failed = self.loads.complete(self.clock, reports_failures())
        values: dict[str, Any] = {
            "finished_recving": received,
            "finished_sending": self.handoffs.complete(self.clock),
            "invalid_block_ids": self.loads.invalid,
        }
        if any(values.values()):
            self.news = self.clock
        if failed:
            values["failed_recving"] = failed
        self.loads.invalid = set()
        return {"kv_connector_output": KVConnectorOutput(**values)}

    def awaited(self) -> bool:
        pending = self.loads.pending or self.handoffs.pending or self.undecided
        return bool(pending) or self.processed < self.news

    def may_fail(self, number: int) -> bool:
        connector = self.runner.engine.connector
        if connector is None or connector.failure_policy != "fail":
            return False
        # Who shares a block that failed to load fails too.
        scripts = [request.external for request in self.runner.requests.values()]
        return any(script.fails or script.failed_blocks for script in scripts if script)
