"""Nouns: hunt, plan, totals.

Runs what the guide proposes on the pair, judges it, records what is new and shows the guide what it
lit. Confirming and minimizing take turns with hunting on the same two processes, so a finding never
stops the hunt and never waits for its end. Replays on the real runner take turns with it too.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from schedfuzz.corpus.codec import decode, encode, scenario_id
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace
from schedfuzz.fuzzer.aim import Aim
from schedfuzz.fuzzer.caseload import Caseload, Recorder
from schedfuzz.fuzzer.features import features
from schedfuzz.fuzzer.focus import among, both_limits, focused
from schedfuzz.fuzzer.generate import generate
from schedfuzz.fuzzer.guide import Stop, fuzz
from schedfuzz.fuzzer.judge import judge
from schedfuzz.fuzzer.mutate import crossover, mutate
from schedfuzz.fuzzer.reduction import Reduction, RunPair
from schedfuzz.fuzzer.replays import Replays
from schedfuzz.fuzzer.supported import Limit, Supported

TICK_SECONDS = 0.5
FRESH_SHARE = 0.4  # of the mutator's answers that start from nothing
CLOSING_SECONDS = 60.0  # for reductions that are unfinished when the hunt's time is up


@dataclass(frozen=True)
class Plan:
    """What a hunt is asked to do; limits that are None do not bound it.

    `corpus[0]` receives new entries. In a self-check both sides are one target, and only a
    difference between its two runs counts. `artifacts` is the guide's. `limit` names what the
    runners cannot play: no scenario goes beyond it. Where others confirm and minimize, `reduce` is
    false; where others put scenarios into `corpus[0]` meanwhile, `reload` is true. `quarantined`
    are the ids of scenarios that may not run. `dimensions` are those to keep to, none for all.
    `aim` is the change that it is about.
    """

    corpus: list[Path]
    seed: int
    seconds: float | None = None
    runs: int | None = None
    self_check: bool = False
    artifacts: Path | None = None
    limit: Limit | None = None
    reduce: bool = True
    reload: bool = False
    quarantined: frozenset[str] = frozenset()
    dimensions: tuple[str, ...] = ()
    aim: Aim | None = None


@dataclass
class Totals:
    """What a hunt has done so far; times in seconds, of hunting and of the closing after it."""

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
    next_reduction: Reduction | None = None
    closing_seconds: float = 0.0
    state: str = "hunting"


class Hunt:
    """One hunt with what runs a started pair; its `run` may be called once per process (Atheris).

    `replays` gets what the hunt finds and what opens schedule shapes in it.
    """

    def __init__(
        self, run: RunPair, recorder: Recorder, plan: Plan, tick: Callable[[Totals], None],
        stopping: Callable[[], bool], replays: Replays | None = None,
    ) -> None:  # fmt: skip
        self._pair = run
        self.plan = plan
        self.tick = tick
        self.totals = Totals()
        self.stopping = stopping
        self.replays = replays
        focus = focused(plan.dimensions) if plan.dimensions else None
        self.supported = Supported(both_limits(plan.limit, focus))
        self._fresh = partial(generate, among=among(plan.dimensions))
        self._cases = Caseload(run, recorder, plan.self_check, plan.reduce)
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
        fuzz(
            self.execute, self.mutate, self.cross, plan.corpus, plan.seed, plan.artifacts,
            plan.reload,
        )  # fmt: skip
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
        scenario = self.supported.fit(scenario)
        if self.plan.quarantined and scenario_id(scenario) in self.plan.quarantined:
            return None
        before, after = self._pair(scenario)
        self.totals.executions += 1
        if self._learn(before, after):
            return None
        first = self._judge(scenario, before, after)
        found = features(scenario, before, after)
        if self.plan.aim is not None:
            found |= self.plan.aim.learn(scenario, after, found)
        self._replay(scenario, first, opened=not found <= self._features)
        self._count(before, after, found)
        self._reduce()
        self._show_now_and_then()
        if not before.outcome == after.outcome == "finished":
            return None  # a known fault cuts the run short: not a parent to grow from
        return before.coverage, after.coverage, found

    def mutate(self, data: bytes, seed: int) -> bytes:
        """Return a mutated scenario, or now and then a fresh one."""
        rng = Random(seed)
        aimed = self.plan.aim.parent(rng) if self.plan.aim is not None else None
        scenario = aimed or (None if rng.random() < FRESH_SHARE else _parse(data))
        return self._encoded(self._fresh(rng) if scenario is None else mutate(scenario, rng))

    def cross(self, one: bytes, two: bytes, seed: int) -> bytes:
        """Return a child of two scenarios."""
        rng = Random(seed)
        first, second = _parse(one), _parse(two)
        if first is None or second is None:
            return self._encoded(self._fresh(rng))
        return self._encoded(crossover(first, second, rng))

    def _encoded(self, scenario: Scenario) -> bytes:
        return encode(self.supported.fit(scenario))

    def _learn(self, *traces: Trace) -> bool:
        """Leave out from now on what one of the targets does not have; return whether one did."""
        lacking = [trace.reason for trace in traces if trace.outcome == "unsupported"]
        self._leave_out(lacking)
        return bool(lacking)

    def _leave_out(self, names: Iterable[str]) -> None:
        for name in names:
            self.supported.learn(name)
            self.totals.left_out = sorted(self.supported.left_out)

    # -- findings --------------------------------------------------------------------------------

    def _judge(self, scenario: Scenario, before: Trace, after: Trace) -> bool:
        """Record what the pair says; return whether that is a finding new to this hunt."""
        totals = self.totals
        verdict = judge(before, after, self.plan.self_check)
        if verdict.verdict == "infra":
            totals.infra += 1
        if verdict.verdict in ("infra", "clean"):
            return False
        seconds = self._elapsed()
        sighting = self._cases.sighted(
            verdict, scenario, (before, after), totals.executions, seconds
        )
        if sighting.new:
            totals.last_new = seconds
        return sighting.first

    def _replay(self, scenario: Scenario, first: bool, opened: bool) -> None:
        """Offer what is new to the real pair and give it its turn."""
        if self.replays is None:
            return
        if first or opened:
            self.replays.offer(scenario, first)
        self._leave_out(self.replays.turn(self.totals.executions, self._elapsed()))

    def _reduce(self) -> bool:
        """Spend one execution on the most urgent reduction, if there is one."""
        advanced = self._cases.advance()
        self.totals.reducing += advanced
        return advanced

    def _close(self) -> None:
        """Finish what is open within a bound; store how far the rest came."""
        self.totals.state = "minimizing"
        start = time.monotonic()
        busy = True
        while busy and not self.stopping() and self.totals.closing_seconds < CLOSING_SECONDS:
            busy = self._reduce()
            if self.replays is not None:
                busy = self.replays.finish(self._elapsed()) or busy
            self.totals.closing_seconds = time.monotonic() - start
            self._show_now_and_then()
        self._cases.pause()
        if self.replays is not None:
            self.replays.cases.pause()
        self.totals.state = "done"
        self._show()

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
        totals.findings, totals.verdicts = self._cases.findings, self._cases.verdicts
        totals.open_reductions, totals.next_reduction = len(self._cases.open), self._cases.next
        self.tick(totals)


def _parse(data: bytes) -> Scenario | None:
    try:
        return decode(data)
    except InputError:
        return None
