"""Nouns: Minimizer, candidate, best, round.

Typed reduction as a step machine: it hands out one candidate at a time and is told what came of
it, so whoever runs scenarios decides when, where and for how long. Only candidates that would be
simpler are handed out and none twice; `best` only ever improves, so stopping at any call is safe
and starting again from `best` resumes.
"""

import time
from collections.abc import Callable

from schedfuzz.corpus.codec import encode
from schedfuzz.corpus.order import Rank, order
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.fuzzer.engine_passes import ENGINE_PASSES
from schedfuzz.fuzzer.part_passes import PART_PASSES
from schedfuzz.fuzzer.passes import Search
from schedfuzz.fuzzer.plain_passes import PLAIN_PASSES
from schedfuzz.fuzzer.repair import repair
from schedfuzz.fuzzer.story_passes import STORY_PASSES

# What costs most to run goes first: requests, then steps.
PASSES = (*STORY_PASSES[:3], *PLAIN_PASSES, *PART_PASSES, *ENGINE_PASSES, *STORY_PASSES[3:])


class Minimizer:
    """Reduces one interesting scenario; `best` is the simplest interesting one so far.

    `steps` are the engine steps of `best`, `calls` the candidates reported, `done` whether a full
    round of all passes brought nothing: then `best` is 1-minimal.
    """

    def __init__(self, scenario: Scenario, steps: int) -> None:
        self.best = repair(scenario)
        self.steps = steps
        self.calls = 0
        self.done = False
        self._rank = order(self.best, steps)
        self._seen = {encode(self.best)}
        self._pending: Scenario | None = None
        self._search = self._rounds()
        self._started = False

    def next_candidate(self) -> Scenario | None:
        """Return a valid scenario to run, or None when done; the same one until it is reported."""
        while self._pending is None and not self.done:
            try:
                proposal = self._search.send(self.best) if self._started else next(self._search)
            except StopIteration:
                self.done = True
                break
            self._started = True
            candidate = repair(proposal)
            raw = encode(candidate)
            if raw not in self._seen and self._could_win(candidate):
                self._seen.add(raw)
                self._pending = candidate
        return self._pending

    def report(self, candidate: Scenario, interesting: bool, steps: int | None = None) -> None:
        """Say what came of the pending candidate; `steps` None means as many as `best` took.

        Raises ValueError when `candidate` is not the pending one.
        """
        if self._pending is None or candidate != self._pending:
            raise ValueError("report the candidate that next_candidate returned last")
        self._pending = None
        self.calls += 1
        if not interesting:
            return
        taken = self.steps if steps is None else steps
        rank = order(candidate, taken)
        if rank < self._rank:
            self.best, self.steps, self._rank = candidate, taken, rank

    def _could_win(self, candidate: Scenario) -> bool:
        """Return whether the candidate is simpler than `best` if its steps do not grow."""
        return order(candidate, self.steps) < self._rank

    def _rounds(self) -> Search:
        while True:
            before: Rank = self._rank
            for reduce in PASSES:
                yield from reduce(self.best)
            if self._rank == before:
                return self.best


def minimize(
    scenario: Scenario,
    predicate: Callable[[Scenario], int | None],
    budget_calls: int | None = None,
    deadline: float | None = None,
) -> Minimizer:
    """Reduce `scenario` until done, or `budget_calls` runs, or `deadline` (time.monotonic).

    `predicate` returns the engine steps of an interesting scenario, else None. Raises ValueError
    when `scenario` itself is not interesting.
    """
    steps = predicate(repair(scenario))
    if steps is None:
        raise ValueError("the scenario to minimize does not show the behaviour itself")
    machine = Minimizer(scenario, steps)
    while budget_calls is None or machine.calls < budget_calls:
        if deadline is not None and time.monotonic() >= deadline:
            break
        candidate = machine.next_candidate()
        if candidate is None:
            break
        taken = predicate(candidate)
        machine.report(candidate, taken is not None, taken)
    return machine
