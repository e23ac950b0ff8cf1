"""Nouns: bugs bench, round.

A round is one hunt: of a pair, with one seed, for those bugs of the pair that have no result of
that seed yet. A bug that was found is stored the moment its reproducer is proved; one that was not
is stored only when its hunt had its whole time.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from schedfuzz.bench.child import Stopping, in_child
from schedfuzz.bench.ledger import Ledger
from schedfuzz.bench.table import Bug, changed_sites
from schedfuzz.bench.trial import RememberingPair, Trial, Watch, hunt_plan
from schedfuzz.corpus.errors import InfraError
from schedfuzz.workers.home import Home
from schedfuzz.workers.targets import Target

Say = Callable[[str], None]


@dataclass(frozen=True)
class Budget:
    """What each hunt may take: seconds, or executions, or whichever is first."""

    seconds: float | None
    runs: int | None


def ledger_plan(bugs: Sequence[Bug], budget: Budget) -> dict[str, Any]:
    """Return what a ledger of this table and budget must agree in."""
    table = {bug.id: msgspec.to_builtins(bug) for bug in bugs}
    return {"time": budget.seconds, "runs": budget.runs, "table": table}


class BugsBench:
    """Hunts the pairs of some bugs with some seeds and fills a ledger."""

    def __init__(
        self, bugs: Sequence[Bug], seeds: int, budget: Budget, ledger: Ledger, home: Home,
        say: Say, stopping: Stopping,
    ) -> None:  # fmt: skip
        self.bugs = bugs
        self.seeds = range(1, seeds + 1)
        self.budget = budget
        self.ledger = ledger
        self.home = home
        self.say = say
        self.stopping = stopping

    def run(self) -> None:
        """Measure what is not in the ledger yet, pair by pair, until done or asked to stop.

        A pair that the machine cannot run is passed over; raises InfraError for it in the end.
        """
        failed: list[str] = []
        for before, after in dict.fromkeys((bug.before, bug.after) for bug in self.bugs):
            mine = [bug for bug in self.bugs if (bug.before, bug.after) == (before, after)]
            try:
                self._pair(before, after, mine)
            except InfraError as error:
                failed.append(f"{before} {after}: {error}")
                self.say(failed[-1])
        if failed:
            raise InfraError("; ".join(failed))

    def _pair(self, before: str, after: str, mine: Sequence[Bug]) -> None:
        if self.stopping() or not list(self._open(mine)):
            return
        self.say(f"{before} {after}: starting")
        with RememberingPair(Target(before), Target(after), self.home, self.say) as pair:
            for seed, bugs in self._open(mine):
                if self.stopping():
                    return
                self._round(pair, bugs, seed)

    def _open(self, bugs: Sequence[Bug]) -> Iterator[tuple[int, list[Bug]]]:
        """Yield each seed with the bugs that still want a result of it."""
        for seed in self.seeds:
            left = [bug for bug in bugs if name(bug.id, seed) not in self.ledger]
            if left:
                yield seed, left

    def _round(self, pair: RememberingPair, bugs: Sequence[Bug], seed: int) -> None:
        sides = pair.before.environment, pair.after.environment
        watches = [Watch(bug, frozenset(changed_sites(bug, *sides))) for bug in bugs]
        what = f"{bugs[0].before} {bugs[0].after}, seed {seed}"
        self.say(f"{what}: hunting for {', '.join(bug.id for bug in bugs)}")
        missed: dict[str, Any] = {}
        with tempfile.TemporaryDirectory(prefix="schedfuzz-bench-") as scratch:
            plan = hunt_plan(Path(scratch), seed, self.budget.seconds, self.budget.runs)
            told = in_child(
                lambda tell, stopping: Trial(pair, watches, tell).run(plan, stopping),
                self.home.logs / "bench.log", self.stopping,
            )  # fmt: skip
            for event in told:
                missed |= self._heard(event, what, seed)
        for key, result in missed.items():
            self.ledger.put(key, result)

    def _heard(self, event: dict[str, Any], what: str, seed: int) -> dict[str, Any]:
        """Store and show one event of a hunt; return the result of a bug that was not found."""
        if "sighted" in event:
            seen = f"after {event['executions']} executions, {event['seconds']} s"
            self.say(f"{what}: {event['sighted']} sighted {seen}")
        elif "end" in event:
            bug = event.pop("end")
            result = {"bug": bug, "seed": seed} | event
            if not event["found"]:
                return {} if result.pop("stopped") else {name(bug, seed): result}
            self.ledger.put(name(bug, seed), result)
        else:
            totals = event["totals"]
            self.say(f"{what}: {totals['executions']} executions in {totals['seconds']:.0f} s")
        return {}


def name(bug: str, seed: int) -> str:
    """Return a result's name in the ledger."""
    return f"{bug} seed {seed}"
