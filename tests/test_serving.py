"""Who is served before whom, and what drafting takes: a correct release and a broken one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from schedfuzz.corpus.events import ThrottlePrefills
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.targets import parse_target

pytestmark = pytest.mark.vllm
RELEASE = "0.29.0"
FAULTS = Path(__file__).parent / "faults" / "serving.py"


@pytest.fixture(scope="module")
def pair(shared_home: Home) -> Iterator[Pair]:
    """A correct release and the same with every fault of `serving`."""
    broken = parse_target(f"{RELEASE}+{FAULTS}:serving")
    with Pair(parse_target(RELEASE), broken, shared_home, print) as started:
        yield started


def story(engine: Engine, *requests: tuple[int, int, int, int]) -> Scenario:
    """Return requests of (prompt length, max_tokens, arrival, priority), each of its own family."""
    return Scenario(
        engine,
        tuple(
            Request(number, Prompt(length, number), outputs, arrival, priority)
            for number, (length, outputs, arrival, priority) in enumerate(requests)
        ),
    )


CASES = {
    "running-skipped": story(
        Engine(64, 40, policy="priority"), (9, 6, 0, 0), (9, 6, 0, 0), (9, 6, 0, 0)
    ),
    "admission-order": story(
        Engine(64, 40, max_num_seqs=1), (9, 6, 0, 0), (9, 2, 1, 0), (9, 2, 2, 0)
    ),
    "draft-slots": story(
        Engine(64, 40, max_num_seqs=2, max_num_batched_tokens=14, num_speculative_tokens=3,
               spec_method="dflash"),
        (9, 6, 0, 0), (9, 6, 1, 0),
    ),
    "draft-lookahead": story(
        Engine(64, 40, num_speculative_tokens=3, spec_method="eagle"), (15, 6, 0, 0)
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", CASES)
def test_a_broken_scheduler_is_caught_and_a_correct_one_is_not(pair: Pair, rule: str) -> None:
    before, after = pair.run(CASES[rule])
    assert before.outcome == "finished", before
    assert after.violations[0].rule == rule, after


def test_a_victim_that_was_held_back_is_no_reason_to_skip_the_next(shared_home: Home) -> None:
    """vLLM PR #49206: 0.27.1 leaves out the request behind the one that got the victim's blocks."""
    engine = Engine(64, 6, policy="priority", long_prefill_token_threshold=12)
    requests = story(engine, (60, 2, 0, 3), (12, 12, 1, 0), (12, 12, 1, 1)).requests
    scenario = Scenario(engine, requests, (ThrottlePrefills(3, 10),))
    targets = parse_target("0.27.1"), parse_target("0.28.0")
    with Pair(*targets, shared_home, print) as started:
        before, after = started.run(scenario)
    assert [v.rule for v in before.violations] == ["running-skipped"]
    assert before.violations[0].request == 2
    assert after.outcome == "finished"
