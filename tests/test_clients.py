"""What reaches clients: a correct release and a broken one, and known faults of sessions."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from schedfuzz.corpus.events import Abort, Event, Pause, ResetPrefixCache, Resume, ThrottlePrefills
from schedfuzz.corpus.outputs import conversation, expected_outputs, loops
from schedfuzz.corpus.parts import Repetition, Turn
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.tokens import STOP
from schedfuzz.corpus.validate import validate
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.targets import parse_target

RELEASE = "0.29.0"
FAULTS = Path(__file__).parent / "faults" / "clients.py"
ENGINE = Engine(66, 20)
SESSION = Request(0, Prompt(20), 4, turns=(Turn(2, 5, 4), Turn(30, 3, 4)))

# -- the pure model --------------------------------------------------------------------------------


def test_a_turn_continues_all_but_the_last_token_of_the_one_before() -> None:
    first, second, third = conversation(SESSION, 66)
    assert second.prompt[: len(first.prompt) + 3] == first.prompt + first.tokens[:3]
    assert [len(turn.prompt) for turn in (first, second, third)] == [20, 28, 34]
    scenario = Scenario(ENGINE, (SESSION,))
    assert expected_outputs(scenario)[0] == first.tokens + second.tokens + third.tokens


def test_a_turn_beyond_max_model_len_says_nothing() -> None:
    assert len(conversation(SESSION, 34)) == 2
    assert len(conversation(SESSION, 30)[1].tokens) == 2


def test_the_stop_token_is_not_sampled_before_min_tokens() -> None:
    request = Request(0, Prompt(9), 12, stop_at=2, min_tokens=5)
    (turn,) = conversation(request, 66)
    assert turn.tokens[5:] == [STOP] and STOP not in turn.tokens[:5]


def test_a_request_ends_where_it_has_said_the_same_often_enough() -> None:
    loop = Repetition(start=3, period=2, max_pattern_size=2, min_count=3)
    request = Request(0, Prompt(9), 20, repetition=loop)
    (turn,) = conversation(request, 66)
    assert len(turn.tokens) == 9 and turn.tokens[3:5] == turn.tokens[5:7] == turn.tokens[7:]
    assert loops(request, turn.tokens) and not loops(request, turn.tokens[:-1])
    (later,) = conversation(replace(request, min_tokens=12), 66)
    assert len(later.tokens) == 12
    for blind in (replace(loop, max_pattern_size=1), replace(loop, min_count=9)):
        (whole,) = conversation(replace(request, repetition=blind), 66)
        assert len(whole.tokens) == 20
    once = replace(loop, period=1, min_pattern_size=2)
    (slow,) = conversation(replace(request, repetition=once), 66)
    assert len(slow.tokens) == 9  # 3 times 2 of the one token


def test_sessions_of_one_family_bring_the_same_input() -> None:
    one, other = (conversation(replace(SESSION, id=number), 66) for number in (0, 1))
    assert one == other
    own = Prompt(20, shared=10)
    one, other = (
        conversation(replace(SESSION, id=number, prompt=own), 66)[1].prompt[-5:]
        for number in (0, 1)
    )
    assert one != other


# -- real releases ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(shared_home: Home) -> Iterator[Pair]:
    """A correct release and the same with every fault of `clients`."""
    broken = parse_target(f"{RELEASE}+{FAULTS}:clients")
    with Pair(parse_target(RELEASE), broken, shared_home, print) as started:
        yield started


@pytest.fixture(scope="module")
def newer(shared_home: Home) -> Iterator[Pair]:
    """Two correct releases."""
    with Pair(parse_target("0.28.0"), parse_target(RELEASE), shared_home, print) as started:
        yield started


def two(request: Request) -> tuple[Request, Request]:
    """Return the request and a shorter one of another family beside it."""
    prompt = Prompt(request.prompt.length - 5, 7)
    return request, replace(request, id=request.id + 1, prompt=prompt)


CASES = {
    "session-prompt": Scenario(ENGINE, (replace(SESSION, priority=1),)),
    "turn-length": Scenario(ENGINE, (replace(SESSION, priority=2),)),
    "finish-reason": Scenario(ENGINE, (Request(0, Prompt(9), 3, priority=3),)),
    "output": Scenario(ENGINE, (Request(0, Prompt(9), 9, repetition=Repetition(2, 1, 61)),)),
    "logprobs": Scenario(ENGINE, two(Request(0, Prompt(20), 4, logprobs=True))),
    "prompt-logprobs": Scenario(ENGINE, (Request(0, Prompt(20), 4, prompt_logprobs=True),)),
    "pooled": Scenario(replace(ENGINE, model="pooling"), two(Request(0, Prompt(20), 1))),
}


@pytest.mark.vllm
@pytest.mark.parametrize("runner", ["v1", "v2"])
@pytest.mark.parametrize("rule", CASES)
def test_a_broken_engine_is_caught_and_a_correct_one_is_not(
    pair: Pair, rule: str, runner: str
) -> None:
    scenario = CASES[rule]
    engine = replace(scenario.engine, model_runner=runner, spec_method="eagle")
    before, after = pair.run(validate(replace(scenario, engine=engine)))
    assert before.outcome == "finished", before
    assert after.violations[0].rule == rule, after


@pytest.mark.vllm
def test_a_release_that_keeps_the_first_turns_parameters_is_caught(newer: Pair) -> None:
    longer = replace(SESSION, turns=(Turn(2, 5, 2),))
    for trace in newer.run(Scenario(ENGINE, (longer,))):
        assert trace.violations[0].rule == "turn-length", trace
    silent = replace(SESSION, logprobs=True, turns=(Turn(2, 5, 4),))
    for trace in newer.run(Scenario(ENGINE, (silent,))):
        assert trace.violations[0].rule == "logprobs", trace


HAPPENINGS: dict[str, tuple[Event, ...]] = {
    "pause keep": (Pause(4), Resume(9)),
    "pause keep clearing": (Pause(4, "keep", True), Resume(9)),
    "pause until the end": (Pause(5),),
    "pause abort clearing": (Pause(4, "abort", True), Resume(9)),
    "reset while drained": (Pause(4), ResetPrefixCache(7, True), Resume(9)),
    "abort while paused": (Pause(4), Abort(6, 0), Resume(9)),
    "throttle": (ThrottlePrefills(3, 9),),
    "abort between turns": (Abort(15, 0, True),),
}


@pytest.mark.vllm
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("name", HAPPENINGS)
def test_sessions_and_others_come_right_whatever_happens(
    newer: Pair, name: str, asynchronous: bool
) -> None:
    others = (Request(1, Prompt(30, 3), 9, 3, logprobs=True), Request(2, Prompt(40, 4), 4, 6))
    engine = replace(ENGINE, async_scheduling=asynchronous)
    scenario = validate(Scenario(engine, (SESSION, *others), HAPPENINGS[name]))
    for trace in newer.run(scenario):
        assert trace.outcome == "finished", trace
        told = [event for step in trace.steps for event in step.events]
        assert any(event.startswith(name.split()[0]) for event in told)
        left = {0} if "abort" in name else set()
        left |= {1} if name == "pause abort clearing" else set()
        want = expected_outputs(scenario)
        for output in trace.outputs:
            tokens = list(output.tokens)
            if output.request in left:
                assert tokens == want[output.request][: len(tokens)] != want[output.request]
            else:
                assert tokens == want[output.request]


@pytest.mark.vllm
def test_a_bare_end_closes_a_session_that_waits_and_one_that_runs(newer: Pair) -> None:
    for step in (2, 12):
        request = Request(0, Prompt(9), 6, turns=(Turn(step, 0, 1),))
        for trace in newer.run(validate(Scenario(ENGINE, (request,)))):
            assert trace.outcome == "finished", trace
            assert len(trace.outputs[0].tokens) == 6
            assert "close 0" in [event for record in trace.steps for event in record.events]


@pytest.mark.vllm
def test_sessions_that_hold_the_pool_between_turns_deadlock(newer: Pair) -> None:
    sessions = tuple(
        Request(number, Prompt(46, number), 2, turns=(Turn(9, 16, 2),)) for number in range(2)
    )
    for trace in newer.run(validate(Scenario(Engine(66, 7), sessions))):
        assert trace.violations[0].rule == "deadlock", trace
