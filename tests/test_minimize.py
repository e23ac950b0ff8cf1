"""The minimizer against toy faults: never worse, same answer from anywhere, few calls."""

import statistics
from collections import Counter
from collections.abc import Callable

import pytest
import toy
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import scenarios

from schedfuzz.corpus.codec import encode
from schedfuzz.corpus.order import order, roomy
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.validate import validate
from schedfuzz.fuzzer.minimize import PASSES, Minimizer, minimize
from schedfuzz.fuzzer.repair import repair

STARTS = 25
each_fault = pytest.mark.parametrize("fault", toy.WITNESSES, ids=lambda fault: fault.__name__)


def run(machine: Minimizer, predicate: toy.Predicate, calls: int = 10_000) -> Minimizer:
    """Drive the step machine for at most `calls` candidates."""
    for _ in range(calls):
        candidate = machine.next_candidate()
        if candidate is None:
            break
        steps = predicate(candidate)
        machine.report(candidate, steps is not None, steps)
    return machine


@each_fault
def test_many_starts_give_one_small_answer_with_few_calls(fault: toy.Predicate) -> None:
    machines = [minimize(start, fault) for start in toy.starts(fault, 11, STARTS)]
    assert all(machine.done for machine in machines)
    # The order is total, but a local search may still end in another valley now and then.
    [(answer, times)] = Counter(encode(machine.best) for machine in machines).most_common(1)
    assert times >= 0.9 * STARTS
    assert all(len(machine.best.requests) <= 3 for machine in machines)
    most = next(machine for machine in machines if encode(machine.best) == answer)
    assert len(most.best.requests) <= 2
    assert most.steps <= 5
    assert statistics.median(machine.calls for machine in machines) <= 130
    assert max(machine.calls for machine in machines) <= 250


def test_the_answer_for_a_known_fault_is_the_smallest_story() -> None:
    """Warm a block, decode, and come with one token more, one window below the limit."""
    machine = minimize(toy.WITNESSES[toy.padded_past_limit], toy.padded_past_limit)
    assert machine.best == Scenario(
        Engine(18, 5, num_speculative_tokens=1),
        (Request(0, Prompt(16), 2), Request(1, Prompt(17), 1, arrival=1)),
    )
    assert machine.best.engine.num_blocks == roomy(machine.best)


@each_fault
def test_the_answer_is_one_minimal_for_all_passes(fault: toy.Predicate) -> None:
    """No candidate of any pass, offered from the answer, is both simpler and interesting."""
    for start in toy.starts(fault, 5, 3):
        machine = minimize(start, fault)
        rank = order(machine.best, machine.steps)
        for reduce in PASSES:
            search = reduce(machine.best)
            candidate = next(search, None)
            while candidate is not None:
                fixed = repair(candidate)
                steps = fault(fixed)
                assert steps is None or order(fixed, steps) >= rank
                try:
                    candidate = search.send(machine.best)
                except StopIteration:
                    candidate = None


@each_fault
def test_interrupted_anywhere_keeps_the_best_and_resumes_to_the_same(fault: toy.Predicate) -> None:
    start = next(toy.starts(fault, 7, 1))
    whole = minimize(start, fault)
    for calls in range(0, whole.calls + 1, 5):
        part = run(Minimizer(start, toy.steps(start)), fault, calls)
        assert part.calls == calls
        assert fault(part.best) == part.steps
        again = minimize(part.best, fault)
        assert again.done
        assert encode(again.best) == encode(whole.best)


@each_fault
def test_every_candidate_is_new_valid_and_not_worse_and_best_only_improves(
    fault: toy.Predicate,
) -> None:
    for start in toy.starts(fault, 9, 5):
        machine = Minimizer(start, toy.steps(start))
        seen = {encode(machine.best)}
        rank = order(machine.best, machine.steps)
        while (candidate := machine.next_candidate()) is not None:
            assert validate(candidate) == candidate
            assert encode(candidate) not in seen
            seen.add(encode(candidate))
            assert order(candidate, machine.steps) < rank
            steps = fault(candidate)
            machine.report(candidate, steps is not None, steps)
            assert order(machine.best, machine.steps) <= rank
            rank = order(machine.best, machine.steps)
            assert fault(machine.best) == machine.steps


def _limits(least: int) -> Callable[[Scenario], int | None]:
    """A fault of total size: at least `least` tokens asked of the engine."""

    def fault(scenario: Scenario) -> int | None:
        asked = sum(r.prompt.length + r.max_tokens for r in scenario.requests)
        return toy.steps(scenario) if asked >= least else None

    return fault


@settings(max_examples=40)
@given(scenarios(), st.integers(2, 60))
def test_any_valid_scenario_minimizes_to_one_that_still_shows_it(
    scenario: Scenario, least: int
) -> None:
    fault = _limits(least)
    if fault(scenario) is None:
        with pytest.raises(ValueError, match="does not show"):
            minimize(scenario, fault)
        return
    machine = minimize(scenario, fault)
    assert machine.done
    assert fault(machine.best) == machine.steps
    assert order(machine.best, machine.steps) <= order(scenario, toy.steps(scenario))


@settings(max_examples=30)
@given(scenarios())
def test_when_everything_is_interesting_the_plainest_scenario_remains(scenario: Scenario) -> None:
    machine = minimize(scenario, toy.steps)
    assert machine.best == Scenario(Engine(4, 2), (Request(0, Prompt(1), 1),))


@settings(max_examples=30)
@given(scenarios())
def test_when_nothing_else_is_interesting_the_start_remains(scenario: Scenario) -> None:
    machine = minimize(scenario, lambda other: 9 if other == scenario else None)
    assert machine.done
    assert machine.best == scenario


@settings(max_examples=60)
@given(scenarios(), scenarios(), st.integers(0, 50))
def test_order_is_total(one: Scenario, other: Scenario, steps: int) -> None:
    ranks = order(one, steps), order(other, steps)
    assert (ranks[0] == ranks[1]) == (one == other)
    assert order(one, steps) < order(one, steps + 1)


def test_order_puts_requests_before_events_before_steps_before_the_engine() -> None:
    few = toy.WITNESSES[toy.reset_in_flight]
    many = toy.WITNESSES[toy.padded_past_limit]
    assert order(few, 900) < order(many, 1)
    eventless = Scenario(few.engine, few.requests)
    assert order(eventless, 900) < order(few, 1)
    plain = Scenario(Engine(90, 7), few.requests)
    assert order(plain, 5) < order(eventless, 5)
    assert order(eventless, 4) < order(plain, 5)


def test_budget_and_deadline_stop_the_loop() -> None:
    start = toy.WITNESSES[toy.padded_past_limit]
    assert minimize(start, toy.padded_past_limit, budget_calls=7).calls == 7
    late = minimize(start, toy.padded_past_limit, deadline=0.0)
    assert (late.calls, late.done, late.best) == (0, False, start)


def test_slower_variants_with_as_many_requests_are_refused() -> None:
    machine = Minimizer(Scenario(Engine(40, 9), (Request(0, Prompt(30), 5),)), 6)
    candidate = machine.next_candidate()
    assert candidate is not None
    machine.report(candidate, True, 7)
    assert machine.steps == 6


def test_only_the_pending_candidate_may_be_reported() -> None:
    machine = Minimizer(toy.WITNESSES[toy.padded_past_limit], 20)
    with pytest.raises(ValueError, match="next_candidate"):
        machine.report(machine.best, True, 3)
    candidate = machine.next_candidate()
    assert candidate is not None
    assert machine.next_candidate() is candidate
    machine.report(candidate, False)
    assert machine.next_candidate() != candidate
