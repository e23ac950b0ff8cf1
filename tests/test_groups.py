"""KV groups: windows, recurrent states, copies and shared blocks; correct releases, broken ones."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from outputs import cached, new, output

from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.parts import Connector, External, Group
from schedfuzz.corpus.scenario import Engine, Prompt, Request, Scenario
from schedfuzz.corpus.trace import Trace, Violation
from schedfuzz.corpus.validate import validate
from schedfuzz.fuzzer.repair import repair_engine
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.target.checkpoints import Place
from schedfuzz.workers.target.faults import BrokenRule
from schedfuzz.workers.target.rows import Row
from schedfuzz.workers.target.runner_v1 import V1Runner
from schedfuzz.workers.targets import parse_target

RELEASE = "0.31.0"
FAULTS = Path(__file__).parent / "faults" / "groups.py"
FULL, MAMBA = Group("full"), Group("mamba")
HYBRID = Engine(64, 40, block_size=8, groups=(FULL, MAMBA))
DRAFTED = replace(HYBRID, num_speculative_tokens=2)
WINDOW = Engine(64, 40, block_size=8, groups=(Group("sliding_window", 9),))
A = Request(0, Prompt(16), 8)
B = Request(1, Prompt(18, shared=16), 8)  # A's prompt and two tokens
RIGHT = Request(2, Prompt(7), 9, accept=(2,))
OTHER = Request(3, Prompt(16, family=1), 8)


def tables(item: SimpleNamespace, *blocks: list[int]) -> SimpleNamespace:
    """Return the data with a block table for each group."""
    item.block_ids = blocks
    return item


def play(
    engine: Engine, *outputs: SimpleNamespace, zeroes: bool = False, place: Place | None = None
) -> list[Violation]:
    """Run outputs on a V1 runner until a rule breaks; return what broke."""
    runner = V1Runner(engine)
    runner.kv.zeroes = zeroes
    for _, group in runner.kv.recurrent if place is not None else ():
        group.place = place
    runner.requests = {str(request.id): request for request in (A, B, RIGHT, OTHER)}
    try:
        for sent in outputs:
            runner.execute(sent)
            runner.sample(None)
    except BrokenRule as error:
        return [error.violation]
    return runner.noted


# -- the runner on outputs by hand -----------------------------------------------------------------


def two_blocks() -> SimpleNamespace:
    """Return A's whole prompt in chunks of one: states after 8 and 16 tokens in blocks 3 and 4."""
    return output({0: 8}, tables(new(A, []), [1], [3]))


def rest() -> SimpleNamespace:
    return output({0: 8}, tables(cached(A, 8, 0, []), [2], [4]))


def test_a_request_resumes_from_the_state_of_its_prefix() -> None:
    hit = output({1: 2}, tables(new(B, [], 16), [1, 2, 5], [0, 4, 6]))
    assert play(HYBRID, two_blocks(), rest(), hit) == []
    deeper = output({1: 2}, tables(new(B, [], 16), [1, 2, 5], [0, 3, 6]))
    (broken,) = play(HYBRID, two_blocks(), rest(), deeper)
    assert (broken.rule, broken.request) == ("kv-content", 1)
    assert broken.detail == (
        "the recurrent state after 16 tokens that it starts from is another prefix's"
    )


def test_a_state_computed_in_the_same_step_is_not_there_yet() -> None:
    both = rest()
    hit = output({1: 2}, tables(new(B, [], 16), [1, 2, 5], [0, 4, 6]))
    both.scheduled_new_reqs = hit.scheduled_new_reqs
    both.num_scheduled_tokens |= hit.num_scheduled_tokens
    both.total_num_scheduled_tokens = 10
    (broken,) = play(HYBRID, two_blocks(), both)
    assert broken.detail == "the recurrent state after 16 tokens that it starts from is nothing"


def test_a_state_needs_its_block_and_one_for_each_draft() -> None:
    for table in ([3], [3, 0]):
        (broken,) = play(HYBRID, output({0: 9}, tables(new(A, []), [1, 2], table)))
        assert broken.rule == "block-table"
    chunk = output({2: 7}, tables(new(RIGHT, []), [1], [3, 4, 5]))
    late = tables(cached(RIGHT, 7, 1, []), [2], [])
    (broken,) = play(DRAFTED, chunk, output({2: 3}, late, drafts={2: [1, 2]}))
    assert broken.detail == "3 blocks for 10 tokens and 2 drafts, 4 needed"


def verified(runner: V1Runner) -> SimpleNamespace:
    """Return the step that verifies what the runner proposed for RIGHT, at positions 7..9."""
    (_, (drafts,)) = runner.proposals() or ([], [[]])
    return output({2: 3}, tables(cached(RIGHT, 7, 1, []), [], [6]), drafts={2: drafts})


