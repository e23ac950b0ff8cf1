"""Encoder, EC connector, cross attention, adapters: a correct release and a broken one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from schedfuzz.corpus.events import Pause
from schedfuzz.corpus.parts import Group, Image
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.trace import Trace
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.targets import parse_target

pytestmark = pytest.mark.vllm
RELEASE = "0.29.0"
FAULTS = Path(__file__).parent / "faults" / "encoder.py"
PLAIN = Engine(
    128, 40, max_num_batched_tokens=16, prefix_caching=False, encoder_cache_size=24,
    max_num_encoder_input_tokens=24,
)  # fmt: skip
BOTH = Engine(
    96, 40, model="encoder-decoder", chunked_prefill=False, prefix_caching=False,
    encoder_cache_size=48, max_num_encoder_input_tokens=48,
)  # fmt: skip
ADAPTERS = Engine(128, 40, max_loras=1)


@pytest.fixture(scope="module")
def pair(shared_home: Home) -> Iterator[Pair]:
    """A correct release and the same with every fault of `encoder`."""
    broken = parse_target(f"{RELEASE}+{FAULTS}:encoder")
    with Pair(parse_target(RELEASE), broken, shared_home, print) as started:
        yield started


def reader(number: int, *images: tuple[int, int, int], arrival: int = 0) -> Request:
    """Return a request of 40 tokens with images of (offset, length, item)."""
    return Request(number, Prompt(40), 4, arrival, images=tuple(Image(*i) for i in images))


def rules(trace: Trace) -> list[str]:
    return [violation.rule for violation in trace.violations]


CASES = {
    "encoder-missing": Scenario(PLAIN, (reader(0, (4, 8, 901)),)),
    "encoder-budget": Scenario(
        replace(PLAIN, encoder_cache_size=40), (reader(0, (1, 14, 902), (15, 13, 902)),)
    ),
    "encoder-cache": Scenario(
        PLAIN, (reader(0, (4, 20, 903)), reader(1, (4, 20, 1), arrival=6))
    ),
    "encoder-held": Scenario(PLAIN, (reader(0, (10, 12, 904)),)),
    "encoder-left": Scenario(PLAIN, (reader(0, (4, 8, 905)),)),
    "encoder-slots": Scenario(PLAIN, (reader(0, (4, 8, 906)),)),
    "kv-content": Scenario(
        replace(PLAIN, prefix_caching=True),
        (reader(0, (4, 12, 1)), reader(1, (4, 12, 2), arrival=6)),
    ),
    "lora-limit": Scenario(ADAPTERS, (
        Request(0, Prompt(20, 1), 4, lora=1), Request(1, Prompt(20, 2), 4, lora=2),
    )),
}  # fmt: skip


@pytest.mark.parametrize("rule", CASES)
@pytest.mark.parametrize("generation", ["v1", "v2"])
def test_a_broken_encoder_is_caught_and_a_correct_one_is_not(
    pair: Pair, rule: str, generation: str
) -> None:
    scenario = replace(CASES[rule], engine=replace(CASES[rule].engine, model_runner=generation))
    before, after = pair.run(scenario)
    assert before.outcome == "finished", before
    assert rules(after)[:1] == [rule], after


def test_adapters_must_not_share_what_is_cached(pair: Pair) -> None:
    requests = (Request(0, Prompt(40), 4, lora=1), Request(1, Prompt(40), 4, 8, lora=2))
    before, after = pair.run(Scenario(ADAPTERS, requests))
    assert before.outcome == "finished"
    assert rules(after) == ["kv-content"]


def test_cross_attention_needs_the_whole_encoder_input(pair: Pair) -> None:
    requests = (Request(0, Prompt(4), 4, images=(Image(0, 40, 1),)),)
    before, after = pair.run(Scenario(BOTH, requests))
    assert rules(before) == ["encoder-slots"]
    assert rules(after) == ["kv-content"]
    assert after.violations[0].detail == "1 blocks for 40 encoder tokens"


def test_the_budget_of_an_encoder_decoder_model_grows(pair: Pair) -> None:
    """vLLM issue #55733: each decoding step frees the same input again, on every release."""
    (request,) = (Request(0, Prompt(4), 6, images=(Image(0, 10, 1),)),)
    before, _ = pair.run(Scenario(BOTH, (request,)))
    assert rules(before) == ["encoder-slots"]
    assert before.violations[0].detail == "58 slots free of 48"


