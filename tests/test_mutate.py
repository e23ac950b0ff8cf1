"""Repair, mutate and crossover: whatever they are given, what they return is valid."""

import statistics
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import scenarios, wild_scenarios

from schedfuzz.corpus import validate as bounds
from schedfuzz.corpus.codec import decode, encode
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.events import Abort, ResetPrefixCache
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.validate import validate
from schedfuzz.fuzzer.draft import Draft, Edit
from schedfuzz.fuzzer.generate import generate
from schedfuzz.fuzzer.mutate import EDITS, crossover, mutate
from schedfuzz.fuzzer.repair import repair

SEED = st.integers(0, 2**32)
STORY = Scenario(
    Engine(66, 12, num_speculative_tokens=1),
    (Request(0, Prompt(33), 6), Request(1, Prompt(20, 1), 4, arrival=3)),
    (Abort(5, 1), ResetPrefixCache(4)),
)


def assert_valid(scenario: Scenario) -> None:
    assert validate(scenario) == scenario
    raw = encode(scenario)
    assert encode(decode(raw)) == raw


@given(wild_scenarios())
def test_repair_makes_anything_valid_and_is_idempotent(scenario: Scenario) -> None:
    fixed = repair(scenario)
    assert_valid(fixed)
    assert repair(fixed) == fixed
    assert encode(repair(fixed)) == encode(fixed)


@given(scenarios())
def test_repair_leaves_valid_scenarios_alone(scenario: Scenario) -> None:
    assert repair(scenario) == scenario


@given(scenarios(), st.randoms(use_true_random=False))
def test_repair_puts_requests_and_events_into_canonical_order(
    scenario: Scenario, random: Random
) -> None:
    requests, events = list(scenario.requests), list(scenario.events)
    random.shuffle(requests)
    random.shuffle(events)
    shuffled = msgspec.structs.replace(scenario, requests=tuple(requests), events=tuple(events))
    assert encode(repair(shuffled)) == encode(scenario)


@pytest.mark.parametrize(
    "field, least, most",
    [
        ("id", 0, bounds.MAX_ID),
        ("priority", -bounds.MAX_PRIORITY, bounds.MAX_PRIORITY),
        ("family", 0, bounds.MAX_FAMILY),
        ("accept", 0, bounds.MAX_ACCEPTED),
    ],
)
def test_the_bounds_of_repair_are_those_of_validation(field: str, least: int, most: int) -> None:
    def story(value: int) -> Scenario:
        request = Request(3, Prompt(5), 2)
        if field == "family":
            request = msgspec.structs.replace(request, prompt=Prompt(5, value))
        else:
            whole = (value,) if field == "accept" else value
            request = msgspec.structs.replace(request, **{field: whole})
        return Scenario(Engine(40, 9), (request,))

    for value, outside in ((least, least - 1), (most, most + 1)):
        validate(story(value))
        with pytest.raises(InputError):
            validate(story(outside))
        assert repair(story(outside)) == story(value)


def test_repair_gives_doubled_ids_the_lowest_free_ones() -> None:
    doubled = tuple(Request(number, Prompt(5), 2) for number in (0, 0, 1, 0))
    assert [request.id for request in repair(Scenario(Engine(40, 9), doubled)).requests] == [
        0, 1, 2, 3,
    ]  # fmt: skip


@given(scenarios(most=14), SEED)
def test_mutants_are_valid_and_different(scenario: Scenario, seed: int) -> None:
    mutant = mutate(scenario, Random(seed))
    assert_valid(mutant)
    assert mutant != scenario


@given(scenarios(), scenarios(), SEED)
def test_crossovers_are_valid_and_keep_the_first_engine(
    one: Scenario, other: Scenario, seed: int
) -> None:
    child = crossover(one, other, Random(seed))
    assert_valid(child)
    assert child.engine == one.engine


@given(scenarios(), scenarios(), SEED)
def test_same_seed_same_result(one: Scenario, other: Scenario, seed: int) -> None:
    assert mutate(one, Random(seed)) == mutate(one, Random(seed))
    assert crossover(one, other, Random(seed)) == crossover(one, other, Random(seed))


@settings(max_examples=25)
@given(scenarios(), SEED)
def test_long_chains_stay_valid_and_bounded(scenario: Scenario, seed: int) -> None:
    rng = Random(seed)
    for _ in range(40):
        scenario = mutate(scenario, rng)
    assert_valid(scenario)
    assert len(scenario.requests) <= 12


@pytest.mark.parametrize("edit", [edit for _, edit in EDITS], ids=lambda edit: edit.__name__)
def test_each_edit_can_change_a_story_and_its_repair_is_valid(edit: Edit) -> None:
    different = 0
    for seed in range(30):
        draft = Draft(STORY)
        edit(draft, Random(seed))
        result = repair(Scenario(draft.engine, tuple(draft.requests), tuple(draft.events)))
        assert_valid(result)
        different += result != STORY
    assert different


def test_most_mutants_keep_the_shape_of_the_engine() -> None:
    rng = Random(5)
    kept = 0
    for _ in range(1000):
        parent = generate(rng)
        child = mutate(parent, rng)
        pool = parent.engine.num_blocks
        kept += msgspec.structs.replace(child.engine, num_blocks=pool) == parent.engine
    assert kept > 600


def test_unguided_chains_do_not_only_grow() -> None:
    sizes = []
    for seed in range(60):
        rng = Random(seed)
        scenario = generate(rng)
        for _ in range(60):
            scenario = mutate(scenario, rng)
        sizes.append(len(scenario.requests))
    assert 3 <= statistics.median(sizes) <= 9
