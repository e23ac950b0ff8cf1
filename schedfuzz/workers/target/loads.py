"""Nouns: loads, target blocks, spoilt slot.

The receiving side of a KV connector's worker. A load writes what the remote side holds at once and
looks again when it is reported: whoever else uses its blocks meets foreign content, and whoever
writes to them is seen. Blocks that fail to load are spoilt: a step may compute on them, but what
comes of it must not reach a client.
"""

from schedfuzz.corpus.parts import External
from schedfuzz.workers.target import checks
from schedfuzz.workers.target.runner import SimulatedRunner
from schedfuzz.workers.target.transfers import Contents, Load, slots

SPOILT = -1  # what a slot holds that nothing was loaded into


class Loads:
    """The loads of one engine; `clock` counts executed steps.

    `pending` are those not yet reported, by request, with the clock of their end; `invalid` the
    blocks that are to be reported as failed.
    """

    def __init__(self, runner: SimulatedRunner, known: Contents) -> None:
        self.runner = runner
        self.known = known
        self.size = runner.engine.block_size
        connector = runner.engine.connector
        self.restores_state = connector is not None and connector.restores_state
        self.pending: dict[str, tuple[Load, int]] = {}
        self.invalid: set[int] = set()

    def start(self, load: Load, clock: int, in_use: list[set[int]]) -> None:
        """Take on a load. `in_use` are the blocks of each step in flight. Raises BrokenRule."""
        if load.is_async:
            self._check_count(load)
            self._check_free(load, in_use)
            self.pending[load.request] = (load, clock + self._script(load).steps)
        else:
            self.invalid |= self._failing(load)
        has_state = not self._failing(load) and self._continues_state(load)
        self.runner.kv.receive(load.tables, self._held(load), load.start, load.end, has_state)
        how = "" if load.is_async else " at once"
        self.runner.happened.append(f"load {load.request}: {load.start}..{load.end - 1}{how}")

    def check_zeroing(self, zeroed: set[int]) -> None:
        """Check that none of these blocks is under load. Raises BrokenRule."""
        for load, _ in self.pending.values():
            both = zeroed & self._target(load)
            if both:
                detail = f"block {min(both)} is zeroed while it is loaded"
                checks.blame(self.runner, "load-zeroed", detail, int(load.request))

    def complete(self, clock: int, reports_failures: bool) -> tuple[set[str], set[str]]:
        """End the loads that are due; return their requests, and those that failed as a whole.

        A release without `reports_failures` is told of all their blocks instead.
        """
        ended = [load for load, due in self.pending.values() if due <= clock]
        failed = set()
        for load in ended:
            del self.pending[load.request]
            self._check_content(load)
            failing = self._failing(load)
            if failing and self._script(load).fails and reports_failures:
                failed.add(load.request)
            else:
                self.invalid |= failing
            how = "failed" if failing else "complete"
            self.runner.happened.append(f"load {load.request} {how}")
        return {load.request for load in ended}, failed

    # -- checks ----------------------------------------------------------------------------------

    def _check_count(self, load: Load) -> None:
        """Check that the load has the blocks of its tokens, and no more for anything else."""
        wanted = -(-load.end // self.size)
        for index, _ in self.runner.kv.attention:
            count = len(load.tables[index])
            if count != wanted:
                detail = f"{count} blocks for {load.end} loaded tokens, not {wanted}"
                checks.blame(self.runner, "load-blocks", detail, int(load.request))

    def _check_free(self, load: Load, in_use: list[set[int]]) -> None:
        target = self._target(load)
        for blocks in in_use:
            if target & blocks:
                detail = f"block {min(target & blocks)} is used by a step in flight"
                checks.blame(self.runner, "load-into-used-block", detail, int(load.request))

    def _check_content(self, load: Load) -> None:
        held = self._held(load)
        for position, slot in slots(self.runner.kv, load.tables, load.start, load.end, load.end):
            if slot != held[position]:
                detail = f"position {position} changed while it was loaded"
                checks.blame(self.runner, "load-overwritten", detail, int(load.request))

    # -- what a load is --------------------------------------------------------------------------

    def _script(self, load: Load) -> External:
        script = self.runner.requests[load.request].external
        assert script is not None
        return script

    def _target(self, load: Load) -> set[int]:
        """Return the blocks that a load must write to: what its window leaves out needs none."""
        kv, target = self.runner.kv, set[int]()
        for index, group in kv.attention:
            low = max(load.start, group.first(load.end))
            if low < load.end:
                target.update(load.tables[index][low // self.size :])
        for index, _ in kv.recurrent:
            target.update(load.tables[index][load.start // self.size :])
        return target - {0}

    def _failing(self, load: Load) -> set[int]:
        """Return the blocks that a load fails to write; only a request's first load fails."""
        script = self._script(load)
        if not load.is_first:
            return set()
        if script.fails:
            return self._target(load)
        first, last = load.start // self.size, -(-load.end // self.size)
        failing = [index for index in script.failed_blocks if first <= index < last]
        return {table[index] for table in load.tables for index in failing}

    def _held(self, load: Load) -> list[int]:
        """Return what each position of a load holds once it is done."""
        failing = self._failing(load)
        digests = self.known.digests(load.request)[: load.end]
        if not failing:
            return digests
        spoilt = set(range(load.start, load.end))
        if not self._script(load).fails:
            (table,) = load.tables
            spoilt = {p for p in spoilt if table[p // self.size] in failing}
        return [SPOILT if p in spoilt else digest for p, digest in enumerate(digests)]

    def _continues_state(self, load: Load) -> bool:
        """Return whether a recurrent state can be brought to the load's end.

        A connector that cannot restore one brings it on from what the scheduler counts as computed;
        that the load's own table has the old state no more is in order.
        """
        if self.restores_state or not load.start:
            return True
        before = self.known.digests(load.request)[load.start - 1]
        return all(group.holds(before) for _, group in self.runner.kv.recurrent)
