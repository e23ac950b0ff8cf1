"""Diffusion: the runner's canvas by hand, and real engines, right and broken."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from outputs import cached, new, output

from schedfuzz.corpus.outputs import expected_outputs
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.tokens import continuation, prompt_tokens
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.target.diffusion import DiffusionRunner
from schedfuzz.workers.target.faults import BrokenRule
from schedfuzz.workers.targets import parse_target

FAULTS = Path(__file__).parent / "faults" / "grammars.py"
ENGINE = Engine(64, 20, model="diffusion", model_runner="v2", canvas_length=4)
A = Request(0, Prompt(18), 20, denoise=2)
CANVAS = [-1] * 4
TOKENS = continuation(prompt_tokens(A), 8)


def story() -> Iterator[SimpleNamespace]:
    """Two chunks of the prompt, a canvas denoised twice and committed, one more begun."""
    yield output({0: 16}, new(A, [1, 2]))
    yield output({0: 2}, cached(A, 16, 0))
    for _ in range(3):
        yield output({0: 4}, cached(A, 18, 0), drafts={0: CANVAS})
    yield output({0: 4}, cached(A, 22, 4), drafts={0: CANVAS})


def play(
    request: Request = A,
    change: Callable[[int, SimpleNamespace], None] = lambda *_: None,
    steps: int = 6,
) -> list[list[int]]:
    """Return what each of the first steps of the story sampled."""
    runner = DiffusionRunner(ENGINE)
    runner.requests = {"0": request}
    sampled = []
    for step, sent in zip(range(steps), story(), strict=False):
        change(step, sent)
        runner.execute(sent)
        sampled += runner.sample(None).values()
    return sampled


def test_only_the_step_after_the_last_denoising_yields_the_canvas() -> None:
    assert play() == [[], [], [], [], TOKENS[:4], []]


@pytest.mark.parametrize(
    "request_",
    [
        replace(A, denoise=1),
        replace(A, denoise=5, max_steps=1),
        replace(A, canvas=4, max_tokens=4, read_only=True),
    ],
    ids=["denoise", "max_steps", "read_only"],
)
def test_what_brings_the_canvas_a_step_forward(request_: Request) -> None:
    assert play(request_, steps=4) == [[], [], [], TOKENS[:4]]


def early(step: int, sent: SimpleNamespace) -> None:
    """Schedule the canvas with the last piece of the prompt, as decode padding would."""
    if step == 1:
        sent.num_scheduled_tokens["0"] = 6
        sent.total_num_scheduled_tokens = 6
        sent.scheduled_spec_decode_tokens["0"] = CANVAS


def wide(step: int, sent: SimpleNamespace) -> None:
    if step == 2:
        sent.num_scheduled_tokens["0"] = 3
        sent.total_num_scheduled_tokens = 3


@pytest.mark.parametrize(
    ("change", "detail"),
    [(early, "a canvas at 16 of its 18 tokens"), (wide, "3 tokens for 4 of a canvas of 4")],
)
def test_a_canvas_too_early_or_not_whole_breaks_a_rule(
    change: Callable[[int, SimpleNamespace], None], detail: str
) -> None:
    with pytest.raises(BrokenRule) as broken:
        play(change=change)
    assert (broken.value.violation.rule, broken.value.violation.detail) == ("canvas", detail)


def test_a_canvas_wider_than_the_request_asked_for_breaks_a_rule() -> None:
    with pytest.raises(BrokenRule) as broken:
        play(replace(A, canvas=3))
    assert broken.value.violation.detail == "4 tokens for 4 of a canvas of 3"


# -- real engines --------------------------------------------------------------------------------

# The second prompt is cached but for one token when it arrives, while the first denoises.
NEARLY_CACHED = Scenario(
    ENGINE, (Request(0, Prompt(33), 20), Request(1, Prompt(33), 4, arrival=2))
)  # fmt: skip


@pytest.fixture(scope="module")
def pair(shared_home: Home) -> Iterator[Pair]:
    """A correct release and the same with every fault of `grammars`."""
    broken = parse_target(f"0.29.0+{FAULTS}:grammars")
    with Pair(parse_target("0.29.0"), broken, shared_home, print) as started:
        yield started


@pytest.mark.vllm
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_padded_diffusion_request_is_caught_and_an_unpadded_one_is_not(
    pair: Pair, asynchronous: bool
) -> None:
    engine = replace(ENGINE, async_scheduling=asynchronous)
    scenario = replace(NEARLY_CACHED, engine=engine)
    before, after = pair.run(scenario)
    assert before.outcome == "finished", before.violations
    assert {o.request: list(o.tokens) for o in before.outputs} == expected_outputs(scenario)
    assert after.violations[0].rule == "canvas", after.violations


@pytest.mark.vllm
def test_a_canvas_of_its_own_is_unsupported_where_no_release_has_it(pair: Pair) -> None:
    request = Request(0, Prompt(9), 4, canvas=2)
    before, _ = pair.run(Scenario(ENGINE, (request,)))
    assert (before.outcome, before.reason) == ("unsupported", "requests.canvas")
