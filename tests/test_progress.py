"""Starvation on a fake scheduler: each bound exactly, and what silences each rule."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from schedfuzz.corpus.events import Pause, ResetPrefixCache
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.trace import Violation
from schedfuzz.workers.target.progress import (
    CYCLE_PATIENCE,
    DEADLOCK_PATIENCE,
    Progress,
    livelock_bound,
)

ENGINE = Engine(64, 40, max_num_seqs=2, max_num_batched_tokens=16)
SCENARIO = Scenario(ENGINE, (Request(0, Prompt(30), 4), Request(1, Prompt(40), 50)))
PATIENCE = 6


def request(number: int, tokens: int = 20, preemptions: int = 0, stale: int = 0) -> SimpleNamespace:
    return SimpleNamespace(
        request_id=str(number), num_tokens=tokens, num_preemptions=preemptions,
        num_stale_output_tokens=stale, status=SimpleNamespace(name="WAITING", value=1),
    )  # fmt: skip


class Queue(list[Any]):
    """A waiting queue as the scheduler has it."""

    def peek_request(self) -> Any:
        return self[0]


def scheduler(
    *waiting: Any, running: tuple[Any, ...] = (), free: int = 39, slots: int | None = 0
) -> SimpleNamespace:
    """Return a scheduler with nothing but its queues and gauges."""
    pool = SimpleNamespace(get_num_free_blocks=lambda: free)
    speculative = None if slots is None else SimpleNamespace(max_num_new_slots_for_drafting=slots)
    return SimpleNamespace(
        waiting=Queue(waiting), skipped_waiting=Queue(), running=list(running),
        kv_cache_manager=SimpleNamespace(block_pool=pool),
        vllm_config=SimpleNamespace(speculative_config=speculative),
        max_num_scheduled_tokens=10**6,
    )  # fmt: skip


def watch(scheduler: Any, engine: Engine = ENGINE) -> Progress:
    return Progress(replace(SCENARIO, engine=engine), scheduler)


def first(judge: Callable[[int], Violation | None], steps: int = 200) -> tuple[int, Violation]:
    """Return the number of the call that brings the first violation, from 1, and the violation."""
    for count in range(1, steps + 1):
        found = judge(count)
        if found is not None:
            return count, found
    raise AssertionError(f"nothing within {steps} steps")


def silent(judge: Callable[[int], Violation | None], steps: int = 200) -> bool:
    return all(judge(count) is None for count in range(steps))


# -- deadlock and livelock -----------------------------------------------------------------------


def test_a_deadlock_is_four_idle_steps_in_a_row() -> None:
    progress = watch(scheduler(request(1), running=(request(0),)))
    count, found = first(lambda step: progress.after_step(step, 0, False, False))
    assert (count, found.kind, found.rule) == (DEADLOCK_PATIENCE, "starvation", "deadlock")
    assert (found.request, found.path, found.step) == (1, "waiting", 4)
    assert found.detail == "nothing scheduled for 4 steps; request 1 is waiting, 1 running"


@pytest.mark.parametrize(
    "sign",
    [
        {"tokens": 1, "delivered": False, "waiting_for_events": False},
        {"tokens": 0, "delivered": True, "waiting_for_events": False},
        {"tokens": 0, "delivered": False, "waiting_for_events": True},
    ],
)
def test_any_sign_of_life_starts_the_count_again(sign: dict[str, Any]) -> None:
    progress = watch(scheduler(request(0)))
    for _ in range(DEADLOCK_PATIENCE - 1):
        assert progress.after_step(0, 0, False, False) is None
    assert progress.after_step(0, **sign) is None
    count, _ = first(lambda step: progress.after_step(step, 0, False, False))
    assert count == DEADLOCK_PATIENCE


@pytest.mark.parametrize(
    ("waiting", "running", "blamed", "path"),
    [
        ((request(1, preemptions=2),), (request(0),), 1, "preempted"),
        ((), (request(0), request(1)), 0, "running"),
        ((), (), None, "none"),
    ],
)
def test_who_is_blamed(waiting: Any, running: Any, blamed: int | None, path: str) -> None:
    progress = watch(scheduler(*waiting, running=running))
    _, found = first(lambda step: progress.after_step(step, 0, False, False))
    assert (found.request, found.path) == (blamed, path)


def test_a_livelock_is_work_past_the_bound_without_output() -> None:
    progress = watch(scheduler(running=(request(0),)))
    bound = livelock_bound(SCENARIO)
    count, found = first(lambda step: progress.after_step(step, 9, False, True))
    assert (count, found.rule, found.path) == (bound + 1, "livelock", "running")
    progress = watch(scheduler(running=(request(0),)))
    assert silent(lambda step: progress.after_step(step, 9, step % (bound + 1) == bound, True))


def test_the_livelock_bound_is_twice_the_work_of_every_request() -> None:
    # 34 tokens are 3 chunks of 16, 64 (of 90: the limit) are 4; a step each for the first output.
    assert livelock_bound(SCENARIO) == 16 + 2 * (3 + 1 + 4 + 1)
    short = replace(ENGINE, long_prefill_token_threshold=8)
    assert livelock_bound(replace(SCENARIO, engine=short)) == 16 + 2 * (5 + 1 + 8 + 1)


def test_each_reset_may_undo_all_work() -> None:
    """A client that resets again and again starves its own requests: no release's fault."""
    events = tuple(ResetPrefixCache(3 * step, preempt_running=True) for step in range(60))
    assert livelock_bound(replace(SCENARIO, events=events)) == 16 + 61 * 2 * 9
    pauses = tuple(Pause(3 * step, clear_cache=step > 0) for step in range(4))
    assert livelock_bound(replace(SCENARIO, events=pauses)) == 16 + 4 * 2 * 9