def test_a_victim_of_the_same_step_leaves_a_picture_that_never_was(pair: Pair) -> None:
    """Open up to 0.32.0: the victim's encoder run is taken back, its cache entry is not."""
    engine = Engine(
        64, 5, policy="priority", long_prefill_token_threshold=16, prefix_caching=False,
        encoder_cache_size=24, max_num_encoder_input_tokens=24,
    )  # fmt: skip
    reads = Request(0, Prompt(60), 2, priority=2, images=(Image(36, 10, 1),))
    before, _ = pair.run(Scenario(engine, (reads, Request(1, Prompt(16, 1), 4, arrival=1))))
    assert before.steps[2].preempted == (0,)
    assert rules(before) == ["encoder-missing"]


def test_a_pause_that_clears_the_caches_empties_the_encoders_too(pair: Pair) -> None:
    engine = replace(PLAIN, max_num_batched_tokens=64)
    readers = (
        Request(0, Prompt(1), 3, images=(Image(0, 1, 1),)),
        Request(1, Prompt(24), 1, images=(Image(0, 24, 2),)),
    )
    for trace in pair.run(Scenario(engine, readers, (Pause(2, clear_cache=True),))):
        assert (trace.outcome, trace.violations) == ("finished", ())


def test_the_ec_connector_is_told_of_what_is_given_up(shared_home: Home) -> None:
    targets = parse_target("0.32.0"), parse_target(f"0.32.0+{FAULTS}:untold")
    picture, plain = Image(1, 10, 1, 0), Image(14, 8, 2)
    scenario = Scenario(
        replace(PLAIN, ec_connector=True), (Request(0, Prompt(40), 6, images=(picture, plain)),)
    )
    with Pair(*targets, shared_home, print) as pair:
        before, after = pair.run(scenario)
    assert before.outcome == "finished", before
    assert rules(after) == ["ec-freed"]


# -- faults that were real -----------------------------------------------------------------------

NARROW = replace(
    PLAIN, prefix_caching=True, groups=(Group("full"), Group("mamba")), encoder_cache_size=20,
    max_num_encoder_input_tokens=20, max_num_batched_tokens=64,
)  # fmt: skip
OUTSIDE = replace(PLAIN, ec_connector=True)
REAL = {
    "align-vs-encoder-cap-livelock": (
        "0.27.1", "0.28.0", "deadlock",
        Scenario(NARROW, (reader(0, (2, 16, 1), (22, 14, 2)),)),
    ),
    "ec-transfer-not-gated-for-running": (
        "0.29.0", "0.30.0", "encoder-missing",
        Scenario(OUTSIDE, (
            Request(0, Prompt(13), 1, images=(Image(1, 10, 1, 0),)),
            Request(1, Prompt(60, 2), 1, 4, images=(Image(1, 20, 2, 0), Image(40, 10, 1, 0))),
        )),
    ),
    "dup-encoder-input-untracked": (
        "0.31.0", "0.32.0", "encoder-held",
        Scenario(PLAIN, (reader(0, (1, 10, 1), (12, 10, 1)),)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("key", REAL)
def test_a_real_fault_shows_on_the_release_that_has_it(shared_home: Home, key: str) -> None:
    older, newer, rule, scenario = REAL[key]
    with Pair(parse_target(older), parse_target(newer), shared_home, print) as started:
        before, after = started.run(scenario)
    assert rules(before) == [rule], before
    assert after.outcome == "finished", after