def test_accepted_drafts_leave_the_state_at_the_boundary_they_passed() -> None:
    runner = V1Runner(DRAFTED)
    runner.requests = {"2": RIGHT}
    runner.execute(output({2: 7}, tables(new(RIGHT, []), [1, 2], [3, 4, 5])))
    runner.sample(None)
    runner.execute(verified(runner))
    assert len(runner.sample(None)["2"]) == 3
    state, kv = runner.states["2"], runner.kv.groups[1]
    # Position 7 is computed in column 1; the state after 8 tokens is saved in column 0.
    assert kv.content(3) == state.digests[7]
    assert kv.content(6) == state.digests[9]
    assert state.recurrent == (1, 3)  # the running state stands two columns beyond column 1
    (_, (drafts,)) = runner.proposals() or ([], [[]])
    runner.execute(output({2: 3}, tables(cached(RIGHT, 10, 4, []), [], []), drafts={2: drafts}))
    assert runner.noted == []


def test_a_copy_brings_content_of_any_group_and_reads_before_it_writes() -> None:
    hit = output({1: 2}, tables(new(B, [], 16), [1, 9, 5], [0, 7, 6]))
    hit.kv_cache_block_copies = [(2, 9), (4, 7)]
    assert play(HYBRID, two_blocks(), rest(), hit) == []
    hit.kv_cache_block_copies = [(4, 7), (7, 2), (2, 9)]
    (broken,) = play(HYBRID, two_blocks(), rest(), hit)
    assert broken.rule == "block-copy"


def test_a_block_that_another_group_writes_is_lost() -> None:
    stolen = output({3: 8}, tables(new(OTHER, []), [3], [7]))
    (broken,) = play(HYBRID, two_blocks(), stolen, rest())
    assert broken.detail == "the recurrent state after 8 tokens that it starts from is nothing"


def test_bytes_of_a_state_are_zeroed_before_attention_fills_a_part_of_a_block() -> None:
    part = output({3: 5}, tables(new(OTHER, []), [3], [7]))
    whole = output({3: 8}, tables(new(OTHER, []), [3], [7]))
    assert play(HYBRID, two_blocks(), whole, zeroes=True) == []
    (broken,) = play(HYBRID, two_blocks(), part, zeroes=True)
    assert (broken.rule, broken.request) == ("block-zeroed", 3)
    assert play(HYBRID, two_blocks(), part) == []  # a release that needs no zeroing
    part.new_block_ids_to_zero = [3, 7]
    assert play(HYBRID, two_blocks(), part, zeroes=True) == []


def test_a_request_resumes_from_a_state_saved_within_a_chunk() -> None:
    def place(row: Row) -> tuple[int, int] | None:
        return (8, 0) if (row.start, row.end) == (0, 16) else None

    whole = output({0: 16}, tables(new(A, []), [1, 2], [3, 4]))
    for block, held in ((3, []), (4, ["kv-content"])):
        hit = output({1: 10}, tables(new(B, [], 8), [1, 5, 6], [block, 7, 8]))
        broken = play(HYBRID, whole, hit, place=place)
        assert [violation.rule for violation in broken] == held
    hit = output({1: 10}, tables(new(B, [], 8), [1, 5, 6], [3, 7, 8]))
    (lacking,) = play(HYBRID, whole, hit)
    assert lacking.detail.endswith("that it starts from is nothing")


def test_a_window_needs_what_it_sees_and_nothing_before() -> None:
    first = output({1: 16}, tables(new(B, []), [1, 2]))
    seen = tables(cached(B, 16, 0, []), [4])
    assert play(WINDOW, first, output({1: 2}, seen)) == []
    for hole, rules in ((0, []), (1, ["block-table"])):
        table = [1, 2, 4]
        table[hole] = 0
        again = output({1: 2}, tables(cached(B, 16, 0, [], resumed=True), table))
        assert [broken.rule for broken in play(WINDOW, first, again)] == rules


def test_common_blocks_are_judged_as_far_as_all_have_computed_them() -> None:
    first = output({0: 16, 3: 16}, tables(new(A, []), [1, 2]), tables(new(OTHER, []), [5, 6]))
    plain = replace(WINDOW, groups=(), max_num_batched_tokens=64)
    for count, rules in ((0, []), (1, ["common-prefix"])):
        decode = output({0: 1, 3: 1}, tables(cached(A, 16, 1, []), [3]),
                        tables(cached(OTHER, 16, 1, []), [7]))  # fmt: skip
        decode.num_common_prefix_blocks = [count]
        assert [broken.rule for broken in play(plain, first, decode)] == rules
    first.num_common_prefix_blocks = [2]
    assert play(plain, first) == []


