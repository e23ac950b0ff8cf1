"""The ordinary model beside the checkable one: silent on a right runner, and it sees order."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import schedfuzz
from msgspec.structs import replace
from test_real_runner import plain, play

from schedfuzz.corpus.parts import Group
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.fuzzer.judge import judge
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.targets import parse_target

pytestmark = pytest.mark.vllm
RELEASE = "0.29.0"
SOUND = f"{RELEASE}:real"
FAULT = f"{SOUND}+{Path(__file__).parent / 'faults' / 'order.py'}:order"
SCENARIOS = 30

ENGINE = Engine(max_model_len=128, block_size=32, num_blocks=12)
# Only the first request ever has two blocks behind it.
STORY = Scenario(ENGINE, (Request(0, Prompt(70, 1), 6), Request(1, Prompt(20, 2), 12, arrival=1)))
DRAFTS = {"num_speculative_tokens": 2}


@pytest.fixture(scope="module")
def controlled(shared_home: Home) -> Iterator[Pair]:
    """The sound release and the one that reads in the wrong order, both with a control."""
    with Pair(parse_target(SOUND), parse_target(FAULT), shared_home, print, control=True) as pair:
        yield pair


@pytest.fixture(scope="module")
def plain_pair(shared_home: Home) -> Iterator[Pair]:
    """The same two without a control."""
    with Pair(parse_target(SOUND), parse_target(FAULT), shared_home, print) as pair:
        yield pair


@pytest.mark.parametrize(
    "changes", [{}, {"async_scheduling": True}, DRAFTS, DRAFTS | {"async_scheduling": True}],
    ids=["plain", "async", "drafts", "async drafts"],
)  # fmt: skip
def test_a_wrong_order_is_seen_by_the_control_alone(
    controlled: Pair, plain_pair: Pair, changes: dict
) -> None:
    scenario = replace(STORY, engine=replace(ENGINE, **changes))
    right, wrong = plain_pair.run(scenario)
    assert (right.outcome, plain(right)) == ("finished", plain(wrong))
    before, after = controlled.run(scenario)
    assert plain(before) == plain(right)
    verdict = judge(before, after)
    assert (verdict.verdict, verdict.rule) == ("regressed", "runner-control"), verdict
    assert verdict.component == "runner"
    (found,) = after.violations
    # The first step whose tokens are all behind both blocks is the one after the prompt's.
    assert (found.request, found.step) == (0, 1), found
    assert "position 70 " in found.detail


def test_a_right_runner_keeps_the_control_and_its_own_trace(
    controlled: Pair, plain_pair: Pair
) -> None:
    for scenario, before, _ in play(controlled, 11, SCENARIOS):
        assert "runner-control" not in {found.rule for found in before.violations}, scenario
        plain_pair.before.submit(scenario)
        assert plain(plain_pair.before.collect()) == plain(before)


def test_windows_are_left_to_the_checkable_model(controlled: Pair, plain_pair: Pair) -> None:
    groups = (Group("full"), Group("sliding_window", window=40))
    scenario = replace(STORY, engine=replace(ENGINE, groups=groups))
    refused, _ = controlled.run(scenario)
    assert (refused.outcome, refused.reason) == ("unsupported", "engine.groups")
    assert plain_pair.run(scenario)[0].outcome == "finished"


def test_fidelity_with_a_control(shared_home: Home, environment_029, tmp_path: Path) -> None:
    env = {
        "SCHEDFUZZ_HOME": str(shared_home.root), "SCHEDFUZZ_DB": f"sqlite:///{tmp_path / 'x.db'}",
    }  # fmt: skip
    file = tmp_path / "x.json"
    result = schedfuzz("bench", "fidelity", RELEASE, "--scenarios", 20, "--control", "--json", file,
                       env=env)  # fmt: skip
    figures = json.loads(file.read_text())
    rows = figures["differences"]
    assert result.returncode == (3 if rows else 0), result.stderr
    assert (figures["compared"], figures["infra"]) == (20, 0)
    assert not [row for row in rows if "runner-control" in row["what"]]
