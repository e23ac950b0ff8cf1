"""Nouns: trial, watch, sighting.

One hunt of a pair from an empty corpus, with one seed, that watches for several bugs at once: the
hunt of a pair and a seed is the same whichever bug it is asked for, so nobody hunts it twice.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from schedfuzz.bench.child import Stopping, Tell
from schedfuzz.bench.table import Bug
from schedfuzz.corpus.codec import encode
from schedfuzz.corpus.order import order
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace, Verdict
from schedfuzz.fuzzer.hunt import Hunt, Plan, Totals
from schedfuzz.fuzzer.judge import judge, shorter
from schedfuzz.fuzzer.minimize import minimize
from schedfuzz.fuzzer.reduction import Reduction, State
from schedfuzz.workers.pair import Pair

MINIMIZE_CALLS = 400
MINIMIZE_SECONDS = 30.0


class RememberingPair(Pair):
    """A pair that keeps its latest traces."""

    last: tuple[Trace, Trace]

    def run(self, scenario: Scenario) -> tuple[Trace, Trace]:
        """Return the traces of before and after."""
        self.last = super().run(scenario)
        return self.last


@dataclass(frozen=True)
class Watch:
    """A bug to watch for; `sites` are the changed blocks of its component."""

    bug: Bug
    sites: frozenset[str]

    def touched(self, where: Sequence[str], coverage: bytes) -> list[str]:
        """Return which of the sites a run of `before` executed."""
        ran = {name for name, lit in zip(where, coverage, strict=False) if lit}
        return sorted(self.sites & ran)


class Sighting(msgspec.Struct):
    """The first run of a hunt that showed a bug; `seconds` since the hunt began."""

    bug: str
    executions: int
    seconds: float
    verdict: str
    kind: str
    rule: str
    fingerprint: str
    title: str
    finding: int


class Memory:
    """A hunt's recorder that keeps findings, and the best reproducer of each, in memory.

    `sighted` is told each verdict, its scenario, the finding's number and the hunt's totals.
    """

    def __init__(self, sighted: Callable[[Verdict, Scenario, int, int, float], None]) -> None:
        self.sighted = sighted
        self.numbers: dict[str, int] = {}
        self.best: dict[int, tuple[Scenario, int]] = {}

    def sighting(
        self, verdict: Verdict, scenario: Scenario, steps: int, execution: int, seconds: float
    ) -> tuple[int, bool]:
        """Return the verdict's finding and whether it is new."""
        new = verdict.fingerprint not in self.numbers
        number = self.numbers.setdefault(verdict.fingerprint, len(self.numbers) + 1)
        if new:
            self.best[number] = scenario, steps
        self.sighted(verdict, scenario, number, execution, seconds)
        return number, new

    def unfinished(self) -> Iterable[Reduction]:
        """Return nothing: no hunt came before."""
        return ()

    def confirmed(self, finding: int, runs: int, hits: int) -> None:
        """Nothing to keep."""

    def reproducer(
        self, finding: int, scenario: Scenario, steps: int, calls: int, state: State
    ) -> None:
        """Keep the better reproducer."""
        if order(scenario, steps) < order(*self.best[finding]):
            self.best[finding] = scenario, steps


class Trial:
    """One hunt, run in a child; tells a sighting per bug, then what its reproducer proves."""

    def __init__(self, pair: RememberingPair, watches: Sequence[Watch], tell: Tell) -> None:
        self.pair = pair
        self.watches = watches
        self.tell = tell
        self.memory = Memory(self._sighted)
        self.seen: dict[str, Sighting] = {}
        self.lookalikes: dict[str, set[str]] = {watch.bug.id: set() for watch in watches}

    def run(self, plan: Plan, stopping: Stopping) -> None:
        """Hunt until every bug was sighted or the plan's limits, then check what was found."""

        def over() -> bool:
            return stopping() or len(self.seen) == len(self.watches)

        hunt = Hunt(self.pair.run, self.memory, plan, lambda totals: None, over)
        totals = hunt.run_guided()
        for watch in self.watches:
            self.tell({"end": watch.bug.id} | self._outcome(watch, totals, stopping))
        figures = {"executions": totals.executions, "seconds": totals.seconds}
        self.tell({"totals": figures | {"infra": totals.infra}})

    def _sighted(
        self, verdict: Verdict, scenario: Scenario, finding: int, execution: int, seconds: float
    ) -> None:
        for watch in self.watches:
            bug = watch.bug.id
            if bug in self.seen or not watch.bug.shown_by(verdict):
                continue
            if not (watch.bug.can_show(scenario) and self._touched(watch)):
                self.lookalikes[bug].add(verdict.fingerprint)
                continue
            self.seen[bug] = Sighting(
                bug, execution, round(seconds, 2), verdict.verdict, verdict.kind or "",
                verdict.rule, verdict.fingerprint, verdict.title, finding,
            )  # fmt: skip
            self.tell({"sighted": bug, "executions": execution, "seconds": round(seconds, 1)})

    def _outcome(self, watch: Watch, totals: Totals, stopping: Stopping) -> dict[str, Any]:
        seen = self.seen.get(watch.bug.id)
        facts = {"found": seen is not None, "lookalikes": len(self.lookalikes[watch.bug.id])}
        if seen is None:
            spent = {"executions": totals.executions, "seconds": round(totals.seconds, 2)}
            return facts | spent | {"stopped": stopping()}
        sighted = msgspec.structs.asdict(seen)
        del sighted["bug"], sighted["finding"]
        return facts | sighted | self._proof(watch, seen, stopping)

    def _proof(self, watch: Watch, seen: Sighting, stopping: Stopping) -> dict[str, Any]:
        """Minimize the sighting's scenario, run it once more and say whether it is the bug."""
        scenario, _ = self.memory.best[seen.finding]
        deadline = time.monotonic() + (0 if stopping() else MINIMIZE_SECONDS)

        def shows(candidate: Scenario) -> int | None:
            traces = self.pair.run(candidate)
            same = judge(*traces).fingerprint == seen.fingerprint
            return shorter(*traces) if same else None

        try:
            scenario = minimize(scenario, shows, MINIMIZE_CALLS, deadline).best
        except ValueError:
            return {"repeats": False, "touched": [], "precise": False,
                    "reproducer": msgspec.json.decode(encode(scenario))}  # fmt: skip
        repeats = shows(scenario) is not None
        touched = self._touched(watch)
        precise = repeats and bool(touched) and watch.bug.can_show(scenario)
        return {"repeats": repeats, "touched": touched, "precise": precise,
                "reproducer": msgspec.json.decode(encode(scenario))}  # fmt: skip

    def _touched(self, watch: Watch) -> list[str]:
        """Return which of the bug's sites the latest run of `before` executed."""
        return watch.touched(self.pair.before.where, self.pair.last[0].coverage)


def hunt_plan(scratch: Path, seed: int, seconds: float | None, runs: int | None = None) -> Plan:
    """Return the plan of a hunt that starts from an empty corpus in `scratch`."""
    corpus = scratch / f"corpus-{seed}"
    corpus.mkdir()
    return Plan([corpus], seed, seconds, runs)
