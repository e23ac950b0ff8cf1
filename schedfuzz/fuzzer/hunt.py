"""Nouns: hunt, totals, recorder.

Runs what the guide proposes on the pair, judges it, records what is new and shows the guide what it
lit. Confirming and minimizing take turns with hunting on the same two processes, so a finding never
stops the hunt and never waits for its end.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

from schedfuzz.corpus.codec import decode, encode
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace, Verdict
from schedfuzz.fuzzer.features import features
from schedfuzz.fuzzer.generate import generate
from schedfuzz.fuzzer.guide import Stop, fuzz
from schedfuzz.fuzzer.judge import judge, shorter
from schedfuzz.fuzzer.mutate import crossover, mutate
from schedfuzz.fuzzer.reduction import Notebook, Reduction
from schedfuzz.fuzzer.supported import Supported
from schedfuzz.workers.pair import Pair

TICK_SECONDS = 0.5
FRESH_SHARE = 0.4  # of the mutator's answers that start from nothing
CLOSING_SECONDS = 60.0  # for reductions that are unfinished when the hunt's time is up


class Recorder(Notebook, Protocol):
    """Where a hunt writes what it finds, at once."""

    def sighting(
        self, verdict: Verdict, scenario: Scenario, steps: int, execution: int, seconds: float
    ) -> tuple[int, bool]:
        """Count one verdict; return its finding and whether that is new to this pair."""

    def unfinished(self) -> Iterable[Reduction]:
        """Return the reductions that earlier hunts of this pair left."""


@dataclass(frozen=True)
class Plan:
    """What a hunt is asked to do; limits that are None do not bound it.

    `corpus[0]` receives new entries. In a self-check both sides are one target, and only a
    difference between its two runs counts. `artifacts` is the guide's.
    """

    corpus: list[Path]
    seed: int
    seconds: float | None = None
    runs: int | None = None
    self_check: bool = False
    artifacts: Path | None = None


@dataclass
class Totals:
    """What a hunt has done so far; times in seconds."""

    executions: int = 0
    reducing: int = 0
    infra: int = 0
    left_out: list[str] = field(default_factory=list)
    seconds: float = 0.0
    sites: tuple[int, int] = (0, 0)
    features: int = 0
    verdicts: dict[str, int] = field(default_factory=dict)
    findings: set[int] = field(default_factory=set)
    last_new: float | None = None
    open_reductions: int = 0
    state: str = "hunting"


class Hunt:
    """One hunt on a started pair; `run` may be called once per process (Atheris)."""

    def __init__(
        self, pair: Pair, recorder: Recorder, plan: Plan, tick: Callable[[Totals], None],
        stopping: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.pair = pair
        self.recorder = recorder
        self.plan = plan
        self.tick = tick
        self.totals = Totals()
        self.stopping = stopping
        self.supported = Supported()
        self._reductions = list(recorder.unfinished())
        self._lit = [0, 0]
        self._features: set[int] = set()
        self._start = self._ticked = 0.0

    def run(self) -> Totals:
        """Hunt to the limits or until `stopping` says so, then close the open reductions."""
        self.run_guided()
        self._close()
        return self.totals

    def run_guided(self) -> Totals:
        """Hunt to the limits and leave the open reductions open."""
        self._start = time.monotonic()
        plan = self.plan
        fuzz(self.execute, self.mutate, self.cross, plan.corpus, plan.seed, plan.artifacts)
        self._show()
        return self.totals

    # -- the guide's callbacks -------------------------------------------------------------------

    def execute(self, data: bytes) -> tuple[bytes, bytes, Iterable[int]] | None:
        """Run one input; return its coverage and features, None for what is no scenario."""
        if self._over():
            raise Stop
        scenario = _parse(data)
        if scenario is None:
            return None
        before, after = self.pair.run(scenario)
        self.totals.executions += 1
        if self._learn(before, after):
            return None
        verdict = judge(before, after, self.plan.self_check)
        if verdict.verdict == "infra":
            self.totals.infra += 1
        elif verdict.verdict != "clean":
            self._found(verdict, scenario, before, after)
        found = features(scenario, before, after)
        self._count(before, after, found)
        self._reduce()
        self._show_now_and_then()
        if not before.outcome == after.outcome == "finished":
            return None  # a known fault cuts the run short: not a parent to grow from
        return before.coverage, after.coverage, found

    def mutate(self, data: bytes, seed: int) -> bytes:
        """Return a mutated scenario, or now and then a fresh one."""
        rng = Random(seed)
        scenario = None if rng.random() < FRESH_SHARE else _parse(data)
        return self._encoded(generate(rng) if scenario is None else mutate(scenario, rng))

    def cross(self, one: bytes, two: bytes, seed: int) -> bytes:
        """Return a child of two scenarios."""
        rng = Random(seed)
        first, second = _parse(one), _parse(two)
        if first is None or second is None:
            return self._encoded(generate(rng))
        return self._encoded(crossover(first, second, rng))

    def _encoded(self, scenario: Scenario) -> bytes:
        return encode(self.supported.fit(scenario))

    def _learn(self, *traces: Trace) -> bool:
        """Leave out from now on what one of the targets does not have; return whether one did."""
        lacking = [trace.reason for trace in traces if trace.outcome == "unsupported"]
        for reason in lacking:
            self.supported.learn(reason)
            self.totals.left_out = sorted(self.supported.left_out)
        return bool(lacking)

    # -- findings --------------------------------------------------------------------------------

    def _found(self, verdict: Verdict, scenario: Scenario, before: Trace, after: Trace) -> None:
        totals = self.totals
        steps = shorter(before, after)
        finding, new = self.recorder.sighting(
            verdict, scenario, steps, totals.executions, self._elapsed()
        )
        if finding not in totals.findings:
            totals.findings.add(finding)
            totals.verdicts[verdict.verdict] = totals.verdicts.get(verdict.verdict, 0) + 1
        if new:
            totals.last_new = self._elapsed()
            self._reductions.append(
                Reduction(
                    finding,
                    verdict.verdict,
                    verdict.fingerprint,
                    scenario,
                    steps,
                    self.recorder,
                    self_check=self.plan.self_check,
                )  # fmt: skip
            )

    def _reduce(self) -> None:
        """Spend one execution on the most urgent reduction, if there is one."""
        if not self._reductions:
            return
        chosen = next((item for item in self._reductions if item.urgent), self._reductions[0])
        chosen.advance(self.pair.run)
        self.totals.reducing += 1
        if chosen.done:
            self._reductions.remove(chosen)

    def _close(self) -> None:
        """Finish the open reductions within a bound; store how far the rest came."""
        self.totals.state = "minimizing"
        end = time.monotonic() + CLOSING_SECONDS
        while self._reductions and not self.stopping() and time.monotonic() < end:
            self._reduce()
            self._show_now_and_then()
        for reduction in self._reductions:
            reduction.pause()
        self.totals.state = "done"

    # -- totals ----------------------------------------------------------------------------------

    def _over(self) -> bool:
        late = self.plan.seconds is not None and self._elapsed() >= self.plan.seconds
        full = self.plan.runs is not None and self.totals.executions >= self.plan.runs
        return self.stopping() or late or full

    def _elapsed(self) -> float:
        return time.monotonic() - self._start

    def _count(self, before: Trace, after: Trace, found: set[int]) -> None:
        self._features |= found
        for side, trace in enumerate((before, after)):
            self._lit[side] |= int.from_bytes(trace.coverage, "little")

    def _show_now_and_then(self) -> None:
        now = time.monotonic()
        if now - self._ticked >= TICK_SECONDS:
            self._ticked = now
            self._show()

    def _show(self) -> None:
        totals = self.totals
        if totals.state == "hunting":
            totals.seconds = self._elapsed()
        totals.sites = (self._lit[0].bit_count(), self._lit[1].bit_count())
        totals.features = len(self._features)
        totals.open_reductions = len(self._reductions)
        self.tick(totals)


def _parse(data: bytes) -> Scenario | None:
    try:
        return decode(data)
    except InputError:
        return None
