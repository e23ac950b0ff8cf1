"""Replays on the real runner: whose turn it is, what is offered and what is lost."""

from fabricated import CONTRACT, FIRST, SMALL, FakePair, trace
from msgspec.structs import replace

from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace, Verdict
from schedfuzz.fuzzer.reduction import Reduction
from schedfuzz.fuzzer.replays import EVERY, MOST_WAITING, Replays


class Book:
    """A recorder that keeps its sightings."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def sighting(
        self, verdict: Verdict, scenario: Scenario, steps: int, execution: int, seconds: float
    ) -> tuple[int, bool]:
        self.seen.append((verdict.verdict, execution))
        return 1, len(self.seen) == 1

    def unfinished(self) -> list[Reduction]:
        return []

    def confirmed(self, finding: int, runs: int, hits: int) -> None:
        pass

    def reproducer(self, *_: object) -> None:
        pass


class RealPair(FakePair):
    """Remembers the arrivals of what it ran, by which these tests tell scenarios apart."""

    def __init__(self, *traces: Trace) -> None:
        super().__init__(*traces)
        self.ran: list[int] = []

    def run(self, scenario: object) -> tuple[Trace, ...]:
        assert isinstance(scenario, Scenario)
        self.ran.append(scenario.requests[0].arrival)
        return super().run(scenario)


def numbered(number: int) -> Scenario:
    return replace(SMALL, requests=(replace(SMALL.requests[0], arrival=number),))


def replays(*traces: Trace) -> tuple[Replays, RealPair, Book]:
    pair, book = RealPair(*(traces or (trace(FIRST), trace(FIRST)))), Book()
    return Replays(pair.run, book), pair, book


def test_one_replay_in_so_many_executions_in_the_order_of_the_offers() -> None:
    real, pair, _ = replays()
    for number in range(3):
        real.offer(numbered(number), finding=False)
    ran = []
    for execution in range(1, 5 * EVERY):
        real.turn(execution, 0.0)
        ran.append(len(pair.ran))
    assert ran == [min(execution // EVERY, 3) for execution in range(1, 5 * EVERY)]
    assert pair.ran == [0, 1, 2] and (real.executions, real.waiting) == (3, 0)


def test_a_finding_goes_first_and_is_never_left_out() -> None:
    real, pair, _ = replays()
    for number in range(MOST_WAITING + 2):
        real.offer(numbered(number), finding=False)
    assert (real.waiting, real.skipped) == (MOST_WAITING, 2)
    real.offer(numbered(999), finding=True)
    assert (real.waiting, real.skipped) == (MOST_WAITING, 3)
    real.turn(EVERY, 0.0)
    assert pair.ran == [999]
    while real.finish(0.0):
        pass
    assert pair.ran == [999, *range(MOST_WAITING - 1)]


def test_what_the_real_pair_says_is_recorded_and_reduced_in_turns_of_its_own() -> None:
    real, pair, book = replays(trace(FIRST, violations=(CONTRACT,)), trace(FIRST))
    for _ in range(2):
        real.offer(SMALL, finding=True)
    real.turn(EVERY, 1.5)
    real.turn(2 * EVERY, 2.5)
    assert book.seen == [("fixed", 1), ("fixed", 2)]
    assert (real.cases.findings, real.cases.verdicts) == ({1}, {"fixed": 1})
    [reduction] = real.cases.open
    for half in (EVERY // 2, EVERY // 2 + 1, EVERY + EVERY // 2):
        real.turn(half, 3.0)
    assert (reduction.runs, len(pair.ran), real.executions) == (2, 4, 2)
    while real.finish(4.0):
        pass
    assert reduction.done and not real.cases.open


def test_what_a_real_target_lacks_is_told_and_no_fault_of_the_machine() -> None:
    real, _, book = replays(Trace("unsupported", reason="engine.groups"), trace(FIRST))
    real.offer(SMALL, finding=False)
    assert real.turn(EVERY, 0.0) == ["engine.groups"]
    assert (real.infra, book.seen) == (0, [])
    lost, _, _ = replays(Trace("infra", reason="no memory"), trace(FIRST))
    lost.offer(SMALL, finding=False)
    assert (lost.turn(EVERY, 0.0), lost.infra) == ([], 1)
