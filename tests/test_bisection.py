"""The search for a commit finds it from runs that miss, and says how sure it is."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedfuzz.fuzzer.bisection import Search, reliability


def find(
    count: int, change: int, rate: float, rng: random.Random, shows_in_new: bool = True,
    broken: frozenset[int] = frozenset(),
) -> tuple[range, float, int]:  # fmt: skip
    search = Search(count, rate, shows_in_new)
    visits = 0
    while (index := search.next(0.99)) is not None:
        visits += 1
        assert visits < 20 * count + 100
        if index in broken:
            search.skip(index)
            continue
        there = (index >= change) == shows_in_new
        runs = hits = 0
        while runs < search.runs and not hits:
            runs += 1
            hits += there and rng.random() < rate
        search.saw(index, runs, hits)
    return *search.answer(), visits


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 300), st.data())
def test_a_bug_that_always_shows_is_found_by_halving(count: int, data: st.DataObject) -> None:
    change = data.draw(st.integers(0, count - 1))
    group, sure, visits = find(count, change, 0.999, random.Random(1), data.draw(st.booleans()))
    assert group == range(change, change + 1)
    assert sure >= 0.99 and visits <= count.bit_length() + 1


@settings(deadline=None, max_examples=100)
@given(st.integers(2, 200), st.data())
def test_commits_that_cannot_be_tried_leave_a_group_around_the_change(count, data) -> None:
    change = data.draw(st.integers(0, count - 1))
    broken = frozenset(data.draw(st.sets(st.integers(0, count - 1), max_size=count)))
    group, sure, _ = find(count, change, 0.999, random.Random(1), broken=broken)
    assert change in group and sure >= 0.99
    # No commit within the group but its last can be tried, or it would have been told apart.
    assert set(group[:-1]) <= broken


@pytest.mark.parametrize("rate", [0.9, 0.7, 0.4])
@pytest.mark.parametrize("shows_in_new", [True, False])
def test_one_that_shows_now_and_then_is_found_as_often_as_is_said(rate, shows_in_new) -> None:
    rng = random.Random(5)
    right = Counter()
    for _ in range(200):
        change = rng.randrange(200)
        group, sure, _ = find(200, change, rate, rng, shows_in_new)
        assert sure >= 0.99
        right[group == range(change, change + 1)] += 1
    assert right[True] >= 195


def test_what_never_shows_stays_open() -> None:
    search = Search(8, reliability(0, 20), True)
    for index in range(7):
        search.saw(index, search.runs, 0)
    assert search.answer()[1] < 0.9


def test_a_false_alarm_is_overruled() -> None:
    search = Search(16, 0.99, True)
    search.saw(3, 1, 1)
    for _ in range(12):
        search.saw(3, 3, 0)
    search.saw(9, 1, 1)
    assert search.answer()[0] != range(1)
    assert sum(search.posterior[4:10]) > 0.9


def test_the_figures_of_a_reliability() -> None:
    assert reliability(20, 20) == pytest.approx(20.5 / 21)
    assert Search(2, 0.7, True).runs == 6
    assert Search(2, 0.0, True).runs == 30
