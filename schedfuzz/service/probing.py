"""Nouns: probe, outcome, visit.

A finding's reproducer on a target that is none of its own: does it show there what it shows on its
pair? A violation shows when the same rule breaks; a divergence shows when the run is like that of
the side that is asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.corpus.trace import Trace
from schedfuzz.db import traces
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding
from schedfuzz.fuzzer.bisection import Search, reliability
from schedfuzz.fuzzer.judge import judge
from schedfuzz.fuzzer.reduction import CONFIRM_RUNS
from schedfuzz.workers.home import Home
from schedfuzz.workers.process import TargetProcess
from schedfuzz.workers.ready import ready
from schedfuzz.workers.targets import Target

# What an outcome says of the target: the bug is there, it is not, or it cannot be told.
BAD = ("breaks", "like-after")
GOOD = ("keeps", "like-before")


@dataclass(frozen=True)
class Visit:
    """The outcomes of a reproducer's runs on one target."""

    target: str
    outcomes: tuple[str, ...]

    @property
    def hits(self) -> int:
        """The number of runs that showed it."""
        return sum(outcome in BAD for outcome in self.outcomes)

    @property
    def outcome(self) -> str:
        """What it says of the target: one run that shows it outweighs all that do not."""
        for wanted in (*BAD, "other", "unsupported"):
            if wanted in self.outcomes:
                return wanted
        return self.outcomes[0]

    @property
    def agreeing(self) -> int:
        """The number of runs with that outcome."""
        return self.outcomes.count(self.outcome)


class Probe:
    """A finding's reproducer and how to read its runs."""

    def __init__(self, store: Store, finding: Finding) -> None:
        self.finding = finding
        self.scenario = codec.decode(finding.reproducer.data, f"finding {finding.id}")
        self._sides = None
        if finding.verdict == "changed":
            self._sides = traces.load(store, finding.id, finding.reproducer_id)
            if self._sides is None:
                raise InputError(
                    f"finding {finding.id}: what both sides did is not stored, so no other target "
                    f"can be compared; `schedfuzz minimize {finding.id}` stores it"
                )

    @property
    def runs(self) -> int:
        """How many runs without it say that it is not there, for how reliably it repeats."""
        row = self.finding
        if row.confirm_hits == row.confirm_runs:
            return CONFIRM_RUNS
        return Search(1, reliability(row.confirm_hits, row.confirm_runs), True).runs

    def outcome(self, trace: Trace, target: str) -> str:
        """Return `breaks`, `keeps`, `other` (rule) or `unsupported`; for a divergence `like-before`
        or `like-after`. Raises InfraError for what could not be run.
        """
        if trace.outcome == "unsupported":
            return "unsupported"
        if trace.outcome == "infra":
            raise InfraError(f"finding {self.finding.id} on {target}: {trace.reason}")
        if self._sides is not None:
            before, after = self._sides
            if judge(before, trace).verdict == "clean":
                return "like-before"
            return "like-after" if judge(trace, after).verdict == "clean" else "other"
        rules = [violation.rule for violation in trace.violations]
        if not rules:
            return "keeps"
        return "breaks" if rules[0] == self.finding.rule else "other"


class Visitor:
    """A started target that reproducers are tried on; a context manager."""

    def __init__(self, target: Target, home: Home, say: Callable[[str], None]) -> None:
        self.target = target
        log = home.logs / f"probe-{target.release}.log"
        self._process = TargetProcess(target, ready(target, home, say), log, coverage=False)

    def __enter__(self) -> Self:
        try:
            self._process.spawn()
            self._process.wait_ready()
        except BaseException:
            self._process.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._process.stop()

    def visit(self, probe: Probe, runs: int, to_first_hit: bool = False) -> Visit:
        """Run a reproducer so often, or until it shows. Raises InfraError."""
        outcomes: list[str] = []
        while len(outcomes) < runs:
            self._process.submit(probe.scenario)
            outcomes.append(probe.outcome(self._process.collect(), self.target.name))
            if to_first_hit and outcomes[-1] in BAD:
                break
        return Visit(self.target.name, tuple(outcomes))
