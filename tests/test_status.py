"""What a hunt prints while it closes and at its end, and what of it leaves as a file: no vLLM."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fabricated import SMALL
from msgspec.structs import replace
from rich.console import Console
from test_replays import Book, replays

from schedfuzz.cli import export as export_module
from schedfuzz.cli import session as session_module
from schedfuzz.cli.main import run
from schedfuzz.cli.session import Session
from schedfuzz.cli.status import Status, closing_block
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Verdict
from schedfuzz.db import queries, writes
from schedfuzz.db.connect import Store, open_store
from schedfuzz.db.models import Finding
from schedfuzz.fuzzer.hunt import Totals
from schedfuzz.fuzzer.reduction import Reduction

PAIR = ("0.28.0", "0.29.0")
RESERVED = replace(SMALL, engine=replace(SMALL.engine, watermark_percent=5))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("SCHEDFUZZ_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SCHEDFUZZ_DB", f"sqlite:///{tmp_path / 'db'}")
    return open_store(f"sqlite:///{tmp_path / 'db'}")


def add(
    store: Store, name: str, kind: str, rule: str = "KeyError", scenario: Scenario = SMALL,
    pair: tuple[str, str] = PAIR, component: Any = "scheduler",
) -> Finding:  # fmt: skip
    """Store a finding as a hunt would; return it."""
    hunt = writes.start_hunt(store, *pair, 1, {})
    verdict = Verdict(name, kind, rule, f"{name}{kind}{rule}", "a title", component=component)  # type: ignore[arg-type]
    number, _ = writes.record_verdict(store, hunt, *pair, verdict, scenario, 3, 17, 2.5)
    return queries.get_finding(store, number)


def closed(rows: list[Finding], **totals: Any) -> list[str]:
    """Return the lines of a hunt's end."""
    console = Console(record=True, width=200, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    status = Status(console, " ".join(PAIR), Path("corpus"), 7)
    closing_block(console, status, Totals(state="done", **totals), rows, " ".join(PAIR))
    return console.export_text().splitlines()


# -- the end -------------------------------------------------------------------------------------


def test_the_pairs_news_stands_first_and_is_what_to_look_at(store: Store) -> None:
    rows = [
        add(store, name, kind)
        for name, kind in (
            ("changed", "divergence"), ("both", "crash"), ("fixed", "hang"), ("fixed", "crash"),
        )
    ]  # fmt: skip
    lines = closed(rows)
    table = [line.split()[1] for line in lines if line.startswith("    ")]
    assert table == ["fixed", "fixed", "both", "changed"]
    assert "look closer:  schedfuzz show 3" in lines
    assert "take it home: schedfuzz export 3 --out findings" in lines
    alone = closed([add(store, "fixed", "crash", pair=("0.28.0+x.py:f@0123abcd", "0.29.0"))])
    assert "take it home: schedfuzz show 5 --json > finding-5.json" in alone
    assert not any(line.startswith(("look", "take")) for line in closed([]))


def test_what_a_target_lacks_and_what_it_only_plays_are_told_apart() -> None:
    lines = closed([], left_out=["engine.async_scheduling false", "engine.groups"])
    assert "left out, for one of the targets lacks it: engine.groups" in lines
    kept = "kept to engine.async_scheduling = false, for one of the targets plays nothing else"
    assert kept in lines
    assert not any("lacks" in line for line in closed([], left_out=["engine.block_size 32"]))


def test_a_closing_line_says_what_moves() -> None:
    reduction = Reduction(3, "fixed", "f" * 16, SMALL, 2, Book(), calls_before=117)
    totals = Totals(
        state="minimizing", seconds=60.0, closing_seconds=12.3, open_reductions=4,
        next_reduction=reduction, verdicts={"both": 1, "fixed": 4},
    )  # fmt: skip
    line = Status(Console(), "", Path("corpus"), 7).line(totals)
    assert line == (
        "minimizing 12 s  4 left, finding 3: 117 calls  findings 4 fixed, 1 both  restarts 0"
    )
    real, _, _ = replays()
    real.cases.open = [reduction]
    both = Status(Console(), "", Path("corpus"), 7, real)
    alone = Totals(state="minimizing", closing_seconds=13.0)
    assert both.line(alone).startswith("minimizing 13 s  1 left, finding 3: 117 calls  ")
    real.cases.open = []
    assert both.line(alone).startswith("minimizing 13 s  0 left  findings 0  real ")


# -- exports -------------------------------------------------------------------------------------

WITHOUT_FORM: dict[str, tuple[dict[str, Any], str]] = {
    "transform": ({"pair": ("0.28.0+x.py:f@0123abcd", "0.29.0")}, "cannot run a transformed"),
    "class": (
        {"name": "regressed", "pair": ("0.29.0", "0.29.0@mine:Fair@0123abcd")},
        "plain pytest runs the same scheduler on both sides",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WITHOUT_FORM)
def test_what_has_no_pytest_form_is_refused_before_anything_starts(
    store: Store, tmp_path: Path, monkeypatch, capfd, case: str
) -> None:
    def start(*_: object) -> None:
        raise AssertionError("a target was started")

    monkeypatch.setattr(export_module, "Pair", start)
    fields, part = WITHOUT_FORM[case]
    row = add(store, **{"name": "fixed", "kind": "crash", **fields})
    assert run(["export", str(row.id), "--out", str(tmp_path / "out")]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"schedfuzz: finding {row.id}: ") and part in err
    assert not (tmp_path / "out").exists()
    run(["show", str(row.id)])
    assert "schedfuzz export" not in capfd.readouterr().out


def test_a_hunt_gives_one_line_per_reason_and_runs_nothing_for_it(
    store: Store, tmp_path: Path
) -> None:
    class Untouched:
        def run(self, scenario: object) -> None:
            raise AssertionError("the pair was run")

    transformed, same = (
        ("0.28.0+x.py:f@0123abcd", "0.29.0"),
        ("0.29.0", "0.29.0@mine:Fair@0123abcd"),
    )
    rows = [
        add(store, "fixed", "hang", "cpu-limit", pair=transformed),
        add(store, "fixed", "crash", "process-died", pair=same),
        add(store, "changed", "divergence"),
        add(store, "fixed", "crash", pair=transformed),
    ]
    lines: list[str] = []
    session = SimpleNamespace(store=store, say=lines.append)
    Session._export(session, rows, Untouched(), tmp_path)  # type: ignore[arg-type]
    tail = "export a finding of two releases"
    assert lines == [
        f"not exported (findings 1, 4): plain pytest cannot run a transformed release; {tail}",
        f"not exported (finding 2): plain pytest runs the same scheduler on both sides; {tail}",
    ]


def test_reasons_that_name_their_finding_are_one_too(store: Store, tmp_path, monkeypatch) -> None:
    rows = [add(store, "fixed", "crash", rule) for rule in ("KeyError", "IndexError")]
    results = [(row, session_module.InfraError(f"finding {row.id}: it is so")) for row in rows]
    monkeypatch.setattr(session_module, "export_findings", lambda *_: iter(results))
    lines: list[str] = []
    session = SimpleNamespace(store=store, say=lines.append)
    Session._export(session, rows, None, tmp_path)  # type: ignore[arg-type]
    assert lines == ["not exported (findings 1, 2): it is so"]
