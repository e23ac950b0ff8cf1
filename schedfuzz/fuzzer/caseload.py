"""Nouns: caseload, recorder, sighting.

What one pair has found in a hunt and what its findings still need. A hunt keeps one for each pair
that it runs, so findings of different pairs never meet.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import ORDER, Trace, Verdict
from schedfuzz.fuzzer.judge import shorter
from schedfuzz.fuzzer.reduction import Notebook, Reduction, RunPair


class Recorder(Notebook, Protocol):
    """Where a hunt writes what it finds, at once."""

    def sighting(
        self, verdict: Verdict, scenario: Scenario, steps: int, execution: int, seconds: float
    ) -> tuple[int, bool]:
        """Count one verdict; return its finding and whether that is new to this pair."""

    def unfinished(self) -> Iterable[Reduction]:
        """Return the reductions that earlier hunts of this pair left."""


class Sighting(NamedTuple):
    """Whether a verdict is the first of its finding in this hunt, and new to the pair at all."""

    first: bool
    new: bool


class Caseload:
    """One pair's findings in this hunt and its open reductions, the pair's news first.

    With `reduce` false it opens none: somebody else looks after what is found.
    """

    def __init__(
        self, run: RunPair, recorder: Recorder, self_check: bool = False, reduce: bool = True
    ) -> None:  # fmt: skip
        self.run = run
        self.recorder = recorder
        self.self_check = self_check
        self.reduce = reduce
        self.findings: set[int] = set()
        self.verdicts: dict[str, int] = {}
        self.open = list(recorder.unfinished()) if reduce else []

    def sighted(
        self, verdict: Verdict, scenario: Scenario, traces: tuple[Trace, Trace], execution: int,
        seconds: float,
    ) -> Sighting:  # fmt: skip
        """Record a verdict at the hunt's totals; what is new to the pair gets a reduction."""
        steps = shorter(*traces)
        finding, new = self.recorder.sighting(verdict, scenario, steps, execution, seconds)
        first = finding not in self.findings
        if first:
            self.findings.add(finding)
            self.verdicts[verdict.verdict] = self.verdicts.get(verdict.verdict, 0) + 1
        if new and self.reduce:
            self.open.append(
                Reduction(
                    finding, verdict.verdict, verdict.fingerprint, scenario, steps, self.recorder,
                    self_check=self.self_check,
                )
            )  # fmt: skip
        return Sighting(first, new)

    @property
    def next(self) -> Reduction | None:
        """Return the most urgent open reduction, the oldest of several."""
        return min(self.open, key=lambda item: ORDER.index(item.verdict), default=None)

    def advance(self) -> bool:
        """Spend one execution on the most urgent reduction; return whether there was one."""
        chosen = self.next
        if chosen is None:
            return False
        chosen.advance(self.run)
        if chosen.done:
            self.open.remove(chosen)
        return True

    def pause(self) -> None:
        """Store how far the open reductions came."""
        for reduction in self.open:
            reduction.pause()
