"""Nouns: connector part, transfer, spoilt row.

The worker's half of the scripted KV connector. A load writes what the remote side holds at once and
again when it is reported, so that whoever uses its blocks meanwhile meets foreign content; blocks
that failed to load hold POISON, on which a step may compute but whose tokens must not reach a
client. Handed-off blocks are read when they are sent, at the last moment.
"""

from typing import Any

from schedfuzz.corpus.tokens import POISON, extend_digests, prompt_tokens, seed_of
from schedfuzz.workers.target import checks
from schedfuzz.workers.target.part import Part
from schedfuzz.workers.target.rows import Row
from schedfuzz.workers.target.runner import SimulatedRunner
from schedfuzz.workers.target.state import State
from schedfuzz.workers.target.transfers import Handoff, Load

SPOILT = -1  # what a slot holds that nothing was loaded into


class ConnectorPart(Part):
    """Plays the transfers of one engine; time is counted in executed steps."""

    def __init__(self, runner: SimulatedRunner) -> None:
        self.runner = runner
        self.size = runner.engine.block_size
        self.clock = 0
        self.loading: dict[str, tuple[Load, int]] = {}
        self.sending: dict[str, tuple[Handoff, int]] = {}
        self.undecided: set[str] = set()
        self.invalid: set[int] = set()
        self.states: dict[str, State] = {}
        self.spoilt: dict[str, None] = {}
        self.used: list[set[int]] = []

    # -- hooks -----------------------------------------------------------------------------------

    def begin(self, output: Any) -> None:
        orders = output.kv_connector_metadata
        self.clock += 1
        self.spoilt = {}
        self.undecided = orders.undecided
        for handoff in orders.handoffs:
            self._take(handoff)
        for load in orders.loads:
            self._start(load, orders.processed)
        self._check_zeroing(output)
        self.used.append(set())

    def attend(self, state: State, start: int, end: int) -> None:
        self.states[str(state.number)] = state
        last = -(-end // self.size)
        self.used[-1].update(block for table in state.tables for block in table[:last])

    def excuses(self, row: Row) -> bool:
        """Return whether a row reads what failed to load; what it writes is spoilt then too."""
        first = self._first_spoilt(row)
        if first is None:
            return False
        for group, table in zip(self.runner.kv.groups, row.state.tables, strict=True):
            group.write(table, max(first, row.start), [SPOILT] * row.end, row.end)
        self.spoilt[str(row.state.number)] = None
        return True

    def end(self, output: Any, samples: dict[str, list[int]]) -> dict[str, Any]:
        for req_id in self.spoilt:
            samples[req_id][:] = [POISON] * len(samples[req_id])
        received, failed = self._receive()
        return {"kv_connector_output": self._result(received, failed, self._sent())}

    def awaited(self) -> bool:
        return bool(self.loading or self.sending or self.undecided)

    def may_fail(self, number: int) -> bool:
        connector = self.runner.engine.connector
        if connector is None or connector.failure_policy != "fail":
            return False
        # Who shares a block that failed to load fails too.
        scripts = [request.external for request in self.runner.requests.values()]
        return any(script.fails or script.failed_blocks for script in scripts if script)

    # -- loads -----------------------------------------------------------------------------------

    def _start(self, load: Load, processed: int) -> None:
        script = self.runner.requests[load.request].external
        assert script is not None
        if load.is_async:
            self._check_target(load, processed)
            self.loading[load.request] = (load, self.clock + script.steps)
        else:
            self.invalid |= self._failing(load)
        self._fill(load)
        how = "" if load.is_async else " at once"
        self._tell(f"load {load.request}: {load.start}..{load.end - 1}{how}")

    def _check_target(self, load: Load, processed: int) -> None:
        number = int(load.request)
        wanted = -(-load.end // self.size)
        for table in load.tables:
            if len(table) != wanted:
                detail = f"{len(table)} blocks for {load.end} loaded tokens, not {wanted}"
                checks.blame(self.runner, "load-blocks", detail, number)
        target = self._blocks(load)
        for blocks in self.used[processed:]:
            if target & blocks:
                detail = f"block {min(target & blocks)} is used by a step in flight"
                checks.blame(self.runner, "load-into-used-block", detail, number)

    def _blocks(self, load: Load) -> set[int]:
        """Return the blocks that a load writes to."""
        first = load.start // self.size
        return {block for table in load.tables for block in table[first:] if block}

    def _failing(self, load: Load) -> set[int]:
        """Return the blocks that a load fails to write; only a request's first load fails."""
        script = self.runner.requests[load.request].external
        if script is None or not load.is_first:
            return set()
        if script.fails:
            return self._blocks(load)
        first, last = load.start // self.size, -(-load.end // self.size)
        return {
            table[index]
            for table in load.tables
            for index in script.failed_blocks
            if first <= index < last
        }

    def _fill(self, load: Load) -> None:
        failing = self._failing(load)
        digests = self._digests(load.request)
        for group, table in zip(self.runner.kv.groups, load.tables, strict=True):
            held = [
                SPOILT if table[position // self.size] in failing else digest
                for position, digest in enumerate(digests[: load.end])
            ]
            group.write(table, load.start, held, load.end)

    def _check_zeroing(self, output: Any) -> None:
        zeroed = set(getattr(output, "new_block_ids_to_zero", None) or ())
        if not zeroed:
            return
        for load, _ in self.loading.values():
            both = zeroed & self._blocks(load)
            if both:
                detail = f"block {min(both)} is zeroed while it is loaded"
                checks.blame(self.runner, "load-zeroed", detail, int(load.request))

    def _receive(self) -> tuple[set[str], set[str]]:
        """Complete the loads that are due; return all of these requests and those that failed."""
        due = [load for load, due in self.loading.values() if due <= self.clock]
        failed = set()
        for load in due:
            del self.loading[load.request]
            self._check_loaded(load)
            failing = self._failing(load)
            script = self.runner.requests[load.request].external
            if script is not None and script.fails and failing and self._reports_failures():
                failed.add(load.request)
            else:
                self.invalid |= failing
            self._tell(f"load {load.request} {'failed' if failing else 'complete'}")
        return {load.request for load in due}, failed

    def _check_loaded(self, load: Load) -> None:
        failing = self._failing(load)
        digests = self._digests(load.request)
        for group, table in zip(self.runner.kv.groups, load.tables, strict=True):
            for position in range(load.start, load.end):
                want = SPOILT if table[position // self.size] in failing else digests[position]
                if group.slot(table, position) != want:
                    detail = f"position {position} changed while it was loaded"
                    checks.blame(self.runner, "load-overwritten", detail, int(load.request))

    def _digests(self, req_id: str) -> list[int]:
        """Return the digest of each position that the request is known to have."""
        state = self.states.get(req_id)
        if state is not None:
            return state.digests
        request = self.runner.requests[req_id]
        digests: list[int] = []
        extend_digests(digests, prompt_tokens(request), seed_of(request.lora))
        return digests

    def _first_spoilt(self, row: Row) -> int | None:
        return min(
            (
                position
                for group, table in zip(self.runner.kv.groups, row.state.tables, strict=True)
                for position in range(row.end)
                if group.slot(table, position) == SPOILT
            ),
            default=None,
        )

    # -- handoffs --------------------------------------------------------------------------------

    def _take(self, handoff: Handoff) -> None:
        for table in handoff.tables:
            self._check_length(handoff, len(table))
        if handoff.kept:
            script = self.runner.requests[handoff.request].external
            assert script is not None
            self._check_content(handoff, "when they were handed off")
            self.sending[handoff.request] = (handoff, self.clock + script.send_steps)
            self._tell(f"send {handoff.request}")

    def _check_length(self, handoff: Handoff, blocks: int) -> None:
        most = -(-handoff.computed // self.size)
        # The last token was sampled, not computed; a step in flight may have computed it since.
        sure = handoff.tokens - 1 if handoff.kept else 0
        least = -(-sure // self.size)
        if not least <= blocks <= most:
            detail = f"{blocks} blocks for {handoff.computed} computed tokens"
            if blocks < least:
                detail += f", {least} are needed for its {handoff.tokens} tokens"
            checks.blame(self.runner, "handoff-blocks", detail, int(handoff.request))

    def _check_content(self, handoff: Handoff, when: str) -> None:
        digests = self._digests(handoff.request)
        sure = min(handoff.computed, handoff.tokens - 1)
        for group, table in zip(self.runner.kv.groups, handoff.tables, strict=True):
            for position in range(sure):
                if group.slot(table, position) != digests[position]:
                    detail = f"position {position} of its blocks held other content {when}"
                    checks.blame(self.runner, "handoff-content", detail, int(handoff.request))

    def _sent(self) -> set[str]:
        due = [handoff for handoff, due in self.sending.values() if due <= self.clock]
        for handoff in due:
            self._check_content(handoff, "when they were sent")
            del self.sending[handoff.request]
            self._tell(f"send {handoff.request} complete")
        return {handoff.request for handoff in due}

    # -- what the scheduler and the trace are told --------------------------------------------------------------

    def _tell(self, what: str) -> None:
        self.runner.happened.append(what)

    def _reports_failures(self) -> bool:
        from vllm.v1.outputs import KVConnectorOutput

        return "failed_recving" in KVConnectorOutput.__dataclass_fields__

    def _result(self, received: set[str], failed: set[str], sent: set[str]) -> Any:
        from vllm.v1.outputs import KVConnectorOutput

        values: dict[str, Any] = {"finished_recving": received, "finished_sending": sent}
        values["invalid_block_ids"], self.invalid = self.invalid, set()
        if failed:
            values["failed_recving"] = failed
        return KVConnectorOutput(**values)
