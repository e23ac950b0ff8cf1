"""Nouns: mutant trial, kill, limits.

A mutant is the release with one mutation, run against the release itself: without coverage feedback
(that would cost a process of Atheris's for each), but only on scenarios whose run on the original
executes the block that was mutated, and on mutations of those.
"""

import time
from dataclasses import dataclass
from random import Random
from typing import Any

from msgspec.structs import replace

from schedfuzz.bench.child import Stopping
from schedfuzz.bench.mutation import Mutation
from schedfuzz.bench.reference import Reference
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace, Verdict
from schedfuzz.fuzzer.judge import judge, key, unbroken
from schedfuzz.fuzzer.mutate import mutate
from schedfuzz.workers.process import TargetProcess

# A divergence already kills; a few runs more may show that the mutant breaks a rule, too.
RUNS_AFTER_DIVERGENCE = 50
MAX_INFRA = 3


def difference(original: Trace, mutant: Trace) -> Verdict:
    """Return what a mutant does otherwise; where the original breaks a rule, the whole run counts.

    A rule that only the original breaks, or one that both break after other schedules, is a
    difference, but none that accuses the mutant.
    """
    verdict = judge(original, mutant, self_check=bool(original.violations))
    if not original.violations or verdict.verdict in ("clean", "infra"):
        return verdict
    if not mutant.violations:
        return replace(verdict, verdict="changed")
    if key(original.violations[0]) != key(mutant.violations[0]):
        return verdict
    return judge(*unbroken(original, mutant))


@dataclass(frozen=True)
class Limits:
    """What one mutant may take: seconds once it runs, and executions (None: any number)."""

    seconds: float
    runs: int | None


class MutantTrial:
    """One mutant against the reference; `result` is what came of it so far."""

    def __init__(
        self, mutation: Mutation, reference: Reference, limits: Limits, stopping: Stopping
    ) -> None:
        self.mutation = mutation
        self.reference = reference
        self.stopping = stopping
        self.limits = limits
        self.entries = [e for e in reference.entries if reference.reaches(e, mutation.site)]
        self.executions = self.infra = 0
        self.kill: Verdict | None = None
        self.first = (0, 0.0)
        self._started = self._last = 0.0

    def run(self, process: TargetProcess) -> dict[str, Any]:
        """Run the mutant, which is ready, to its kill or its limits and return the result."""
        self._started = time.monotonic()
        for entry in list(self.entries):
            if self._over():
                break
            process.submit(entry.scenario)
            self._judge(entry.trace, process.collect())
        rng = Random(self.mutation.name)
        while not self._over() and self.kill is None:
            self._explore(process, mutate(rng.choice(self.entries).scenario, rng))
        return self._result()

    def _explore(self, process: TargetProcess, scenario: Scenario) -> None:
        """Run a new scenario on both sides; keep it as a parent if it reaches the mutation."""
        original = self.reference.original
        original.submit(scenario)
        process.submit(scenario)
        trace, mutant = original.collect(), process.collect()
        entry = self.reference.entry(scenario, trace)
        if entry is None:
            self.executions += 1
        else:
            self._judge(entry.trace, mutant)
            if self.reference.reaches(entry, self.mutation.site):
                self.entries.append(entry)

    def _judge(self, original: Trace, mutant: Trace) -> None:
        self.executions += 1
        verdict = difference(original, mutant)
        if verdict.verdict == "infra":
            self.infra += 1
        elif verdict.verdict != "clean" and (self.kill is None or verdict.verdict != "changed"):
            if self.kill is None:
                self.first = self.executions, time.monotonic() - self._started
            self.kill = verdict

    def _over(self) -> bool:
        if self.kill is not None:
            more = self.executions - self.first[0]
            if self.kill.verdict != "changed" or more >= RUNS_AFTER_DIVERGENCE:
                return True
        late = time.monotonic() - self._started >= self.limits.seconds
        full = self.limits.runs is not None and self.executions >= self.limits.runs
        return late or full or self.infra >= MAX_INFRA or self.stopping()

    def _result(self) -> dict[str, Any]:
        spent = {"executions": self.executions, "seconds": time.monotonic() - self._started}
        if self.kill is not None:
            by = "divergence" if self.kill.verdict == "changed" else "violation"
            executions, seconds = self.first
            return {
                "status": "killed", "by": by, "title": self.kill.title, "kind": self.kill.kind,
                "executions": executions, "seconds": round(seconds, 2),
            }  # fmt: skip
        status = "not run" if self.infra >= MAX_INFRA else "survived"
        return {"status": status, **spent, "seconds": round(spent["seconds"], 2)}
