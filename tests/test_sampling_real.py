"""What clients want of the real sampler: equal runners, and a broken runner that is caught."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.sampling import (
    LEFT_MASK,
    LEFT_PENALTY,
    LOST_CHUNKS,
    PLACEHOLDERS,
    SHIFTED_PROMPT,
    TURNED_ROWS,
)
from msgspec.structs import replace

from schedfuzz.corpus.events import ThrottlePrefills
from schedfuzz.corpus.parts import Sampling, Turn
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.validate import validate
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.targets import parse_target

pytestmark = pytest.mark.vllm
RELEASE = "0.31.0"  # the first whose rows of allowed tokens move as they should
FAULTS = Path(__file__).parent / "faults" / "sampling.py"
ENGINE = Engine(70, 12, 32, max_num_seqs=4, max_num_batched_tokens=24)
WISHES = Sampling(2, 1, presence_penalty=2, frequency_penalty=1, repetition_penalty=2)
COMPANY = (
    Request(1, Prompt(9, 1), 3, logprobs=True),
    Request(2, Prompt(12, 2), 9, 1, sampling=Sampling(3), logprobs=True, accept=(1,)),
    Request(3, Prompt(30, 3), 5, 2, prompt_logprobs=True, accept=(2,)),
    Request(4, Prompt(8, 4), 7, 4, sampling=Sampling(frequency_penalty=2), logprobs=True),
)


@pytest.fixture(scope="module")
def runners(shared_home: Home) -> Iterator[Pair]:
    """Both runners of one release."""
    real = parse_target(f"{RELEASE}:real")
    with Pair(parse_target(RELEASE), real, shared_home, print) as started:
        yield started


@pytest.fixture(scope="module")
def broken(shared_home: Home) -> Iterator[Pair]:
    """The real runner of one release, sound and with every fault of `sampling`."""
    fault = parse_target(f"{RELEASE}:real+{FAULTS}:sampling")
    with Pair(parse_target(f"{RELEASE}:real"), fault, shared_home, print) as started:
        yield started


@pytest.mark.parametrize("drafts", [0, 2])
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    "first",
    [
        Request(0, Prompt(20), 12, accept=(2, 0, 1), sampling=WISHES, logprobs=True),
        Request(0, Prompt(40), 9, accept=(2, 1), stop_at=5, logprobs=True, prompt_logprobs=True),
        Request(0, Prompt(20), 6, sampling=WISHES, turns=(Turn(9, 5, 8),)),
    ],
    ids=["wishes", "logprobs", "session"],
)
def test_both_runners_tell_clients_the_same(
    runners: Pair, first: Request, asynchronous: bool, drafts: int
) -> None:
    engine = replace(ENGINE, async_scheduling=asynchronous, num_speculative_tokens=drafts)
    simulated, real = runners.run(validate(Scenario(engine, (first, *COMPANY))))
    assert simulated.outcome == "finished", simulated
    assert (real.violations, real.steps, real.outputs) == ((), simulated.steps, simulated.outputs)


def test_both_runners_agree_under_pressure(runners: Pair) -> None:
    engine = replace(ENGINE, num_blocks=6, max_num_batched_tokens=40, async_scheduling=True)
    growing = tuple(
        Request(number, Prompt(27 + number), 30, sampling=WISHES, logprobs=True)
        for number in range(3)
    )
    simulated, real = runners.run(validate(Scenario(engine, growing)))
    assert any(step.preempted for step in simulated.steps)
    assert (real.violations, real.steps, real.outputs) == ((), simulated.steps, simulated.outputs)


def tenants(seats: int, wishes: Sampling) -> Scenario:
    """Return a story in which the first row is left, the second moves up and others come."""
    return Scenario(
        replace(ENGINE, max_num_seqs=seats),
        (
            Request(0, Prompt(5, 1), 2),
            Request(1, Prompt(6, 2), 14, sampling=wishes),
            Request(2, Prompt(7, 3), 14, 4),
        ),
    )


def in_chunks(seats: int, asynchronous: bool = False) -> Scenario:
    """Return a prompt that takes several steps and is left out of some while another decodes."""
    return Scenario(
        replace(ENGINE, max_num_seqs=seats, async_scheduling=asynchronous),
        (Request(0, Prompt(5, 1), 12), Request(1, Prompt(60, 2), 3, 1, prompt_logprobs=True)),
        (ThrottlePrefills(2, 3),),
    )


TALKING = (Request(0, Prompt(5, 1), 6, logprobs=True), Request(1, Prompt(9, 2), 6, logprobs=True))
PENALIZED = Sampling(frequency_penalty=2, presence_penalty=2, repetition_penalty=2)
CASES = {
    LEFT_MASK: (tenants(LEFT_MASK, Sampling(1)), "runner-output", 1),
    LEFT_PENALTY: (tenants(LEFT_PENALTY, Sampling(presence_penalty=2)), "runner-output", 1),
    PLACEHOLDERS: (
        Scenario(
            replace(ENGINE, max_num_seqs=PLACEHOLDERS, async_scheduling=True),
            (Request(0, Prompt(5, 1), 20, sampling=PENALIZED),),
        ),
        "runner-output",
        0,
    ),
    LOST_CHUNKS: (in_chunks(LOST_CHUNKS), "runner-logprobs", 1),
    TURNED_ROWS: (
        Scenario(replace(ENGINE, max_num_seqs=TURNED_ROWS), TALKING),
        "runner-logprobs",
        0,
    ),
    SHIFTED_PROMPT: (in_chunks(SHIFTED_PROMPT, asynchronous=True), "runner-logprobs", 1),
}


@pytest.mark.parametrize("fault", CASES)
def test_a_fault_of_the_runner_is_caught_and_named_so(broken: Pair, fault: int) -> None:
    scenario, rule, request = CASES[fault]
    sound, fallen = broken.run(validate(scenario))
    assert sound.outcome == "finished", sound
    first = fallen.violations[0]
    assert (first.rule, first.request, first.component) == (rule, request, "runner"), first


def test_nothing_else_in_the_broken_runner_is_wrong(broken: Pair) -> None:
    for story in (tenants(10, Sampling(1)), in_chunks(10), Scenario(ENGINE, TALKING)):
        sound, other = broken.run(validate(story))
        assert (other.violations, other.steps) == ((), sound.steps)


def test_a_stale_mask_of_a_release_is_caught(shared_home: Home) -> None:
    # vLLM PR #43931: in 0.31.0 condensing the batch clears the row that it leaves.
    engine = replace(ENGINE, num_blocks=20)
    scenario = Scenario(
        engine,
        (
            Request(0, Prompt(5, 1), 2),
            Request(1, Prompt(6, 2), 20, sampling=Sampling(1)),
            Request(2, Prompt(7, 3), 14, 4),
        ),
    )
    before, after = (parse_target(f"{release}:real") for release in ("0.29.0", RELEASE))
    with Pair(before, after, shared_home, print) as pair:
        stale, mended = pair.run(validate(scenario))
    assert mended.outcome == "finished", mended
    first = stale.violations[0]
    assert (first.rule, first.request, first.component) == ("runner-output", 2, "runner"), first
