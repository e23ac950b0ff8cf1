"""The judge: direction, fingerprints that fold, divergences by their first decision."""

from msgspec.structs import replace

from schedfuzz.corpus.trace import Output, Scheduled, Step, Trace, Violation
from schedfuzz.fuzzer.judge import judge, shorter, title

SHARE = Scheduled(0, "new", 0, 5, 0, 1, 1)
STEP = Step(0, (SHARE,), (), (), ((0, 1),), 1, 0, 8)
FINE = Trace("finished", (STEP,), (Output(0, (7,), "length"),))
OVERRUN = Violation("contract", "past-max-model-len", "48 + 2 > 49", 0, 1, "new")
BAD = Trace("violated", (STEP,), (), (OVERRUN,))


def other(**changes: object) -> Trace:
    return replace(FINE, steps=(replace(STEP, **changes),))


def test_equal_traces_are_clean() -> None:
    assert judge(FINE, FINE).verdict == "clean"


def test_the_broken_side_gives_the_direction() -> None:
    assert judge(BAD, FINE).verdict == "fixed"
    assert judge(FINE, BAD).verdict == "regressed"
    assert judge(BAD, BAD).verdict == "both"


def test_any_violation_of_the_other_side_counts_against_only() -> None:
    crash = Violation("crash", "KeyError", "KeyError: 3", 2, function="vllm.a:f")
    verdict = judge(BAD, replace(BAD, violations=(crash,)))
    assert verdict.verdict == "both"
    assert verdict.fingerprint != judge(BAD, BAD).fingerprint


def test_a_side_that_could_not_run_is_no_finding() -> None:
    infra = Trace("infra", reason="out of memory")
    assert judge(infra, BAD).verdict == judge(BAD, infra).verdict == "infra"
    assert judge(Trace("unsupported", reason="engine.x"), FINE).verdict == "infra"


def test_numbers_steps_and_messages_do_not_split_a_finding() -> None:
    again = replace(OVERRUN, detail="9 + 2 > 10", step=77, request=4)
    assert (
        judge(BAD, FINE).fingerprint == judge(replace(BAD, violations=(again,)), FINE).fingerprint
    )


def test_rule_path_function_and_direction_split_findings() -> None:
    prints = {judge(BAD, FINE).fingerprint, judge(FINE, BAD).fingerprint}
    for change in ({"rule": "seats"}, {"path": "resumed"}, {"function": "vllm.b:g"}):
        trace = replace(BAD, violations=(replace(OVERRUN, **change),))
        prints.add(judge(trace, FINE).fingerprint)
    assert len(prints) == 5


def test_a_title_is_short_and_stable() -> None:
    assert title(OVERRUN) == "past-max-model-len (new request)"
    assert title(replace(OVERRUN, path="")) == "past-max-model-len"
    crash = Violation("crash", "KeyError", "KeyError: 3", 2, 0, "new", "vllm.a.b:Pool.free")
    assert title(crash) == "KeyError in Pool.free"
    assert title(replace(crash, function="")) == "KeyError"


def test_the_runners_fault_is_another_finding_and_says_so() -> None:
    crash = Violation("crash", "KeyError", "KeyError: 3", 2, function="vllm.a.b:Pool.free")
    mine = replace(crash, component="runner")
    sides = [replace(BAD, violations=(found,)) for found in (crash, mine)]
    scheduler, runner = (judge(side, FINE) for side in sides)
    assert (scheduler.component, runner.component) == ("scheduler", "runner")
    assert runner.title == "KeyError in Pool.free, the runner's fault"
    prints = {scheduler.fingerprint, runner.fingerprint, judge(*sides).fingerprint}
    assert len(prints) == 3
    # As stored since the first version: a scheduler's finding keeps its identity.
    assert judge(BAD, FINE).fingerprint == "abf5f39ed9bf8f05"
    assert judge(FINE, other(preempted=(0,))).component is None


def test_the_first_violation_names_the_finding() -> None:
    later = Violation("crash", "AssertionError", "", 1)
    trace = replace(BAD, violations=(OVERRUN, later))
    assert judge(trace, FINE).fingerprint == judge(BAD, FINE).fingerprint


def test_refusing_the_configuration_is_a_fix_and_a_change() -> None:
    rejected = Trace("rejected", reason="ValueError: too small")
    assert judge(BAD, rejected).verdict == "fixed"
    assert "too small" in judge(BAD, rejected).detail
    assert judge(FINE, rejected).verdict == "changed"
    assert judge(rejected, rejected).verdict == "clean"


def test_outcomes_differ_before_schedules_do() -> None:
    tokens = replace(other(running=1), outputs=(Output(0, (8,), "length"),))
    assert judge(FINE, tokens).rule == "outcome:tokens"
    reason = replace(FINE, outputs=(Output(0, (7,), "abort"),))
    assert judge(FINE, reason).rule == "outcome:finish reason"


def test_an_abort_that_cuts_at_another_length_is_no_outcome() -> None:
    short = replace(other(running=1), outputs=(Output(0, (7,), None),))
    longer = replace(other(finished=(0,)), outputs=(Output(0, (7, 8), None),))
    assert judge(short, longer).rule == "schedule:finished"
    wrong = replace(longer, outputs=(Output(0, (9, 8), None),))
    assert judge(short, wrong).rule == "outcome:tokens"


def test_schedules_fold_by_the_first_differing_decision() -> None:
    longer = other(scheduled=(replace(SHARE, tokens=4),))
    much_longer = other(scheduled=(replace(SHARE, tokens=1),))
    assert judge(FINE, longer).rule == "schedule:tokens of a new request"
    assert judge(FINE, longer).fingerprint == judge(FINE, much_longer).fingerprint
    resumed = other(scheduled=(replace(SHARE, path="resumed"),))
    assert judge(FINE, resumed).rule == "schedule:path of a new request"
    gone = other(scheduled=())
    assert judge(FINE, gone).rule == "schedule:admission of a new request only before"
    assert judge(gone, FINE).rule == "schedule:admission of a new request only after"
    assert judge(FINE, other(preempted=(0,))).rule == "schedule:preemption"


def test_gauges_alone_are_no_divergence() -> None:
    assert judge(FINE, other(free_blocks=3)).verdict == "clean"


def test_a_self_check_ignores_what_both_runs_break_alike() -> None:
    assert judge(BAD, BAD, self_check=True).verdict == "clean"
    assert judge(BAD, FINE, self_check=True).verdict == "fixed"
    shifted = replace(BAD, violations=(replace(OVERRUN, step=3),))
    assert judge(BAD, shifted, self_check=True).verdict == "both"


def test_the_length_of_a_reproducer_is_that_of_the_broken_side() -> None:
    assert shorter(BAD, replace(FINE, steps=(STEP,) * 9)) == 1
    assert shorter(FINE, replace(FINE, steps=(STEP,) * 9)) == 9
