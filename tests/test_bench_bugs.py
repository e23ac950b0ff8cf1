"""Which hunts the bugs bench starts, and what it keeps of each."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schedfuzz.bench import bugs as module
from schedfuzz.bench.bugs import Budget, BugsBench, ledger_plan
from schedfuzz.bench.ledger import Ledger
from schedfuzz.bench.table import Bug
from schedfuzz.corpus.errors import InfraError
from schedfuzz.workers.home import Home, write_file

TOTALS = {"totals": {"executions": 9, "seconds": 3.0, "infra": 0}}


def bug(name: str, before: str, after: str) -> Bug:
    return Bug(name, "a title", "leak", before, after, (), ("m:f",), ("leak",))


BUGS = (
    bug("a", "0.28.0", "0.29.0"), bug("b", "0.28.0", "0.29.0"), bug("c", "0.30.0", "0.31.0"),
)  # fmt: skip


def hit(name: str) -> dict[str, Any]:
    return {"end": name, "found": True, "executions": 5, "seconds": 1.0, "lookalikes": 0,
            "verdict": "fixed", "kind": "leak", "title": "t", "precise": True}  # fmt: skip


def miss(name: str, stopped: bool = False) -> dict[str, Any]:
    return {"end": name, "found": False, "executions": 9, "seconds": 3.0, "lookalikes": 0,
            "stopped": stopped}  # fmt: skip


class FakePair:
    """Takes the place of a pair's processes."""

    broken: tuple[str, ...] = ()

    def __init__(self, before: Any, after: Any, home: Home, say: Any) -> None:
        if before.name in self.broken:
            raise InfraError("it cannot be built")
        self.before = self.after = self
        self.environment = None

    def __enter__(self) -> "FakePair":
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Hunts:
    """The answers of the hunts to come; `pairs` counts what was started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: list[dict[str, Any]]) -> None:
        self.answers = list(answers)
        self.said: list[str] = []
        monkeypatch.setattr(module, "RememberingPair", FakePair)
        monkeypatch.setattr(module, "changed_sites", lambda *_: {"m:f:1"})
        monkeypatch.setattr(module, "in_child", self.child)

    def child(self, *_: object) -> Iterator[dict[str, Any]]:
        yield from self.answers.pop(0)
        yield TOTALS

    def bench(self, home: Home, ledger: Ledger, seeds: int = 1, **options: Any) -> BugsBench:
        stopping = options.get("stopping", lambda: False)
        wanted = options.get("bugs", BUGS)
        return BugsBench(
            wanted, seeds, Budget(60.0, None), ledger, home, self.said.append, stopping
        )


def ledger(path: Path | None = None) -> Ledger:
    return Ledger("bugs", ledger_plan(BUGS, Budget(60.0, None)), path, write_file)


def test_one_hunt_of_a_pair_and_a_seed_is_for_all_its_bugs(home, monkeypatch, tmp_path) -> None:
    hunts = Hunts(
        monkeypatch, [hit("a"), miss("b")], [miss("a"), miss("b")], [hit("c")], [miss("c")]
    )
    book = ledger(tmp_path / "x.json")
    hunts.bench(home, book, seeds=2).run()
    assert not hunts.answers
    found = {(item["bug"], item["seed"]): item["found"] for item in book}
    assert found == {
        ("a", 1): True, ("b", 1): False, ("a", 2): False, ("b", 2): False,
        ("c", 1): True, ("c", 2): False,
    }  # fmt: skip
    assert all("stopped" not in item for item in book)
    hunts.bench(home, ledger(tmp_path / "x.json"), seeds=2).run()  # would need more answers


def test_a_hunt_that_was_stopped_keeps_what_it_found_and_only_that(home, monkeypatch) -> None:
    hunts = Hunts(monkeypatch, [hit("a"), miss("b", stopped=True)])
    book = ledger()
    hunts.bench(home, book, stopping=lambda: bool(list(book))).run()
    assert [item["bug"] for item in book] == ["a"]
    again = Hunts(monkeypatch, [miss("b")], [miss("c")])
    again.bench(home, book).run()
    assert [item["bug"] for item in book] == ["a", "b", "c"]
    assert "0.28.0 0.29.0, seed 1: hunting for b" in again.said


def test_a_hunt_that_dies_leaves_what_it_told(home, monkeypatch) -> None:
    hunts = Hunts(monkeypatch)

    def dying(*_: object) -> Iterator[dict[str, Any]]:
        yield hit("a")
        raise InfraError("a hunt's process ended")

    monkeypatch.setattr(module, "in_child", dying)
    book = ledger()
    with pytest.raises(InfraError, match=r"^0.28.0 0.29.0: a hunt's process ended$"):
        hunts.bench(home, book, bugs=BUGS[:2]).run()
    assert [item["bug"] for item in book] == ["a"]


def test_a_pair_that_cannot_be_run_does_not_keep_others_from_it(home, monkeypatch) -> None:
    hunts = Hunts(monkeypatch, [hit("c")])
    monkeypatch.setattr(FakePair, "broken", ("0.28.0",))
    book = ledger()
    with pytest.raises(InfraError, match=r"^0.28.0 0.29.0: it cannot be built$"):
        hunts.bench(home, book).run()
    assert [item["bug"] for item in book] == ["c"]
