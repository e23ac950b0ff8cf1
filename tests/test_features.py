"""Features: in range, the same in every process, and different where schedules differ."""

import json
import os
import subprocess
import sys

import pytest
from fabricated import FIRST, OTHER, SECOND, SMALL, step, trace
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from schedfuzz.corpus.scenario import Engine, Scenario
from schedfuzz.corpus.trace import Scheduled, Step, Trace
from schedfuzz.fuzzer.features import FIRST_HASHED, MAP_SIZE, SITES, features

small = st.integers(0, 70)
few = st.lists(small, max_size=2).map(tuple)
paths = st.sampled_from(("new", "running", "resumed"))
shares = st.builds(Scheduled, small, paths, small, small, small, small, small)
steps = st.builds(
    Step, small, st.lists(shares, max_size=3).map(tuple), few, few, st.just(()), small, small,
    small, st.lists(st.just("reset"), max_size=1).map(tuple),
)  # fmt: skip
traces = st.builds(Trace, st.just("finished"), st.lists(steps, max_size=4).map(tuple))
SHARE = Scheduled(0, "running", 20, 1, 0, 2, 1)
DRAFTS = replace(SMALL, engine=Engine(64, 8, num_speculative_tokens=2))


def of(*shares: Scheduled, scenario: Scenario = SMALL, **fields: object) -> set[int]:
    """Return the features of both sides running one step alike."""
    run = trace(step(0, *shares, **fields))
    return features(scenario, run, run)


@settings(max_examples=200)
@given(traces, traces, st.booleans())
def test_every_feature_is_in_its_range(before: Trace, after: Trace, same: bool) -> None:
    found = features(SMALL, before, before if same else after)
    assert all(FIRST_HASHED <= feature < MAP_SIZE for feature in found)
    assert bool(found) == bool(before.steps or (not same and after.steps))


def test_hashed_features_come_after_the_sites_of_both_sides() -> None:
    assert FIRST_HASHED == 1 + 2 * SITES < MAP_SIZE


SCRIPT = """
import json
from fabricated import FIRST, OTHER, SECOND, SMALL, trace
from schedfuzz.fuzzer.features import features
print(json.dumps(sorted(features(SMALL, trace(FIRST, SECOND), trace(FIRST, OTHER)))))
"""


def test_the_same_traces_give_the_same_features_in_every_process() -> None:
    here = sorted(features(SMALL, trace(FIRST, SECOND), trace(FIRST, OTHER)))
    for seed in ("0", "1", "random"):
        environment = {
            **os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.path.dirname(__file__)
        }  # fmt: skip
        answer = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        assert json.loads(answer.stdout) == here


@settings(max_examples=50)
@given(traces, traces)
def test_numbers_that_say_nothing_of_the_shape_are_no_features(before: Trace, after: Trace) -> None:
    """Ids, step numbers, coverage and outputs differ from run to run of like scenarios."""

    def renamed(run: Trace) -> Trace:
        return replace(
            run,
            steps=tuple(
                replace(
                    item, index=item.index + 5,
                    scheduled=tuple(replace(s, request=s.request + 9) for s in item.scheduled),
                )
                for item in run.steps
            ),
            coverage=b"\1\1", reason="other",
        )  # fmt: skip

    found = features(SMALL, before, after)
    assert features(SMALL, renamed(before), renamed(after)) == found


@pytest.mark.parametrize(
    "other",
    [
        replace(SHARE, path="new"),
        replace(SHARE, path="resumed"),
        replace(SHARE, tokens=2),
        replace(SHARE, tokens=17),
        replace(SHARE, sampled=0),
        replace(SHARE, start=16),  # a block's first token
        replace(SHARE, start=30),  # its last one
        replace(SHARE, start=31),
        replace(SHARE, start=62),  # one token from max_model_len
        replace(SHARE, start=63),
    ],
)
def test_a_share_at_an_edge_is_another_feature(other: Scheduled) -> None:
    assert of(other) != of(SHARE)


def test_the_distance_to_the_limit_counts_within_a_draft_window() -> None:
    ends = [replace(SHARE, start=64 - room - 1) for room in (20, 5, 4, 3, 2, 1, 0, -1)]
    distances = [of(end, scenario=DRAFTS) for end in ends]
    near = {frozenset(found) for found in distances[3:]}
    assert len(near) == len(distances[3:])
    # Block positions differ too; far from the limit the distance itself says nothing more.
    assert of(replace(SHARE, start=20), scenario=DRAFTS) == of(
        replace(SHARE, start=21), scenario=DRAFTS
    )


@pytest.mark.parametrize("sampled", [1, 2, 3])
def test_how_drafts_fared_is_a_feature(sampled: int) -> None:
    drafted = replace(SHARE, tokens=3, drafts=2)
    others = [replace(drafted, sampled=count) for count in (0, 1, 2, 3) if count != sampled]
    mine = of(replace(drafted, sampled=sampled), scenario=DRAFTS)
    assert all(of(other, scenario=DRAFTS) != mine for other in others)


@pytest.mark.parametrize(
    "fields",
    [
        {"preempted": (0,)}, {"finished": (0,)}, {"events": ("reset",)}, {"waiting": 1},
        {"running": 8}, {"free_blocks": 1}, {"free_blocks": 0},
    ],
)  # fmt: skip
def test_pressure_and_what_met_in_a_step_are_features(fields: dict[str, object]) -> None:
    assert of(SHARE, **fields) != of(SHARE)


def test_async_scheduling_is_another_world() -> None:
    scenario = replace(SMALL, engine=replace(SMALL.engine, async_scheduling=True))
    assert not of(SHARE, scenario=scenario) >= of(SHARE)


def test_what_came_before_is_a_feature() -> None:
    resumed = step(0, replace(SHARE, path="resumed"))
    plain = step(0, SHARE)
    one, two = trace(plain, plain, resumed), trace(plain, resumed, plain)
    assert features(SMALL, one, one) != features(SMALL, two, two)


def test_the_parting_of_the_sides_is_a_feature_of_the_pair() -> None:
    one, two = trace(FIRST, SECOND), trace(FIRST, step(1, preempted=(0,)))
    alone = features(SMALL, one, one) | features(SMALL, two, two)
    pair = features(SMALL, one, two)
    assert pair > alone and len(pair) == len(alone) + 1
    assert features(SMALL, two, one) != pair


def test_a_side_that_only_ends_early_parts_too() -> None:
    assert features(SMALL, trace(FIRST, SECOND), trace(FIRST)) > features(
        SMALL, trace(FIRST, SECOND), trace(FIRST, SECOND)
    )
