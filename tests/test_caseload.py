"""Whose turn it is among a pair's open reductions: the pair's news goes first."""

from pathlib import Path

import pytest
from fabricated import SMALL, FakePair, trace
from test_replays import Book

from schedfuzz.fuzzer import hunt as hunt_module
from schedfuzz.fuzzer.caseload import Caseload
from schedfuzz.fuzzer.hunt import Hunt, Plan, Totals
from schedfuzz.fuzzer.reduction import CONFIRM_RUNS, Reduction

APPEARED = ("changed", "both", "fixed", "both", "regressed", "fixed")


class Left(Book):
    """A recorder with one open reduction of each verdict in APPEARED, numbered from 1."""

    def unfinished(self) -> list[Reduction]:
        return [
            Reduction(number, verdict, "f" * 16, SMALL, 2, self)
            for number, verdict in enumerate(APPEARED, 1)
        ]


def test_the_pairs_news_is_reduced_first_the_oldest_of_it() -> None:
    cases = Caseload(FakePair(trace(), trace()).run, Left())  # type: ignore[arg-type]
    turns = []
    while (chosen := cases.next) is not None:
        turns.append(chosen.finding)
        assert cases.advance()
    # None of them repeats, so each is done when it has been tried so often.
    assert turns == [number for number in (5, 3, 6, 2, 4, 1) for _ in range(CONFIRM_RUNS)]
    assert not cases.advance()


def test_a_closing_hunt_tells_what_is_left_and_how_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, int, int | None]] = []
    clock: list[float] = []

    def tick(totals: Totals) -> None:
        now = totals.next_reduction
        told.append((totals.state, totals.open_reductions, now and now.finding))
        clock.append(totals.closing_seconds)

    monkeypatch.setattr(hunt_module, "TICK_SECONDS", 0.0)
    pair = FakePair(trace(), trace())
    hunt = Hunt(pair.run, Left(), Plan([tmp_path], 1), tick, lambda: False)  # type: ignore[arg-type]
    hunt._close()
    assert told[0] == ("minimizing", 6, 5)
    assert told[CONFIRM_RUNS - 1 : CONFIRM_RUNS + 1] == [("minimizing", 5, 3), ("minimizing", 5, 3)]
    assert told[-1] == ("done", 0, None)
    assert clock == sorted(clock) and clock[0] > 0
