"""What clients want of the sampler: the pure rules, and that no schedule changes their outcome."""

import struct
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schedfuzz.corpus.codec import decode, encode
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.outputs import expected_outputs
from schedfuzz.corpus.parts import Sampling, Structured
from schedfuzz.corpus.sampling import (
    PLAIN,
    Sampler,
    allowed_tokens,
    bad_words,
    logits,
    row,
    truth,
)
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.tokens import STOP, VOCAB, draft, extend_digests, prompt_tokens
from schedfuzz.corpus.validate import MAX_LEN, validate
from schedfuzz.fuzzer.dimensions import active
from schedfuzz.fuzzer.dimensions.sampling import tenants
from schedfuzz.fuzzer.generate import random_engine
from schedfuzz.fuzzer.minimize import minimize
from schedfuzz.fuzzer.repair import repair
from schedfuzz.workers.target.logprobs import Teller
from schedfuzz.workers.target.seam_asks import Spelled

ENGINE = Engine(200, 30)
PLAINLY = Request(0, Prompt(9), 60)
ALL = Sampling(3, 2, 2, 2, 2)
tokens = st.integers(0, VOCAB - 1)
positions = st.integers(0, MAX_LEN - 1)


def said(wishes: Sampling | None, **more: object) -> list[int]:
    """Return the output of a request with these wishes."""
    request = replace(PLAINLY, sampling=wishes, **more)
    return expected_outputs(validate(Scenario(ENGINE, (request,))))[0]


def in_float32(value: float) -> float:
    (found,) = struct.unpack("f", struct.pack("f", value))
    return float(found)


# -- logits and rows -----------------------------------------------------------------------------


@given(tokens, positions)
def test_the_plain_tokens_come_in_cyclic_order_after_the_one_that_is_said(
    plain: int, position: int
) -> None:
    values = logits(plain, plain, position)
    order = sorted(range(len(values)), key=values.__getitem__, reverse=True)[:VOCAB]
    assert order == [(plain + distance) % VOCAB for distance in range(VOCAB)]
    assert max(range(64), key=logits(STOP, plain, position).__getitem__) == STOP


@given(tokens, positions, st.lists(st.tuples(st.booleans(), st.integers(0, 150)), min_size=VOCAB,
                                   max_size=VOCAB))  # fmt: skip
def test_no_penalty_makes_two_tokens_draw_and_float32_holds_all_of_it(
    plain: int, position: int, spoken: list[tuple[bool, int]]
) -> None:
    values = logits(plain, plain, position)[:VOCAB]
    for token, (halved, less) in enumerate(spoken):
        values[token] = values[token] / (1 + halved) - 2 * less
    assert len(set(values)) == VOCAB
    assert [in_float32(value) for value in values] == values


@given(tokens, tokens, st.integers(0, MAX_LEN - 2))
def test_a_row_tells_its_position_and_its_token(token: int, plain: int, position: int) -> None:
    here, next_to_it = (row(token, logits(plain, plain, at)) for at in (position, position + 1))
    assert not here.is_like(next_to_it)
    other = row(token, logits((plain + 1) % VOCAB, (plain + 1) % VOCAB, position))
    assert not here.is_like(other)
    rounded = here._replace(logprob=in_float32(here.logprob), most=in_float32(here.most))
    assert here.is_like(rounded)


def test_rows_add_up_to_certainty_under_a_mask() -> None:
    values, mask = logits(7, 7, 20), 0b1011_0000_0000
    rows = [row(token, values, mask) for token in (8, 9, 11)]
    assert sum(2.718281828459045**found.logprob for found in rows) == pytest.approx(1)
    assert {found.likeliest for found in rows} == {8}


# -- wishes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", range(1, 40))
def test_the_rules_leave_tokens_to_say(rule: int) -> None:
    kept = set(allowed_tokens(rule))
    assert STOP in kept and 8 <= len(kept - {STOP}) < VOCAB
    words = [word for other in range(1, 40) for word in bad_words(other)]
    most = max(Counter(first for first, *last in bad_words(rule) if last).values())
    assert len(bad_words(rule)) <= 128  # vLLM's limit
    assert most + 1 < 4  # every eighth token is allowed
    assert {token for word in words for token in word} == set(range(VOCAB))


def test_outputs_keep_to_what_is_allowed_and_would_not_otherwise() -> None:
    assert set(said(Sampling(allowed=1))) <= set(allowed_tokens(1))
    assert not set(said(None)) <= set(allowed_tokens(1))


def test_bad_words_are_not_said_and_would_be_otherwise() -> None:
    def holds(output: list[int]) -> bool:
        pairs = [tuple(output[at : at + 2]) for at in range(len(output) - 1)]
        found = {(token,) for token in output} | set(pairs)
        return bool(found & set(bad_words(2)))

    assert holds(said(None)) and not holds(said(Sampling(bad_words=2)))


