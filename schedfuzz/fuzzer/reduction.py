"""Nouns: reduction, confirmation.

What a new finding still needs: to be repeated a few times, then to be minimized. A reduction takes
one execution at a time, so that a hunt can go on between them and lose at most one when it dies.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace
from schedfuzz.fuzzer.judge import judge, shorter
from schedfuzz.fuzzer.minimize import Minimizer

CONFIRM_RUNS = 3


@dataclass(frozen=True)
class Budget:
    """What minimizing one finding may cost: candidates, and seconds of running them."""

    calls: float
    seconds: float


VIOLATION = Budget(1000, 60)
# A divergence is worth less effort: two releases differ on purpose.
DIVERGENCE = Budget(250, 30)

State = Literal["running", "partial", "done"]
RunPair = Callable[[Scenario], tuple[Trace, Trace]]


class Notebook(Protocol):
    """Where a reduction writes its progress at once."""

    def confirmed(self, finding: int, runs: int, hits: int) -> None:
        """Store that the reproducer repeated `hits` of `runs` times."""

    def reproducer(
        self, finding: int, scenario: Scenario, steps: int, calls: int, state: State
    ) -> None:
        """Store the best reproducer so far and whether it is final."""


class Reduction:
    """Confirms and minimizes one finding; `done` when nothing is left to do."""

    def __init__(
        self, finding: int, verdict: str, fingerprint: str, scenario: Scenario, steps: int,
        notebook: Notebook, calls_before: int = 0, budget: Budget | None = None,
        self_check: bool = False,
    ) -> None:  # fmt: skip
        """Take up a finding's best scenario; the budget is by its verdict unless given."""
        self.self_check = self_check
        self.finding = finding
        self.verdict = verdict
        self.fingerprint = fingerprint
        self.scenario = scenario
        self.notebook = notebook
        self.calls_before = calls_before
        self.runs = self.hits = 0
        self.minimizer = Minimizer(scenario, steps)
        self.seconds = 0.0
        self.budget = budget or (DIVERGENCE if verdict == "changed" else VIOLATION)

    @property
    def done(self) -> bool:
        """Whether it is confirmed and 1-minimal, out of budget, or could not be repeated."""
        if self.runs < CONFIRM_RUNS:
            return False
        return self.hits == 0 or self.minimizer.done or self._spent()

    @property
    def calls(self) -> int:
        """Return the candidates tried so far, those of earlier hunts too."""
        return self.calls_before + self.minimizer.calls

    def advance(self, run: RunPair) -> None:
        """Spend one execution of the pair."""
        if self.runs < CONFIRM_RUNS:
            self.runs += 1
            self.hits += self._steps(self.scenario, run) is not None
            if self.runs == CONFIRM_RUNS:
                self.notebook.confirmed(self.finding, self.runs, self.hits)
                if self.hits == 0:
                    self._save("done")
            return
        candidate = self.minimizer.next_candidate()
        if candidate is None:
            self._save("done")
            return
        best = self.minimizer.best
        steps = self._steps(candidate, run)
        self.minimizer.report(candidate, steps is not None, steps)
        if self._spent():
            self._save("done")
        elif self.minimizer.best is not best:
            self._save("running")

    def pause(self) -> None:
        """Store how far it came; a later hunt goes on from there."""
        self._save("partial")

    def _save(self, state: State) -> None:
        self.notebook.reproducer(
            self.finding, self.minimizer.best, self.minimizer.steps, self.calls, state
        )

    def _spent(self) -> bool:
        return self.minimizer.calls >= self.budget.calls or self.seconds >= self.budget.seconds

    def _steps(self, scenario: Scenario, run: RunPair) -> int | None:
        start = time.monotonic()
        before, after = run(scenario)
        self.seconds += time.monotonic() - start
        if judge(before, after, self.self_check).fingerprint != self.fingerprint:
            return None
        return shorter(before, after)
