"""Reductions against a toy pair: confirming, minimizing, budgets, and going on after a pause."""

from collections.abc import Iterator

import pytest
import toy
from fabricated import step
from msgspec.structs import replace

from schedfuzz.corpus.order import order
from schedfuzz.corpus.rules import violation
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Scheduled, Trace
from schedfuzz.fuzzer.judge import judge
from schedfuzz.fuzzer.minimize import minimize
from schedfuzz.fuzzer.reduction import CONFIRM_RUNS, DIVERGENCE, VIOLATION, Budget, Reduction

START = next(toy.starts(toy.abort_then_twin, seed=3, count=1))
FINE = Trace("finished", (step(0),) * 9)
OTHER = replace(FINE, steps=(step(0, Scheduled(0, "new", 0, 5, 0, 1, 1)), *FINE.steps[1:]))


class ToyPair:
    """Two targets, one with a toy fault; `answers` says which runs show it (then all do)."""

    def __init__(self, *answers: bool, verdict: str = "fixed") -> None:
        self.answers: Iterator[bool] = iter(answers)
        self.verdict = verdict
        self.runs = 0

    def run(self, scenario: Scenario) -> tuple[Trace, Trace]:
        self.runs += 1
        steps = toy.abort_then_twin(scenario)
        if steps is None or not next(self.answers, True):
            return FINE, FINE
        if self.verdict == "changed":
            return OTHER, FINE
        broken = violation("kv-content", "a toy", 1, path="new")
        bad = Trace("violated", (step(0),) * steps, violations=(broken,))
        return (bad, FINE) if self.verdict == "fixed" else (FINE, bad)


class DictNotebook(dict):
    """A notebook that keeps the last reproducer, and all that was told in `told`."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[object, ...]] = []

    def confirmed(self, finding: int, runs: int, hits: int) -> None:
        self.told.append(("confirmed", runs, hits))

    def reproducer(
        self, finding: int, scenario: Scenario, steps: int, calls: int, state: str
    ) -> None:
        self.told.append((state, calls))
        self[finding] = (scenario, steps, calls, state)


def reduction(notebook: DictNotebook, pair: ToyPair, **options: object) -> Reduction:
    start = options.pop("start", START)
    steps = toy.abort_then_twin(start)
    verdict = judge(*ToyPair(verdict=pair.verdict).run(start))
    assert steps is not None
    return Reduction(5, pair.verdict, verdict.fingerprint, start, steps, notebook, **options)


def advance(item: Reduction, pair: ToyPair, most: int = 5000) -> int:
    """Go on until done; return the executions it took."""
    for count in range(most):
        if item.done:
            return count
        item.advance(pair.run)
    raise AssertionError("it does not end")


@pytest.mark.parametrize("verdict", ["fixed", "regressed"])
def test_a_finding_is_confirmed_and_minimized_to_the_end(verdict: str) -> None:
    notebook, pair = DictNotebook(), ToyPair(verdict=verdict)
    item = reduction(notebook, pair, budget=Budget(10_000, 10_000))
    advance(item, pair)
    assert notebook.told[0] == ("confirmed", CONFIRM_RUNS, CONFIRM_RUNS)
    scenario, steps, calls, state = notebook[5]
    want = minimize(START, toy.abort_then_twin)
    assert (scenario, steps, state) == (want.best, want.steps, "done")
    assert calls == item.minimizer.calls == pair.runs - CONFIRM_RUNS
    assert order(scenario, steps) < order(START, toy.abort_then_twin(START) or 0)


def test_each_advance_is_one_execution_at_most_and_the_best_is_stored_at_once() -> None:
    notebook, pair = DictNotebook(), ToyPair()
    item = reduction(notebook, pair)
    best = item.minimizer.best
    while not item.done:
        before = pair.runs
        item.advance(pair.run)
        assert pair.runs - before <= 1
        if item.minimizer.best is not best:
            best = item.minimizer.best
            assert notebook[5][0] == best


def test_what_never_repeats_is_done_and_not_minimized() -> None:
    notebook, pair = DictNotebook(), ToyPair(False, False, False)
    item = reduction(notebook, pair)
    assert advance(item, pair) == CONFIRM_RUNS == pair.runs
    assert notebook.told == [("confirmed", 3, 0), ("done", 0)]
    assert notebook[5][0] == START


@pytest.mark.parametrize("answers", [(True, False, False), (False, False, True)])
def test_what_repeats_once_in_three_is_minimized_all_the_same(answers: tuple[bool, ...]) -> None:
    notebook, pair = DictNotebook(), ToyPair(*answers)
    item = reduction(notebook, pair)
    advance(item, pair)
    assert notebook.told[0] == ("confirmed", 3, 1)
    assert notebook[5][0] == minimize(START, toy.abort_then_twin).best


def test_another_fingerprint_does_not_confirm() -> None:
    notebook = DictNotebook()
    item = reduction(notebook, ToyPair(verdict="fixed"))
    advance(item, ToyPair(verdict="regressed"))
    assert notebook.told[0] == ("confirmed", 3, 0)


def test_a_paused_reduction_goes_on_from_the_notebook() -> None:
    notebook, pair = DictNotebook(), ToyPair()
    item = reduction(notebook, pair)
    for _ in range(CONFIRM_RUNS + 20):
        item.advance(pair.run)
    item.pause()
    scenario, steps, calls, state = notebook[5]
    assert (calls, state, scenario) == (20, "partial", item.minimizer.best)
    assert order(scenario, steps) < order(START, toy.abort_then_twin(START) or 0)
    later = reduction(notebook, pair, start=scenario, calls_before=calls)
    advance(later, pair)
    assert notebook[5] == (
        minimize(START, toy.abort_then_twin).best, notebook[5][1],
        20 + later.minimizer.calls, "done",
    )  # fmt: skip


def test_a_divergence_gets_less() -> None:
    notebook, pair = DictNotebook(), ToyPair(verdict="changed")
    item = reduction(notebook, pair)
    assert item.budget == DIVERGENCE
    assert reduction(notebook, ToyPair()).budget == VIOLATION
    assert DIVERGENCE.calls < VIOLATION.calls and DIVERGENCE.seconds < VIOLATION.seconds


@pytest.mark.parametrize("verdict", ["changed", "fixed"])
def test_a_spent_budget_ends_with_the_best_so_far(
    verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = Budget(7, 1000)
    for name in ("DIVERGENCE", "VIOLATION"):
        monkeypatch.setattr(f"schedfuzz.fuzzer.reduction.{name}", budget)
    notebook, pair = DictNotebook(), ToyPair(verdict=verdict)
    item = reduction(notebook, pair)
    assert advance(item, pair) == CONFIRM_RUNS + 7
    assert not item.minimizer.done
    assert notebook[5] == (item.minimizer.best, item.minimizer.steps, 7, "done")


def test_seconds_of_running_are_a_budget_too(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**6, 10))  # every look at the clock is ten seconds later
    monkeypatch.setattr("schedfuzz.fuzzer.reduction.time.monotonic", lambda: next(clock))
    notebook, pair = DictNotebook(), ToyPair()
    item = reduction(notebook, pair, budget=Budget(1000, 70))
    assert advance(item, pair) == 7
    assert notebook.told[-1] == ("done", 4)