# -- the language ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ((FULL, FULL), "vLLM would merge them"),
        ((FULL, FULL, MAMBA, MAMBA), "vLLM would merge them"),
        ((Group("sliding_window"),), "a sliding_window group has a window"),
        ((Group("full", 3),), "others have none"),
    ],
)
def test_groups_that_no_engine_has_are_refused(groups: tuple[Group, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        validate(Scenario(Engine(64, 60, groups=groups), (A,)))


@pytest.mark.parametrize(
    ("field", "value", "groups"),
    [
        ("prefix_cache_retention_interval", 8, (FULL, MAMBA)),  # half a block
        ("prefix_cache_retention_interval", None, ()),
        ("prefill_checkpoint_alignment", 1, (FULL,)),
        ("mamba_shared_prefix_checkpoint", True, (FULL, MAMBA)),  # no prefix_match_unit
        ("max_num_active_seqs", 9, ()),
    ],
)
def test_options_of_states_that_no_engine_has_are_refused(
    field: str, value: object, groups: tuple[Group, ...]
) -> None:
    engine = replace(Engine(64, 60, groups=groups), **{field: value})
    with pytest.raises(InputError, match=f"engine.{field}"):
        validate(Scenario(engine, (A,)))
    assert validate(Scenario(repair_engine(engine), (A,)))


# -- real releases ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(shared_home: Home) -> Iterator[Pair]:
    """A correct release and the same with every fault of `groups`."""
    broken = parse_target(f"{RELEASE}+{FAULTS}:groups")
    with Pair(parse_target(RELEASE), broken, shared_home, print) as started:
        yield started


def rules(trace: Trace) -> list[str]:
    return [violation.rule for violation in trace.violations]


def several(prompt: Prompt, outputs: int, *arrivals: int) -> tuple[Request, ...]:
    return tuple(Request(n, prompt, outputs, at) for n, at in enumerate(arrivals))


SLIDING = Engine(128, 30, groups=(FULL, Group("sliding_window", 21)))
CASES = {
    "window let go": (
        "kv-content",
        Scenario(SLIDING, (Request(0, Prompt(50), 30), *(
            Request(n, Prompt(40, n), 4, 2 * n) for n in range(1, 8)))),
    ),
    "state of the same step": (
        "kv-content",
        Scenario(replace(HYBRID, max_num_batched_tokens=64), several(Prompt(17), 2, 0, 0)),
    ),
    "lost copies": (
        "kv-content",
        Scenario(
            Engine(123, 40, groups=(FULL, MAMBA), prefix_match_unit=4),
            several(Prompt(29), 8, 0, 6),
        ),
    ),
    "not zeroed": (
        "block-zeroed",
        Scenario(Engine(122, 24, groups=(FULL, MAMBA)), several(Prompt(100), 8, 0, 12)[:1] + (
            Request(1, Prompt(120, 1), 1, 12), Request(2, Prompt(100, 2), 8, 14))),
    ),
    "not in common": (
        "common-prefix",
        Scenario(Engine(128, 30, block_size=32), (
            Request(0, Prompt(40), 8), Request(1, Prompt(50, 1), 8))),
    ),
}  # fmt: skip


@pytest.mark.vllm
@pytest.mark.parametrize("name", CASES)
def test_a_broken_release_is_caught_and_a_correct_one_is_not(pair: Pair, name: str) -> None:
    rule, scenario = CASES[name]
    before, after = pair.run(validate(scenario))
    assert before.outcome == "finished", before
    assert rules(after) == [rule], after


# Faults that were real: releases before and after, the rule, a story that shows it.
REAL = {
    "window-of-a-step-in-flight": (
        "0.25.1", "0.26.0", "kv-content",
        Scenario(
            Engine(
                25, 15, max_num_seqs=3, async_scheduling=True, num_speculative_tokens=1,
                groups=(FULL, Group("sliding_window", 1), Group("sliding_window", 1)),
            ),
            (
                Request(0, Prompt(24, 41), 1),
                Request(2, Prompt(4, 1), 4, 1),
                Request(3, Prompt(22, 2), 3, 2),
                Request(4, Prompt(14, 3), 7),
            ),
        ),
    ),
    "load-beyond-the-state": (
        "0.27.1", "0.28.0", "kv-content",
        Scenario(
            Engine(128, 60, groups=(FULL, MAMBA), connector=Connector()),
            (
                Request(0, Prompt(65), 2),
                Request(1, Prompt(60, shared=40), 6, 5,
                        external=External(48, load_async=True, steps=1)),
            ),
        ),
    ),
    "drafts-of-a-row-cut-at-a-boundary": (
        "0.28.0", "0.29.0", "misplaced-sample",
        Scenario(
            Engine(
                64, 40, num_speculative_tokens=5, groups=(FULL, MAMBA), prefix_match_unit=4
            ),
            (
                Request(0, Prompt(13), 2),
                Request(1, Prompt(5, 2), 20),
                Request(2, Prompt(13), 6, 5),
            ),
        ),
    ),
}  # fmt: skip


@pytest.mark.vllm
@pytest.mark.parametrize("key", REAL)
def test_a_real_fault_shows_on_the_release_that_has_it(shared_home: Home, key: str) -> None:
    older, newer, rule, scenario = REAL[key]
    with Pair(parse_target(older), parse_target(newer), shared_home, print) as started:
        before, after = started.run(validate(scenario))
    assert rules(before) == [rule], before
    assert after.outcome == "finished", after
