"""Grammars: the pure rules, the stub, the rows of a bitmask, and real engines, right and broken."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from outputs import cached, new, output

from schedfuzz.cli.hunt import seed_corpus
from schedfuzz.corpus import codec
from schedfuzz.corpus.outputs import expected_outputs
from schedfuzz.corpus.parts import Structured
from schedfuzz.corpus.sampling import truth
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.tokens import (
    REASONING_END,
    STOP,
    allowed,
    first_allowed,
    grammar_start,
    prompt_tokens,
    speaker,
    spoken,
)
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.target.faults import BrokenRule
from schedfuzz.workers.target.runner import SimulatedRunner
from schedfuzz.workers.target.runner_v1 import V1Runner
from schedfuzz.workers.target.runner_v2 import V2Runner
from schedfuzz.workers.targets import parse_target

FAULTS = Path(__file__).parent / "faults" / "grammars.py"
ENGINE = Engine(64, 20, num_speculative_tokens=2)
ASKING = Request(7, Prompt(5), 20, accept=(2,), structured=Structured())
EVERYTHING = (1 << 64) - 1


def outputs_of(request: Request) -> list[int]:
    engine = replace(ENGINE, reasoning=True)
    return expected_outputs(Scenario(engine, (request,)))[request.id]


# -- the rules of a grammar ----------------------------------------------------------------------


def test_the_first_allowed_token_is_sought_upwards_and_round() -> None:
    assert first_allowed(0b10110, 1) == 1
    assert first_allowed(0b10110, 3) == 4
    assert first_allowed(0b10110, 5) == 1
    assert first_allowed(EVERYTHING, 63) == 63


def test_outputs_obey_the_grammar_and_would_not_without_it() -> None:
    tokens = outputs_of(ASKING)
    assert all(allowed(ASKING, count) >> token & 1 for count, token in enumerate(tokens))
    free = outputs_of(replace(ASKING, structured=None))
    assert not all(allowed(ASKING, count) >> token & 1 for count, token in enumerate(free))


def test_the_grammar_starts_after_the_marker_and_ends_with_the_stop_token() -> None:
    request = replace(ASKING, structured=Structured(ends_after=3, reasoning_end=4))
    tokens = outputs_of(request)
    assert (tokens.index(REASONING_END), grammar_start(request)) == (4, 5)
    assert (len(tokens), tokens[-1]) == (9, STOP)
    assert tokens[:4] == outputs_of(replace(ASKING, structured=None))[:4]


def test_a_grammar_that_cannot_be_compiled_yields_nothing() -> None:
    assert outputs_of(replace(ASKING, structured=Structured(fails=True))) == []


# -- the rows of a bitmask -----------------------------------------------------------------------


def mask(*rows: int) -> SimpleNamespace:
    """Return a GrammarOutput for request 7; rows are bits of 64 tokens."""
    words = [[row & 0xFFFFFFFF, row >> 32] for row in rows]
    signed = [[word - (1 << 32) if word >> 31 else word for word in row] for row in words]
    return SimpleNamespace(
        structured_output_request_ids=["7"], grammar_bitmask=SimpleNamespace(tolist=lambda: signed)
    )


def runner_before_a_window(kind: type[SimulatedRunner], drafts: list[int]) -> SimulatedRunner:
    """Return a runner that sampled one token of request 7 and executed two drafts."""
    runner = kind(ENGINE)
    runner.requests = {"7": ASKING}
    runner.execute(output({7: 5}, new(ASKING, [1])))
    runner.sample(mask(allowed(ASKING, 0)))
    runner.execute(output({7: 3}, cached(ASKING, 5, 1, [2]), drafts={7: drafts}))
    return runner


def truthful(count: int) -> list[int]:
    """Return the first outputs of request 7."""
    return spoken(truth(ASKING, prompt_tokens(ASKING)), prompt_tokens(ASKING), count)


@pytest.mark.parametrize("kind", [V1Runner, V2Runner])
def test_a_window_is_sampled_row_by_row(kind: type[SimulatedRunner]) -> None:
    runner = runner_before_a_window(kind, truthful(3)[1:])
    rows = mask(*(allowed(ASKING, count) for count in (1, 2, 3)))
    assert runner.sample(rows) == {"7": truthful(4)[1:]}


@pytest.mark.parametrize("kind", [V1Runner, V2Runner])
def test_without_a_row_the_model_speaks_freely(kind: type[SimulatedRunner]) -> None:
    runner = runner_before_a_window(kind, truthful(3)[1:])
    digest = runner.states["7"].digests[5]
    (sampled,) = runner.sample(None).values()
    assert sampled[0] == speaker(ASKING, 5)(digest, 5)


def test_a_draft_beyond_the_acceptable_ones_is_rejected_by_the_second_runner_alone() -> None:
    for kind, tokens in ((V1Runner, 3), (V2Runner, 2)):
        runner = runner_before_a_window(kind, truthful(3)[1:])
        runner.engine = replace(ENGINE, model_runner="v1" if kind is V1Runner else "v2")
        rows = mask(*(allowed(ASKING, count) for count in (1, 2, 3)))
        rows.num_acceptable_drafts = [1]
        assert len(runner.sample(rows)["7"]) == tokens


def test_a_placeholder_draft_is_never_right_in_the_first_runner() -> None:
    runner = runner_before_a_window(V1Runner, [-1, -1])
    zero = mask(1, EVERYTHING, EVERYTHING)
    assert runner.sample(zero) == {"7": [0]}


@pytest.mark.parametrize("rows", [2, 4])
def test_a_missing_or_surplus_row_breaks_a_rule(rows: int) -> None:
    runner = runner_before_a_window(V1Runner, truthful(3)[1:])
    with pytest.raises(BrokenRule) as broken:
        runner.sample(mask(*[EVERYTHING] * rows))
    assert broken.value.violation.rule == "grammar-rows"
    assert broken.value.violation.detail == f"{rows} rows for 3 tokens"


# -- real engines --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(shared_home: Home) -> Iterator[Pair]:
    """A correct release and the same with every fault of `grammars`."""
    broken = parse_target(f"0.29.0+{FAULTS}:grammars")
    with Pair(parse_target("0.29.0"), broken, shared_home, print) as started:
        yield started


def seed(**changes: object) -> Scenario:
    scenario = codec.load(seed_corpus() / "structured_output.json")
    return replace(scenario, engine=replace(scenario.engine, **changes))


@pytest.mark.vllm
@pytest.mark.parametrize("backend", ["stub", "xgrammar"])
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_stub_and_compiler_yield_the_same(
    pair: Pair, runner: str, asynchronous: bool, backend: str
) -> None:
    scenario = seed(
        model_runner=runner, spec_method="eagle", async_scheduling=asynchronous,
        grammar_backend=backend,
    )  # fmt: skip
    for trace in pair.run(scenario):
        assert trace.outcome == "finished", trace.violations
        expected = expected_outputs(scenario)
        assert {o.request: list(o.tokens) for o in trace.outputs} == expected
        assert {o.request: o.finish_reason for o in trace.outputs} == {
            0: "length", 1: "stop", 2: "length",
        }  # fmt: skip


@pytest.mark.vllm
@pytest.mark.parametrize(
    ("number", "rule"), [(7, "grammar-rows"), (8, "grammar"), (9, "grammar-state")]
)
def test_a_broken_manager_is_caught_and_a_correct_one_is_not(
    pair: Pair, number: int, rule: str
) -> None:
    request = replace(ASKING, id=number)
    before, after = pair.run(Scenario(replace(ENGINE, reasoning=True), (request,)))
    assert before.outcome == "finished", before.violations
    assert after.violations[0].rule == rule, after.violations


@pytest.mark.vllm
def test_a_failed_compilation_ends_its_request_alone(pair: Pair) -> None:
    failing = Request(0, Prompt(5), 4, structured=Structured(fails=True, compile_steps=2))
    other = Request(1, Prompt(5, 1), 6)
    before, _ = pair.run(Scenario(ENGINE, (failing, other)))
    assert before.outcome == "finished", before.violations
    assert [o.finish_reason for o in before.outputs] == ["error", "length"]
