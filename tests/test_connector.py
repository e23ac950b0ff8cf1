"""The scripted KV connector: its own checks, and a correct and a broken scheduler at its hands."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.connector import SEATS
from msgspec.structs import replace
from outputs import new, output

from schedfuzz.corpus.events import Abort
from schedfuzz.corpus.parts import Connector, External
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.tokens import mix
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.target.faults import BrokenRule
from schedfuzz.workers.target.handoffs import Handoffs
from schedfuzz.workers.target.loads import Loads
from schedfuzz.workers.target.runner_v1 import V1Runner
from schedfuzz.workers.target.transfers import Contents, Handoff, Load
from schedfuzz.workers.targets import parse_target

RELEASE = "0.29.0"
FAULTS = Path(__file__).parent / "faults" / "connector.py"
ENGINE = Engine(64, 12, connector=Connector())
ASYNC_LOAD = External(32, load_async=True, steps=2)
LOADED = Request(0, Prompt(40), 4, external=ASYNC_LOAD)
SENT = Request(1, Prompt(20, 1), 1, external=External(send_steps=2))


def runner(*requests: Request) -> V1Runner:
    made = V1Runner(ENGINE)
    made.requests = {str(request.id): request for request in requests}
    return made


def load(blocks: list[int], start: int = 0, end: int = 32, is_async: bool = True) -> Load:
    return Load("0", (blocks,), start, end, is_async, True)


def broken(error: pytest.ExceptionInfo[BrokenRule]) -> str:
    return error.value.violation.rule


# -- loads ----------------------------------------------------------------------------


def test_a_load_arrives_after_its_steps_in_the_blocks_it_was_given() -> None:
    made = runner(LOADED)
    known = Contents(made)
    loads = Loads(made, known)
    loads.start(load([1, 2]), 5, [{3}])
    loads.check_zeroing({3, 4})
    assert loads.complete(6, True) == (set(), set())
    assert loads.complete(7, True) == ({"0"}, set())
    assert (loads.pending, loads.invalid) == ({}, set())
    # What was loaded is what the request attends to.
    made.execute(output({0: 8}, new(LOADED, [1, 2, 3], 32)))
    assert made.happened == ["load 0: 0..31", "load 0 complete"]


@pytest.mark.parametrize("blocks", ([1], [1, 2, 3]))
def test_an_async_load_with_other_blocks_than_its_tokens_need(blocks: list[int]) -> None:
    made = runner(LOADED)
    with pytest.raises(BrokenRule) as error:
        Loads(made, Contents(made)).start(load(blocks), 1, [])
    assert broken(error) == "load-blocks"


def test_a_sync_load_also_has_blocks_for_what_is_computed() -> None:
    made = runner(replace(LOADED, external=External(32)))
    loads = Loads(made, Contents(made))
    loads.start(load([1, 2, 3], is_async=False), 1, [{1}])
    assert loads.pending == {}


def test_an_async_load_into_what_a_step_in_flight_uses() -> None:
    made = runner(LOADED)
    with pytest.raises(BrokenRule) as error:
        Loads(made, Contents(made)).start(load([1, 2]), 1, [{7}, {2}])
    assert broken(error) == "load-into-used-block"


def test_a_local_hit_before_the_load_may_be_in_use() -> None:
    made = runner(LOADED)
    Loads(made, Contents(made)).start(load([1, 2], start=16), 1, [{1}])


def test_zeroing_under_a_load() -> None:
    made = runner(LOADED)
    loads = Loads(made, Contents(made))
    loads.start(load([1, 2]), 1, [])
    with pytest.raises(BrokenRule) as error:
        loads.check_zeroing({2})
    assert broken(error) == "load-zeroed"


def test_somebody_writes_to_a_block_under_load() -> None:
    made = runner(LOADED)
    loads = Loads(made, Contents(made))
    loads.start(load([1, 2]), 1, [])
    made.kv.receive([[2]], [5] * 16, 0, 16, False)
    with pytest.raises(BrokenRule) as error:
        loads.complete(3, True)
    assert broken(error) == "load-overwritten"
    assert "position 16 changed" in error.value.violation.detail


def test_blocks_that_fail_are_reported_with_the_load_and_only_the_first_time() -> None:
    made = runner(replace(LOADED, external=replace(ASYNC_LOAD, failed_blocks=(1, 7))))
    loads = Loads(made, Contents(made))
    loads.start(load([1, 2]), 1, [])
    assert loads.complete(3, True) == ({"0"}, set())
    assert loads.invalid == {2}
    loads.invalid = set()
    loads.start(load([3, 4])._replace(is_first=False), 4, [])
    loads.complete(6, True)
    assert loads.invalid == set()


@pytest.mark.parametrize("reports", (True, False))
def test_a_reception_fails_as_a_whole(reports: bool) -> None:
    made = runner(replace(LOADED, external=replace(ASYNC_LOAD, fails=True)))
    loads = Loads(made, Contents(made))
    loads.start(load([1, 2]), 1, [])
    assert loads.complete(3, reports) == ({"0"}, {"0"} if reports else set())
    assert loads.invalid == (set() if reports else {1, 2})


# -- handoffs ----------------------------------------------------------------------------


def handed(blocks: list[int], computed: int = 20, tokens: int = 21) -> Handoff:
    return Handoff("1", (blocks,), computed, tokens, True)


def finished() -> tuple[V1Runner, Handoffs]:
    """Return a runner in which request 1 has run to its end in blocks 1 and 2."""
    made = runner(SENT)
    known = Contents(made)
    made.execute(output({1: 20}, new(SENT, [1, 2, 3])))
    made.sample(None)
    known.states = dict(made.states)
    return made, Handoffs(made, known)


def test_a_handoff_is_sent_after_its_steps() -> None:
    made, handoffs = finished()
    handoffs.take(handed([1, 2]), 1)
    assert handoffs.complete(2) == set()
    assert handoffs.complete(3) == {"1"}
    assert made.happened == ["send 1", "send 1 complete"]


@pytest.mark.parametrize(
    ("blocks", "computed"), (([1, 2, 3], 20), ([1], 20), ([], 0)), ids=("more", "fewer", "none")
)
def test_a_handoff_of_other_blocks_than_those_of_computed_tokens(
    blocks: list[int], computed: int
) -> None:
    _, handoffs = finished()
    with pytest.raises(BrokenRule) as error:
        handoffs.take(handed(blocks, computed), 1)
    assert broken(error) == "handoff-blocks"


def test_what_is_not_sent_may_be_short() -> None:
    _, handoffs = finished()
    handoffs.take(handed([], 0)._replace(kept=False), 1)
    assert handoffs.pending == {}


@pytest.mark.parametrize("late", (False, True))
def test_a_handoff_of_other_content(late: bool) -> None:
    made, handoffs = finished()
    if late:
        handoffs.take(handed([1, 2]), 1)
    made.kv.receive([[2]], [mix(1, 2)] * 16, 0, 16, False)
    with pytest.raises(BrokenRule) as error:
        handoffs.take(handed([1, 2]), 1)
        handoffs.complete(3)
    assert broken(error) == "handoff-content"


# -- the real thing ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(shared_home: Home) -> Iterator[Pair]:
    """A correct release and the same with every fault of `connector`."""
    faulty = parse_target(f"{RELEASE}+{FAULTS}:connector")
    with Pair(parse_target(RELEASE), faulty, shared_home, print) as started:
        yield started


def loading(number: int, arrival: int = 0, **script: object) -> Request:
    external = External(32, load_async=True, **script)  # type: ignore[arg-type]
    return Request(number, Prompt(40, number), 4, arrival, external=external)


PLAIN = Request(9, Prompt(40, 9), 8)
CASES: dict[str, Scenario] = {
    "load-blocks": Scenario(replace(ENGINE, num_speculative_tokens=3), (loading(0),)),
    "load-announced": Scenario(ENGINE, (replace(LOADED, external=External(32)),)),
    "load-zeroed": Scenario(ENGINE, (loading(0, steps=3),)),
    "load-into-used-block": Scenario(
        replace(ENGINE, num_blocks=5, async_scheduling=True),
        (loading(0, 3), replace(PLAIN, id=1)),
        (Abort(2, 1, in_flight=True),),
    ),
    "load-overwritten": Scenario(
        replace(ENGINE, num_blocks=5), (loading(0, steps=4), replace(PLAIN, arrival=1))
    ),
    "failed-load-delivered": Scenario(
        ENGINE, (replace(LOADED, external=External(32, failed_blocks=(1,))),)
    ),
    "handoff-blocks": Scenario(
        replace(ENGINE, num_speculative_tokens=4),
        (Request(0, Prompt(30), 1, external=External(send_steps=1)),),
    ),
    "handoff-content": Scenario(
        replace(ENGINE, num_blocks=5),
        (Request(0, Prompt(40), 1, external=External(send_steps=9)), replace(PLAIN, arrival=3)),
    ),
    "store-overwritten": Scenario(
        Engine(64, 5, connector=Connector("offloading", offload_blocks=16, store_steps=9)),
        (Request(0, Prompt(40), 1), replace(PLAIN, arrival=2)),
    ),
    "requests-left": Scenario(
        ENGINE, (Request(0, Prompt(20), 1, external=External(send_steps=3)),)
    ),
}


@pytest.mark.vllm
@pytest.mark.parametrize("rule", CASES)
def test_a_broken_scheduler_is_caught_and_a_correct_one_is_not(pair: Pair, rule: str) -> None:
    case = CASES[rule]
    engine = replace(case.engine, max_num_seqs=SEATS[rule])
    before, after = pair.run(replace(case, engine=engine))
    assert before.outcome == "finished", before
    assert after.violations[0].rule == rule, after
