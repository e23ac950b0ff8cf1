"""The real runner's parts that need neither torch nor vLLM: turns, limits, kernels by name."""

from random import Random

import pytest
from msgspec.structs import replace

from schedfuzz.corpus.outputs import conversation, expected_outputs
from schedfuzz.corpus.parts import Group
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.tokens import STOP, VOCAB
from schedfuzz.fuzzer.generate import generate
from schedfuzz.fuzzer.supported import Supported
from schedfuzz.workers.target.real import limits
from schedfuzz.workers.target.real.kernels import _InPlace
from schedfuzz.workers.target.real.turns import turns


def test_turns_hold_the_outputs_that_any_schedule_must_give() -> None:
    supported, checked = Supported(limits.exceeded), 0
    for seed in range(40):
        scenario = supported.fit(generate(Random(seed)))
        limit = scenario.engine.max_model_len
        for request in scenario.requests:
            said = [turn.tokens[turn.prompt :] for turn in turns(request, limit, 0)]
            told = [turn.tokens for turn in conversation(request, limit)]
            assert [row[: len(tokens)] for row, tokens in zip(said, told, strict=True)] == told
            assert sum(told, []) == expected_outputs(scenario)[request.id]
            checked += len(told)
    assert checked > 100


def test_a_turn_ends_behind_its_stop_token() -> None:
    (turn,) = turns(Request(0, Prompt(5), 9, stop_at=2), 64, 0)
    assert turn.prompt == 5 and turn.end == 8 and turn.tokens[7] == STOP
    assert len(turn.tokens) == len(turn.says) == len(turn.plain) == len(turn.drafts) == 64


def test_drafts_are_as_right_as_the_script_says() -> None:
    """At each position the next tokens, then one that is wrong."""
    request = Request(0, Prompt(6), 20, accept=(2, 0, 3))
    (turn,) = turns(request, 64, 3)
    for position in range(5, 20):
        right = request.accept[position % 3]
        truth = turn.tokens[position + 1 : position + 4]
        assert turn.drafts[position][:right] == truth[:right]
        if right < 3:
            assert turn.drafts[position][right] == (truth[right] + 1) % VOCAB


ENGINE = Engine(max_model_len=64, num_blocks=8, block_size=32)
WINDOWS = (Group("full"), Group("sliding_window", window=20))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({}, None),
        ({"groups": WINDOWS}, None),
        ({"groups": WINDOWS, "num_speculative_tokens": 2}, "engine.groups"),
        ({"groups": WINDOWS, "num_speculative_tokens": 2, "spec_method": "ngram"}, None),
        ({"groups": (Group("full"), Group("full"))}, "engine.groups"),
        ({"groups": (Group("full"), Group("mamba"))}, "engine.groups"),
        ({"block_size": 16}, "engine.block_size 32"),
        ({"model": "pooling"}, "engine.model"),
    ],
)
def test_what_the_real_runner_cannot_play_is_named(changes: dict, field: str | None) -> None:
    scenario = Scenario(replace(ENGINE, **changes), (Request(0, Prompt(5), 2),))
    assert limits.exceeded(scenario) == field


def test_a_function_in_a_kernels_place_is_called_by_the_kernels_names() -> None:
    def kernel(positions_ptr, stride, BLOCK) -> None: ...

    called = []
    in_place = _InPlace(kernel, lambda *values: called.append(values))
    assert in_place.arg_names == ("positions_ptr", "stride", "BLOCK")
    in_place[(1,)](BLOCK=3, positions_ptr=1, stride=2)
    assert called == [(1, 2, 3)]
