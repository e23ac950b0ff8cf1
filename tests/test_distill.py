"""What distilling a corpus promises: nothing is lost, nothing could be left out."""

from fabricated import FIRST, OTHER, SECOND, SMALL, trace
from hypothesis import given
from hypothesis import strategies as st

from schedfuzz.corpus.trace import Trace
from schedfuzz.fuzzer.distill import Entry, distill, lit

corpora = st.lists(
    st.tuples(st.integers(1, 30), st.integers(0, 2**12 - 1) | st.sampled_from((0, 1, 2, 4))),
    max_size=30,
).map(lambda rows: [Entry(f"e{i}", size, bits) for i, (size, bits) in enumerate(rows)])


def union(entries: list[Entry]) -> int:
    bits = 0
    for entry in entries:
        bits |= entry.features
    return bits


@given(corpora)
def test_no_feature_is_lost_and_no_entry_is_superfluous(entries: list[Entry]) -> None:
    kept = distill(entries)
    assert set(kept) <= set(entries)
    assert union(kept) == union(entries)
    for entry in kept:
        assert union([other for other in kept if other is not entry]) != union(entries)


@given(corpora, st.randoms(use_true_random=False))
def test_the_answer_depends_on_no_order_and_is_final(entries: list[Entry], rng) -> None:
    shuffled = list(entries)
    rng.shuffle(shuffled)
    kept = distill(entries)
    assert distill(shuffled) == kept
    assert distill(kept) == kept


def test_small_entries_stand_in_for_a_large_one() -> None:
    one, two, both = Entry("one", 5, 0b01), Entry("two", 6, 0b10), Entry("both", 50, 0b11)
    assert distill([both, two, one]) == [one, two]


def test_a_small_entry_that_a_needed_large_one_covers_goes() -> None:
    small, large = Entry("small", 5, 0b01), Entry("large", 50, 0b11)
    assert distill([small, large]) == [large]


def test_each_side_and_each_shape_is_a_feature_of_its_own() -> None:
    quiet = trace(FIRST)
    lights = Trace("finished", quiet.steps, quiet.outputs, coverage=b"\1\0\1")
    runs = [
        lit(SMALL, lights, quiet),
        lit(SMALL, quiet, lights),
        lit(SMALL, quiet, trace(FIRST, SECOND)),
        lit(SMALL, quiet, trace(FIRST, OTHER)),
    ]
    base = lit(SMALL, quiet, quiet)
    assert all(run & base == base for run in runs[:2])
    assert len({run & ~base for run in runs} - {0}) == 4
