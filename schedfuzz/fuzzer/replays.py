"""Nouns: replays, offer.

A hunt on the simulated runner offers what is new in it to the same releases on the real one: each
scenario that shows a finding or opens a schedule shape. Turns go by the count of the hunt's own
executions and never by a clock, so a seed repeats the replays in their order.
"""

import time
from collections import deque

from schedfuzz.corpus.scenario import Scenario
from schedfuzz.fuzzer.caseload import Caseload, Recorder
from schedfuzz.fuzzer.judge import judge
from schedfuzz.fuzzer.reduction import RunPair

# The real pair runs once for a replay and once for a reduction in so many executions of the hunt:
# it is ten times slower or more, and the hunt is what finds.
EVERY = 20
MOST_WAITING = 128


class Replays:
    """The real pair's part of a hunt; `executions` counts its replays, `skipped` lost offers.

    `seconds` is the time that the hunt has given to it, its reductions included.
    """

    def __init__(self, run: RunPair, recorder: Recorder, self_check: bool = False) -> None:
        self.cases = Caseload(run, recorder, self_check)
        self.executions = 0
        self.skipped = 0
        self.infra = 0
        self.seconds = 0.0
        self._waiting: deque[Scenario] = deque()

    @property
    def waiting(self) -> int:
        """Return how many offers are still to be replayed."""
        return len(self._waiting)

    def offer(self, scenario: Scenario, finding: bool) -> None:
        """Queue a scenario; one that shows a finding goes first, and is never left out."""
        if finding:
            self._waiting.appendleft(scenario)
            if len(self._waiting) > MOST_WAITING:
                self._waiting.pop()
                self.skipped += 1
        elif len(self._waiting) < MOST_WAITING:
            self._waiting.append(scenario)
        else:
            self.skipped += 1

    def turn(self, execution: int, seconds: float) -> list[str]:
        """Do what is due after the hunt's execution number `execution`, at `seconds` of it.

        Returns the names of fields that a real target turned out to lack.
        """
        if execution % EVERY == 0 and self._waiting:
            return self._replay(seconds)
        if execution % EVERY == EVERY // 2:
            self._reduce()
        return []

    def finish(self, seconds: float) -> bool:
        """Do one thing of what is left, replays first; return whether there was any."""
        if not self._waiting:
            return self._reduce()
        self._replay(seconds)
        return True

    def _reduce(self) -> bool:
        start = time.monotonic()
        advanced = self.cases.advance()
        self.seconds += time.monotonic() - start
        return advanced

    def _replay(self, seconds: float) -> list[str]:
        scenario = self._waiting.popleft()
        start = time.monotonic()
        traces = self.cases.run(scenario)
        self.seconds += time.monotonic() - start
        self.executions += 1
        verdict = judge(*traces, self.cases.self_check)
        if verdict.verdict == "infra":
            self.infra += all(trace.outcome != "unsupported" for trace in traces)
        elif verdict.verdict != "clean":
            self.cases.sighted(verdict, scenario, traces, self.executions, seconds)
        return [trace.reason for trace in traces if trace.outcome == "unsupported"]
