"""Generate, motifs and edges: valid, deterministic, short, and near the edges that matter."""

from collections import Counter
from random import Random

import pytest
import toy
from hypothesis import given
from hypothesis import strategies as st
from strategies import engines

from schedfuzz.corpus.codec import decode, encode
from schedfuzz.corpus.events import Abort, ResetPrefixCache
from schedfuzz.corpus.scenario import Engine, Scenario
from schedfuzz.corpus.sizing import blocks_for
from schedfuzz.corpus.validate import validate
from schedfuzz.fuzzer.edges import (
    budget_edges,
    length_edges,
    near,
    output_edges,
    pool_edges,
    window,
)
from schedfuzz.fuzzer.generate import generate
from schedfuzz.fuzzer.motifs import MOTIFS, Motif
from schedfuzz.fuzzer.mutate import mutate
from schedfuzz.fuzzer.repair import repair

SEED = st.integers(0, 2**32)
MANY = 3000


@given(SEED)
def test_generated_scenarios_are_valid(seed: int) -> None:
    scenario = generate(Random(seed))
    assert validate(scenario) == scenario
    assert encode(decode(encode(scenario))) == encode(scenario)
    assert 1 <= len(scenario.requests) <= 10


def test_same_seed_same_scenario() -> None:
    for seed in range(50):
        assert encode(generate(Random(seed))) == encode(generate(Random(seed)))


@pytest.fixture(scope="module")
def sample() -> list[Scenario]:
    rng = Random(1)
    return [generate(rng) for _ in range(MANY)]


def test_typical_scenarios_are_short(sample: list[Scenario]) -> None:
    steps = sorted(map(toy.steps, sample))
    assert steps[MANY // 2] <= 30
    assert steps[MANY * 9 // 10] <= 60
    assert steps[-1] > 100  # the tail of longer ones is there


def test_the_sample_reaches_the_edges(sample: list[Scenario]) -> None:
    """Each property must show in at least one scenario in a hundred."""
    seen = Counter(name for scenario in sample for name in set(_properties(scenario)))
    wanted = {
        "ends at the limit", "one window from the limit", "one token past whole blocks",
        "whole blocks", "pool is an exact fit", "seats saturated", "prompt over the budget",
        "prompt over the threshold", "shared block", "preempting reset", "abort in flight",
        "more wanted than the pool holds", "priorities differ", "mixed accept", "async", "no cache",
        "whole prefill",
    }  # fmt: skip
    rare = {name: seen[name] for name in wanted if seen[name] < MANY // 100}
    assert not rare


def _properties(scenario: Scenario) -> list[str]:
    engine, requests = scenario.engine, scenario.requests
    size, limit, threshold = (
        engine.block_size, engine.max_model_len, engine.long_prefill_token_threshold,
    )  # fmt: skip
    lengths = [request.prompt.length for request in requests]
    arrivals = Counter(request.arrival for request in requests)
    wanted = sum(blocks_for(r.prompt.length + r.max_tokens, size) for r in requests)
    pairs = [(one, other) for one in requests for other in requests if one.id != other.id]
    short_of_limit = limit - window(engine) + 1
    resets = [e for e in scenario.events if isinstance(e, ResetPrefixCache)]
    aborts = [e for e in scenario.events if isinstance(e, Abort)]
    found = {
        "ends at the limit": any(r.prompt.length + r.max_tokens == limit for r in requests),
        "one window from the limit": engine.num_speculative_tokens and short_of_limit in lengths,
        "one token past whole blocks": any(n > size and n % size == 1 for n in lengths),
        "whole blocks": any(n % size == 0 for n in lengths),
        "prompt over the budget": max(lengths) > engine.max_num_batched_tokens,
        "prompt over the threshold": 0 < threshold < max(lengths),
        "pool is an exact fit": engine.num_blocks == blocks_for(limit, size),
        "seats saturated": max(arrivals.values()) > engine.max_num_seqs,
        "shared block": any(toy.agree(one, other) >= size for one, other in pairs),
        "more wanted than the pool holds": wanted > engine.num_blocks - 1,
        "priorities differ": len({request.priority for request in requests}) > 1,
        "mixed accept": any(len(request.accept) > 1 for request in requests),
        "async": engine.async_scheduling,
        "no cache": not engine.prefix_caching,
        "whole prefill": not engine.chunked_prefill,
        "preempting reset": any(event.preempt_running for event in resets),
        "abort in flight": any(event.in_flight for event in aborts),
    }
    return [name for name, there in found.items() if there]


@given(engines(), SEED)
def test_edges_stay_inside_and_near_steps_off_them_by_little(engine: Engine, seed: int) -> None:
    rng, width = Random(seed), window(engine)
    lengths = length_edges(engine)
    assert lengths == sorted(set(lengths))
    assert all(1 <= edge <= engine.max_model_len for edge in lengths)
    assert engine.max_model_len in lengths
    for edges in (lengths, pool_edges(engine), budget_edges(engine)):
        value = near(rng, edges, width)
        assert min(abs(value - edge) for edge in edges) <= max(2, width)
    length = rng.randint(1, engine.max_model_len - 1)
    assert engine.max_model_len - length in output_edges(engine, length)


def test_length_edges_of_a_known_engine() -> None:
    engine = Engine(66, 5, max_num_batched_tokens=40, num_speculative_tokens=2)
    assert {16, 32, 48, 64, 66, 63, 60, 40, 37, 49} <= set(length_edges(engine))


@pytest.mark.parametrize("motif", MOTIFS, ids=lambda motif: motif.__name__)
@given(engine=engines(), seed=SEED, first=st.integers(0, 50), step=st.integers(0, 50))
def test_motifs_compose(motif: Motif, engine: Engine, seed: int, first: int, step: int) -> None:
    requests, events = motif(Random(seed), engine, first, step)
    ids = [request.id for request in requests]
    assert ids == list(range(first, first + len(ids)))
    assert 1 <= len(ids) <= 8
    assert {event.request for event in events if isinstance(event, Abort)} <= set(ids)
    story = Scenario(engine, tuple(requests), tuple(events))
    assert repair(story) == validate(story)


@pytest.mark.parametrize("fault", toy.WITNESSES, ids=lambda fault: fault.__name__)
def test_every_kind_of_toy_fault_is_met_by_chance(fault: toy.Predicate) -> None:
    """Unguided: a fresh scenario and nine mutants of it, 20,000 in all."""
    rng = Random(3)
    met = 0
    for _ in range(2000):
        scenario = generate(rng)
        for _ in range(10):
            met += fault(scenario) is not None
            scenario = mutate(scenario, rng)
    assert met >= 3
