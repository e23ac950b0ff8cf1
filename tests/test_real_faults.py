"""The real runner's own faults are caught where they happen, and told from the scheduler's."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.real_runner import (
    FEW_BLOCKS,
    LOST_MOVE,
    SHIFTED_POSITION,
    SWAPPED_SAMPLES,
    UNWRITTEN,
    WRONG_COLUMN,
    WRONG_HANDOFF,
    WRONG_ROW,
    WRONG_TOKEN,
)

from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.trace import Violation
from schedfuzz.fuzzer.judge import judge
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.targets import parse_target

pytestmark = pytest.mark.vllm
RELEASE = "0.29.0"
SOUND = f"{RELEASE}:real"
FAULTS = Path(__file__).parent / "faults" / "real_runner.py"


@pytest.fixture(scope="module")
def broken_pair(shared_home: Home) -> Iterator[Pair]:
    """The sound release and the broken one, both on the real runner."""
    fault = parse_target(f"{SOUND}+{FAULTS}:faults")
    with Pair(parse_target(SOUND), fault, shared_home, print) as started:
        yield started


def story(seats: int, asynchronous: bool = False) -> Scenario:
    """Return three requests of their own, one step apart: the first ends while the others run."""
    engine = Engine(
        max_model_len=80, block_size=32, num_blocks=12, max_num_seqs=seats,
        async_scheduling=asynchronous,
    )  # fmt: skip
    requests = (
        Request(0, Prompt(40, 1), 4), Request(1, Prompt(40, 2), 12, arrival=1),
        Request(2, Prompt(9, 3), 12, arrival=2),
    )  # fmt: skip
    return Scenario(engine, requests)


@pytest.mark.parametrize(
    ("fault", "rule", "request_", "step", "position"),
    [
        (WRONG_COLUMN, "runner-context", 0, 0, 32),
        (WRONG_ROW, "runner-context", 1, 1, 32),
        (SHIFTED_POSITION, "runner-context", 1, 2, 40),
        (UNWRITTEN, "runner-context", 0, 2, 41),
        (LOST_MOVE, "runner-context", 2, 4, 10),
        (SWAPPED_SAMPLES, "runner-output", 0, 1, None),
    ],
)  # fmt: skip
def test_a_fault_of_the_runner_is_caught_where_it_happens(
    broken_pair: Pair, fault: int, rule: str, request_: int, step: int, position: int | None
) -> None:
    first = caught(broken_pair, story(fault))
    assert (first.rule, first.request, first.step) == (rule, request_, step), first
    if position is not None:
        assert f"position {position} " in first.detail


def test_a_token_handed_to_the_wrong_row_is_caught_where_it_is_read(broken_pair: Pair) -> None:
    first = caught(broken_pair, story(WRONG_HANDOFF, asynchronous=True))
    assert (first.rule, first.request, first.step) == ("runner-context", 0, 2), first
    assert "position 41 " in first.detail


@pytest.mark.parametrize("fault", [WRONG_HANDOFF, 8])
def test_nothing_else_in_the_broken_pair_is_wrong(broken_pair: Pair, fault: int) -> None:
    """Sync, no token is handed over; 8 seats choose no fault."""
    before, after = broken_pair.run(story(fault))
    assert after.outcome == "finished" and after.steps == before.steps


def caught(pair: Pair, scenario: Scenario) -> Violation:
    """Return what the second target of a pair broke, which must be its runner's own fault."""
    before, after = pair.run(scenario)
    verdict = judge(before, after)
    assert (verdict.verdict, verdict.component) == ("regressed", "runner"), verdict
    return after.violations[0]


REUSED = Scenario(
    Engine(max_model_len=100, block_size=32, num_blocks=FEW_BLOCKS),
    (Request(0, Prompt(40, 1), 1), Request(1, Prompt(41, 1), 9, arrival=3),
     Request(2, Prompt(90, 2), 4, arrival=4)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("scenario", "rule"), [(REUSED, "kv-content"), (story(WRONG_TOKEN), "output")]
)
def test_a_fault_of_the_scheduler_is_not_put_on_the_runner(
    broken_pair: Pair, scenario: Scenario, rule: str
) -> None:
    """One breaks the contract in a step, one only shows in what a client gets."""
    verdict = judge(*broken_pair.run(scenario))
    assert (verdict.verdict, verdict.rule) == ("regressed", rule), verdict
    assert verdict.component == "scheduler"
