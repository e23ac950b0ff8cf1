"""The passes for what dimensions add: a tree of parts comes down to what the predicate needs."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedfuzz.corpus.events import Abort
from schedfuzz.corpus.parts import Connector, External, Group, Image, Structured, Turn
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.validate import validate
from schedfuzz.fuzzer.minimize import minimize
from schedfuzz.fuzzer.part_passes import get, put

SESSION = Request(
    0, Prompt(9), 4, turns=(Turn(5, 7, 3, stop_at=2), Turn(9, 12, 6, logprobs=True), Turn(11, 3, 2))
)
SCRIPT = External(20, load_async=True, asks_later=2, steps=5, failed_blocks=(0, 1), send_steps=4)
STORIES = {
    "turns": (Engine(64, 20, max_loras=2), (SESSION, Request(1, Prompt(5), 3, lora=1))),
    "images": (
        Engine(64, 20, encoder_cache_size=40, max_num_encoder_input_tokens=40),
        (Request(0, Prompt(30), 4, images=(Image(0, 8), Image(9, 6, 3), Image(20, 9, 4))),),
    ),
    "external": (
        Engine(64, 20, connector=Connector(failure_policy="fail", restores_state=True)),
        (Request(0, Prompt(30), 4, external=SCRIPT), Request(1, Prompt(30), 4, external=SCRIPT)),
    ),
    "structured": (
        Engine(64, 20, reasoning=True, watermark_percent=9),
        (Request(0, Prompt(9), 8, structured=Structured(3, ends_after=6, reasoning_end=2)),),
    ),
    "widths": (
        Engine(64, 20, num_speculative_tokens=3, spec_widths=((1, 1, 3), (2, 4, 2), (5, 9, 1))),
        (Request(0, Prompt(9), 8),),
    ),
    "groups": (
        Engine(64, 40, groups=(Group("full"), Group("sliding_window", 20), Group("full"))),
        (Request(0, Prompt(30), 4),),
    ),
}


def reduced(name: str, interesting: Callable[[Scenario], bool]) -> Scenario:
    engine, requests = STORIES[name]
    scenario = validate(Scenario(engine, requests, (Abort(3, 0),)))
    machine = minimize(scenario, lambda s: 10 if interesting(s) else None)
    assert machine.done
    return machine.best


def test_a_session_keeps_the_one_turn_that_matters() -> None:
    best = reduced("turns", lambda s: any(t.max_tokens > 4 for r in s.requests for t in r.turns))
    assert best.requests == (Request(0, Prompt(1), 1, turns=(Turn(1, 1, 5),)),)
    assert best.engine.max_loras == 0


def test_images_keep_one_of_the_least_length() -> None:
    best = reduced("images", lambda s: any(i.length > 4 for r in s.requests for i in r.images))
    (request,) = best.requests
    assert request.images == (Image(0, 5),)
    assert request.prompt.length == 5


def test_a_connector_script_keeps_what_it_needs() -> None:
    best = reduced(
        "external",
        lambda s: any(r.external is not None and r.external.steps > 1 for r in s.requests),
    )
    (request,) = best.requests
    assert request.external == External(load_async=True, steps=2)
    assert best.engine.connector == Connector()


def test_a_grammar_keeps_what_it_needs() -> None:
    best = reduced(
        "structured",
        lambda s: any(r.structured and r.structured.ends_after for r in s.requests),
    )
    assert best.requests[0].structured == Structured(ends_after=1)
    assert not best.engine.reasoning
    assert best.engine.watermark_percent == 0


def test_groups_lose_members_and_window() -> None:
    best = reduced("groups", lambda s: any(g.kind == "sliding_window" for g in s.engine.groups))
    assert best.engine.groups == (Group("sliding_window", 1),)


def test_rows_of_widths_go_as_a_whole() -> None:
    best = reduced("widths", lambda s: any(row[2] == 2 for row in s.engine.spec_widths))
    assert [row[2] for row in best.engine.spec_widths] == [2]


@pytest.mark.parametrize("name", STORIES)
def test_a_part_that_nobody_needs_goes(name: str) -> None:
    best = reduced(name, lambda s: True)
    assert best == Scenario(best.engine, (Request(0, Prompt(1), 1),))
    assert best.engine.groups == ()
    assert best.engine.connector is None


@given(st.integers(0, 2), st.integers(1, 50))
def test_put_changes_what_get_reads_and_nothing_else(index: int, value: int) -> None:
    path = ("turns", index, "length")
    changed = put(SESSION, path, value)
    assert get(changed, path) == value
    assert put(changed, path, get(SESSION, path)) == SESSION
