"""What people decide about findings: each has an inverse and an audit row, on both dialects."""

from datetime import UTC, datetime, timedelta

import pytest
from found import list_findings
from test_db import PAIR, hunt, record, scenario, verdict

from schedfuzz.corpus.errors import InputError
from schedfuzz.db import decisions, finding_lists, muting, queries, rows, splitting, writes
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding

pytest_plugins = ["postgres"]
LATER = datetime.now(UTC) + timedelta(days=3)


@pytest.fixture
def filled(store: Store) -> Store:
    one = hunt(store)
    for name in "abc":
        record(store, one, verdict(name), scenario())
    return store


def status(store: Store, number: int = 1) -> str:
    return queries.get_finding(store, number).status


DECISIONS = {
    "reported": lambda store: decisions.report(store, 1, "ann", "PR 5"),
    "fixed-in": lambda store: decisions.resolve(store, 1, "0.31.0", "ann", "PR 5"),
    "verified": lambda store: decisions.verified(store, 1, "0.31.0", "ann", "PR 5"),
    "invalid": lambda store: decisions.invalidate(store, 1, "ann", "PR 5"),
    "muted": lambda store: decisions.mute(store, 1, LATER, "ann", "PR 5"),
    "dup": lambda store: decisions.duplicate(store, 1, 2, "ann", "PR 5"),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_is_audited_outlives_machines_and_is_taken_back(
    filled: Store, name: str
) -> None:
    before = {
        column: getattr(queries.get_finding(filled, 1), column) for column in decisions.COLUMNS
    }
    DECISIONS[name](filled)
    writes.record_confirmation(filled, 1, 3, 3)
    assert status(filled) == name
    decisions.reopen(filled, 1, "bob", "not so")
    row = queries.get_finding(filled, 1)
    after = {column: getattr(row, column) for column in decisions.COLUMNS}
    assert after == before | {"status": "confirmed"}
    first, second = decisions.history(filled, 1)
    assert (first.actor, first.note, first.became["status"]) == ("ann", "PR 5", name)
    assert (second.verb, second.actor, second.was["status"]) == ("reopen", "bob", name)


def test_nothing_decided_is_nothing_to_take_back(filled: Store) -> None:
    with pytest.raises(InputError, match="nothing was decided"):
        decisions.reopen(filled, 1, "bob")
    assert decisions.history(filled) == []


def test_a_later_decision_clears_what_the_earlier_left(filled: Store) -> None:
    decisions.mute(filled, 1, LATER, "ann")
    decisions.resolve(filled, 1, "0.31.0", "ann")
    row = queries.get_finding(filled, 1)
    assert (row.muted_until, row.fixed_in) == (None, "0.31.0")


def test_duplicates_form_no_circle_and_no_chain(filled: Store) -> None:
    decisions.duplicate(filled, 1, 2, "ann")
    for number, of in ((2, 1), (2, 2), (3, 1), (2, 3)):
        with pytest.raises(InputError, match="duplicate"):
            decisions.duplicate(filled, number, of, "ann")
    with pytest.raises(InputError, match="not in"):
        decisions.duplicate(filled, 3, 99, "ann")


def test_merged_sightings_are_counted_together_until_taken_apart(filled: Store) -> None:
    record(filled, 1, verdict("a"), scenario())
    decisions.merge(filled, 1, 2, "ann")
    record(filled, 1, verdict("a"), scenario())

    def counts() -> dict[int, int]:
        found = finding_lists.find(filled, finding_lists.Wanted(), "id")
        return {row.id: sightings for row, sightings in found.page}

    assert counts() == {1: 3, 2: 4, 3: 1}
    decisions.reopen(filled, 1, "ann", verb="split")
    assert counts() == {1: 3, 2: 1, 3: 1}


def test_only_a_finding_of_the_pair_takes_another_in(filled: Store) -> None:
    other = writes.start_hunt(filled, "0.29.0", "0.30.0", 1, {})
    number, _ = writes.record_verdict(
        filled, other, "0.29.0", "0.30.0", verdict("a"), scenario(), 3, 1, 1.0
    )
    with pytest.raises(InputError, match="another pair"):
        decisions.merge(filled, 1, number, "ann")
    decisions.duplicate(filled, 1, number, "ann")


def test_a_note_changes_nothing_else(filled: Store) -> None:
    decisions.remark(filled, 1, "seen in\0 production", "ann")
    [row] = decisions.history(filled, 1)
    assert (row.verb, row.note, row.was, row.became) == ("note", "seen in\\x00 production", {}, {})


# -- rules ---------------------------------------------------------------------------------------


def test_a_rule_mutes_what_is_there_and_what_comes(filled: Store) -> None:
    rule, muted = muting.add(filled, {"title": "title of [ad]"}, "ann", "known", LATER, "ann", "5")
    assert (rule, muted, status(filled)) == (1, 1, "muted")
    for name in "de":
        record(filled, 1, verdict(name), scenario())
    assert [row.status for row in list_findings(filled)] == ["muted", "new", "new", "muted", "new"]
    [use] = muting.listed(filled)
    assert (use.muted, use.ever, use.rule.pr) == (2, 2, "5")
    assert muting.remove(filled, rule, "bob") == 2
    assert {row.status for row in list_findings(filled)} == {"new"}
    assert muting.listed(filled) == []
    with pytest.raises(InputError, match="there is none"):
        muting.remove(filled, rule, "bob")


def test_what_a_rule_muted_and_somebody_took_up_counts_as_use(filled: Store) -> None:
    muting.add(filled, {"fingerprint": "a"}, "ann", "known", LATER, "ann")
    muting.add(filled, {"fingerprint": "nothing"}, "ann", "known", LATER, "ann")
    decisions.reopen(filled, 1, "bob")
    assert [(use.muted, use.ever) for use in muting.listed(filled)] == [(0, 1), (0, 0)]


@pytest.mark.parametrize(
    ("match", "until", "word"),
    [({}, LATER, "matches everything"), ({"count": "1"}, LATER, "'count'"),
     ({"title": "*"}, LATER - timedelta(days=30), "has passed")],
)  # fmt: skip
def test_a_rule_that_cannot_be_is_refused(filled: Store, match, until, word) -> None:
    with pytest.raises(InputError, match=word):
        muting.add(filled, match, "ann", "known", until, "ann")
    assert muting.listed(filled) == []


def test_what_rests_wakes_in_time(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    decisions.mute(filled, 1, LATER, "ann")
    muting.add(filled, {"fingerprint": "b"}, "ann", "known", LATER + timedelta(days=1), "ann")
    assert muting.wake(filled) == 0
    monkeypatch.setattr(rows, "now", lambda: LATER)
    assert (muting.wake(filled), status(filled, 1), status(filled, 2)) == (1, "new", "muted")
    monkeypatch.setattr(rows, "now", lambda: LATER + timedelta(days=2))
    assert (muting.wake(filled), status(filled, 2)) == (1, "new")
    record(filled, 1, verdict("z"), scenario())
    assert decisions.history(filled, 1)[-1].verb == "wake"


# -- splits --------------------------------------------------------------------------------------


def test_a_sighting_becomes_a_finding_of_its_own_and_goes_back(filled: Store) -> None:
    for length in (7, 7, 9):
        record(filled, 1, verdict("a"), scenario(length=length))
    seen = queries.list_occurrences(filled, 1)
    assert queries.get_finding(filled, 1).count == 4
    number = splitting.split(filled, 1, seen[1].scenario_id[:6], "ann")
    row, rest = queries.get_finding(filled, number), queries.get_finding(filled, 1)
    assert (row.count, rest.count, row.status) == (2, 2, "new")
    assert row.fingerprint == f"a~{seen[1].scenario_id[:8]}"
    assert row.verdict_fingerprint == rest.verdict_fingerprint == "a"
    assert [item.scenario_id for item in queries.list_occurrences(filled, number)] == [
        seen[1].scenario_id
    ] * 2
    decisions.merge(filled, number, 1, "ann")
    [(_, sightings)] = finding_lists.find(
        filled, finding_lists.Wanted(status=("new",), text="TITLE of a")
    ).page
    assert sightings == 4
    assert [row.verb for row in decisions.history(filled, number)] == ["split", "merge"]


@pytest.mark.parametrize("which", ["", "zzz"])
def test_what_is_no_sighting_is_not_split_off(filled: Store, which: str) -> None:
    with pytest.raises(InputError, match="write one of"):
        splitting.split(filled, 1, which, "ann")


def test_the_best_reproducer_stays(filled: Store) -> None:
    with pytest.raises(InputError, match="needs it itself"):
        splitting.split(filled, 1, queries.get_finding(filled, 1).reproducer_id, "ann")


# -- lists ---------------------------------------------------------------------------------------


def listed(store: Store, *arguments: object, **wanted: object) -> list[int]:
    found = finding_lists.find(store, finding_lists.Wanted(**wanted), *arguments)  # type: ignore[arg-type]
    return [row.id for row, _ in found.page]


def test_a_list_is_sorted_paged_and_leaves_out_what_is_put_aside(filled: Store) -> None:
    record(filled, 1, verdict("d", "regressed", "leak"), scenario(requests=2))
    record(filled, 1, verdict("b"), scenario())
    assert listed(filled) == [4, 1, 2, 3]
    assert listed(filled, "news", True) == [3, 2, 1, 4]
    assert listed(filled, "count") == [2, 1, 3, 4]
    assert listed(filled, "size", True)[0] == 4
    assert listed(filled, "id", False, 2, 2) == [3, 4]
    assert listed(filled, "id", False, 2, 10**9) == []
    decisions.invalidate(filled, 1, "ann")
    decisions.report(filled, 2, "ann")
    assert listed(filled, "id", aside=False) == [2, 3, 4]
    assert listed(filled, "id", aside=False, status=("invalid",)) == [1]
    assert listed(filled, text="itle OF b") == [2]
    assert listed(filled, text="%") == []
    for sort in finding_lists.SORTS:
        assert sorted(listed(filled, sort)) == [1, 2, 3, 4]


def test_rows_of_a_list_have_what_a_reader_wants(filled: Store) -> None:
    found = finding_lists.find(filled, finding_lists.Wanted(before=PAIR[0]), size=1)
    assert found.total == 3 and len(found.page) == 1
    assert isinstance(found.page[0][0], Finding)