def test_each_penalty_changes_the_output_only_after_something_was_said() -> None:
    plain = said(None)
    for wishes in (Sampling(presence_penalty=2), Sampling(frequency_penalty=2)):
        output = said(wishes)
        first = next(at for at in range(60) if output[at] != plain[at])
        assert plain[first] in plain[:first]
    repeats = [Counter(said(wishes)) for wishes in (None, Sampling(frequency_penalty=2))]
    assert max(repeats[1].values()) < max(repeats[0].values())


def test_a_repetition_penalty_counts_the_prompt() -> None:
    seen = set(prompt_tokens(PLAINLY))
    fresh = set(range(VOCAB)) - seen
    first = said(Sampling(repetition_penalty=2))[: len(fresh)]
    assert set(first) <= fresh and len(set(first)) == len(first)


def test_a_stop_is_said_whatever_is_wanted_but_not_before_the_minimum() -> None:
    output = said(ALL, stop_at=5, min_tokens=9)
    assert output.index(STOP) == 9 == len(output) - 1
    assert set(output) <= set(allowed_tokens(3))


def test_drafts_are_right_as_far_as_the_script_says() -> None:
    request = replace(PLAINLY, sampling=ALL)
    prompt, output = prompt_tokens(request), said(ALL)
    digests: list[int] = []
    extend_digests(digests, prompt + output)
    at = len(prompt) + 3
    found = draft(truth(request, prompt), digests[at], at, (2,), 4, output[:4])
    assert found[:2] == output[4:6] and found[2] != output[6]


def test_a_mask_from_outside_is_kept_even_by_who_wants_nothing() -> None:
    sampler = Sampler(PLAINLY, prompt_tokens(PLAINLY))
    assert sampler.choose(12345, 8, [], 1 << 5 | 1 << STOP) == 5
    assert sampler.choose(12345, 8, [], 1 << STOP) == STOP
    assert sampler.choose(12345, 8, [], PLAIN) == sampler.next(12345, 8, [])


# -- the language --------------------------------------------------------------------------------


def test_wishes_cost_older_scenarios_nothing() -> None:
    scenario = Scenario(ENGINE, (PLAINLY,))
    assert b"sampling" not in encode(scenario)
    wishing = Scenario(ENGINE, (replace(PLAINLY, sampling=ALL),))
    assert decode(encode(wishing)) == wishing


@pytest.mark.parametrize(
    ("wishes", "mended"),
    [
        (Sampling(), None),
        (Sampling(allowed=3), None),
        (Sampling(allowed=3, presence_penalty=9), Sampling(presence_penalty=2)),
    ],
)
def test_of_a_grammar_only_penalties_are_wanted(wishes: Sampling, mended: Sampling | None) -> None:
    request = replace(PLAINLY, structured=Structured(), sampling=wishes)
    with pytest.raises(InputError, match=r"requests\[0\]\.sampling"):
        validate(Scenario(ENGINE, (request,)))
    assert repair(Scenario(ENGINE, (request,))).requests[0].sampling == mended


def test_wishes_are_minimized() -> None:
    wishing = Scenario(ENGINE, (replace(PLAINLY, sampling=ALL),))

    def still(scenario: Scenario) -> int | None:
        return 1 if any(r.sampling and r.sampling.allowed for r in scenario.requests) else None

    assert minimize(wishing, still).best.requests[0].sampling == Sampling(allowed=1)


def test_tenants_of_both_kinds_come_and_go_together() -> None:
    rng = Random(5)
    both = 0
    for _ in range(50):
        engine = random_engine(rng)
        requests, events = tenants(rng, engine, 0, 3)
        story = repair(Scenario(engine, tuple(requests), tuple(events)))
        wanting = [request for request in story.requests if request.sampling]
        both += 0 < len(wanting) < len(story.requests)
        names = {dimension.name for dimension in active(engine, story.requests)}
        assert ("sampling" in names) == bool(wanting)
    assert both > 25


# -- what the targets are given and tell -----------------------------------------------------------


def test_words_spell_their_tokens() -> None:
    assert Spelled().encode(text=" 3 17", add_special_tokens=False) == [3, 17]


def test_a_turn_is_told_the_same_in_one_piece_or_in_many() -> None:
    request = replace(PLAINLY, sampling=ALL)
    prompt, output = prompt_tokens(request), said(ALL)
    whole, parts = Teller(request, prompt), Teller(request, prompt)
    rows = whole.tell(output)
    assert rows == [*parts.tell(output[:4]), *parts.tell(output[4:])]
    assert [found.token for found in rows] == output
    assert [found.token for found in whole.tell_prompt()] == prompt[1:]