# -- passed over ---------------------------------------------------------------------------------


def passing(progress: Progress, shares: dict[str, int] | None = None, preempted: bool = False):
    return lambda step: progress.after_schedule(step, shares or {"0": 1}, preempted)


@pytest.mark.parametrize(("asynchronous", "patience"), [(False, PATIENCE), (True, PATIENCE + 2)])
def test_the_head_of_the_queue_is_passed_over(asynchronous: bool, patience: int) -> None:
    engine = replace(ENGINE, async_scheduling=asynchronous)
    progress = watch(scheduler(request(1), request(2), running=(request(0),)), engine)
    count, found = first(passing(progress))
    assert (count, found.kind, found.rule) == (patience, "starvation", "passed-over")
    assert (found.request, found.path, found.step) == (1, "new", patience)
    assert "15 tokens of budget and 39 blocks free" in found.detail


def test_a_preempted_head_is_on_the_way_back() -> None:
    waiting = scheduler(request(1, preemptions=1), running=(request(0),))
    assert first(passing(watch(waiting)))[1].path == "resumed"


def test_what_the_scheduler_skipped_is_the_head() -> None:
    waiting = scheduler(request(1), running=(request(0),))
    waiting.skipped_waiting.append(request(2))
    assert first(passing(watch(waiting)))[1].request == 2


def test_another_head_starts_the_count_again() -> None:
    waiting = scheduler(request(1), running=(request(0),))
    progress = watch(waiting)
    for step in range(PATIENCE - 1):
        assert progress.after_schedule(step, {"0": 1}, False) is None
    waiting.waiting[:] = [request(2)]
    assert first(passing(progress))[0] == PATIENCE


def test_one_step_that_could_not_admit_starts_the_count_again() -> None:
    progress = watch(scheduler(request(1), running=(request(0),)))
    for silence in ({"shares": {"0": 16}}, {"preempted": True}):
        for step in range(PATIENCE - 1):
            assert progress.after_schedule(step, {"0": 1}, False) is None
        assert (
            progress.after_schedule(0, silence.get("shares", {"0": 1}), "preempted" in silence)
            is None
        )
    assert first(passing(progress))[0] == PATIENCE


ONE = (request(0),)
DRAFTING = replace(ENGINE, num_speculative_tokens=2)
# needed blocks: 20 tokens and twice the window are 2 blocks; slack: 2 + 40 // 20 + 1 running
LEAST_FREE = 2 + 5
# name -> (scheduler that is silent, its engine, its shares, the same one step from silence)
EDGES: dict[str, tuple[Any, Engine, dict[str, int], Any, dict[str, int]]] = {
    "no one waits": (scheduler(running=ONE), ENGINE, {"0": 1}, scheduler(request(1), running=ONE),
                     {"0": 1}),
    "no seat": (scheduler(request(2), running=ONE * 2), ENGINE, {"0": 1},
                scheduler(request(2), running=ONE), {"0": 1}),
    "no budget": (scheduler(request(1), running=ONE), ENGINE, {"0": 16},
                  scheduler(request(1), running=ONE), {"0": 15}),
    "no blocks": (scheduler(request(1), running=ONE, free=LEAST_FREE - 1), ENGINE, {"0": 1},
                  scheduler(request(1), running=ONE, free=LEAST_FREE), {"0": 1}),
    "stale output": (scheduler(request(1, stale=1), running=ONE), ENGINE, {"0": 1},
                     scheduler(request(1, stale=0), running=ONE), {"0": 1}),
    # A window of 3 and one slot each for the running request and the one to be admitted.
    "draft slots": (scheduler(request(1), running=ONE, slots=1), DRAFTING, {"0": 12},
                    scheduler(request(1), running=ONE, slots=1), {"0": 11}),
    "draft window": (scheduler(request(1), running=ONE, slots=None), DRAFTING, {"0": 14},
                     scheduler(request(1), running=ONE, slots=None), {"0": 13}),
    "whole prompts only": (
        scheduler(request(1), running=ONE), replace(ENGINE, chunked_prefill=False,
                                                    max_num_batched_tokens=64), {"0": 44},
        scheduler(request(1), running=ONE), {"0": 43}),
}  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
def test_what_is_not_free_silences_it(name: str) -> None:
    quiet, engine, shares, loud, fewer = EDGES[name]
    assert silent(passing(watch(quiet, engine), shares))
    assert first(passing(watch(loud, engine), fewer))[0] == PATIENCE


def test_a_preemption_in_the_step_silences_it() -> None:
    assert silent(passing(watch(scheduler(request(1), running=ONE)), preempted=True))


def test_a_release_without_stale_output_or_draft_slots_is_watched_too() -> None:
    head = request(1)
    del head.num_stale_output_tokens
    waiting = scheduler(head, running=ONE, slots=None)
    del waiting.skipped_waiting
    assert first(passing(watch(waiting)))[0] == PATIENCE


# -- livelock as a round -------------------------------------------------------------------------


class Going:
    """A request whose computed tokens go round in a cycle of the given length."""

    def __init__(self, period: int) -> None:
        self.period = period
        self.steps = 0
        self.num_tokens = 30
        self.status = SimpleNamespace(value=1)

    @property
    def num_computed_tokens(self) -> int:
        return self.steps % self.period


def round_trip(period: int) -> tuple[Progress, Going]:
    going = Going(period)
    plan = scheduler(running=(request(0),))
    plan.requests = {"0": going}
    return watch(plan), going


def after(progress: Progress, going: Going, delivered: bool = False) -> Violation | None:
    going.steps += 1
    return progress.after_step(going.steps, 5, delivered, False)


@pytest.mark.parametrize("period", [2, 3])
def test_coming_back_to_one_state_without_output_is_a_livelock(period: int) -> None:
    progress, going = round_trip(period)
    count, found = first(lambda _: after(progress, going))
    assert (count, found.rule) == (CYCLE_PATIENCE * period + 1, "livelock")
    assert count < progress.livelock_bound


def test_output_or_a_stimulus_to_come_ends_a_round() -> None:
    progress, going = round_trip(3)
    assert silent(lambda step: after(progress, going, delivered=step % 6 == 0))
    progress, going = round_trip(3)

    def stimulated(_: int) -> Violation | None:
        progress.new_stimulus()
        return after(progress, going)

    assert silent(stimulated, steps=progress.livelock_bound)


def test_computing_ever_more_is_no_round() -> None:
    progress, going = round_trip(10_000)
    assert silent(lambda _: after(progress, going), steps=progress.livelock_bound)
