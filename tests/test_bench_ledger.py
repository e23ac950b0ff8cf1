"""What a bench keeps, what it comes to, how it is drawn."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schedfuzz.bench import summary
from schedfuzz.bench.ledger import Ledger
from schedfuzz.bench.plot import step_plot
from schedfuzz.bench.table import Bug
from schedfuzz.corpus.errors import InputError
from schedfuzz.workers.home import write_file

PLAN = {"time": 600.0, "table": {"PR#1": {"before": "0.28.0", "component": ("m:f", "m:g")}}}


def ledger(path: Path | None, plan: dict[str, Any] = PLAN, bench: str = "bugs") -> Ledger:
    return Ledger(bench, plan, path, write_file)


def test_a_ledger_goes_on_where_it_was(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    first = ledger(file)
    first.put("one", {"bug": "PR#1", "found": True})
    again = ledger(file)
    assert "one" in again and "two" not in again
    again.put("two", {"bug": "PR#1", "found": False})
    again.write({"found": 1})
    assert [result["found"] for result in ledger(file)] == [True, False]
    text = msgspec.json.decode(file.read_bytes())
    assert set(text) == {"bench", "plan", "results", "summary"}


def test_a_ledger_without_a_file_keeps_results_in_memory() -> None:
    mine = ledger(None)
    mine.put("one", {"bug": "PR#1"})
    assert list(mine) == [{"bug": "PR#1"}]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "holds no results of a bench"),
        (b"\xff", "holds no results of a bench"),
        (b'{"executions": 4}', "holds no results of a bench"),
        (b'{"bench": "mutants", "plan": {}, "results": {}}', "results of `bench mutants`"),
        (b'{"bench": "bugs", "plan": {"time": 1}, "results": {}}', "with another time"),
        (b'{"bench": "bugs", "plan": {"time": 600.0}, "results": {}}', "with another table"),
    ],
)
def test_a_file_of_something_else_is_refused_and_kept(
    tmp_path: Path, content: bytes, said: str
) -> None:
    file = tmp_path / "bench.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=said):
        ledger(file)
    assert file.read_bytes() == content


def test_a_place_that_cannot_be_written_is_learnt_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot"):
        ledger(tmp_path)
    with pytest.raises(InputError, match="cannot write it"):
        ledger(tmp_path / "gone" / "x.json")


# -- summaries -----------------------------------------------------------------------------------


def bug(name: str) -> Bug:
    return Bug(name, f"title of {name}", "contract", "0.28.0", "0.29.0", (), ("m:f",), ("leak",))


def hit(name: str, seed: int, executions: int, seconds: float, precise: bool) -> dict[str, Any]:
    return {
        "bug": name, "seed": seed, "found": True, "executions": executions, "seconds": seconds,
        "verdict": "fixed", "kind": "leak", "title": "blocks-left", "precise": precise,
        "lookalikes": 1,
    }  # fmt: skip


def miss(name: str, seed: int) -> dict[str, Any]:
    return {"bug": name, "seed": seed, "found": False, "executions": 9, "seconds": 60.0,
            "lookalikes": 0}  # fmt: skip


RESULTS = [
    hit("PR#1", 1, 10, 5.0, True), hit("PR#1", 2, 30, 9.0, False), hit("PR#1", 3, 20, 7.0, True),
    miss("PR#2", 1), miss("PR#2", 2),
]  # fmt: skip


def test_rows_hold_medians_of_the_seeds_that_found() -> None:
    result = summary.bugs_summary([bug("PR#1"), bug("PR#2"), bug("PR#3")], RESULTS)
    assert (result["bugs"], result["found"], result["precise"]) == (2, 1, 1)
    one, two = result["rows"]
    assert (one["found"], one["seeds"], one["precise"], one["lookalikes"]) == (3, 3, 2, 3)
    assert one["executions"] == (20, 10, 30) and one["seconds"] == (7.0, 5.0, 9.0)
    assert one["verdicts"] == ["fixed leak: blocks-left"]
    assert (two["found"], two["executions"], two["verdicts"]) == (0, None, [])


def test_curves_are_of_each_seed_and_of_any() -> None:
    more = [*RESULTS, hit("PR#2", 3, 4, 2.0, True)]
    assert summary.curves(more) == {
        "seed 1": [5.0], "seed 2": [9.0], "seed 3": [2.0, 7.0], "any seed": [2.0, 5.0],
    }  # fmt: skip


def mutant(operator: str, status: str, by: str = "") -> dict[str, Any]:
    return {"operator": operator, "status": status} | ({"by": by} if by else {})


def test_shares_of_mutants_leave_out_what_could_not_be_run() -> None:
    results = [
        mutant("relation", "killed", "violation"), mutant("relation", "killed", "divergence"),
        mutant("relation", "survived"), mutant("off by one", "killed", "start"),
        mutant("off by one", "not reached"), mutant("off by one", "not run"),
    ]  # fmt: skip
    counts = summary.mutants_summary(results)
    assert (counts["mutants"], counts["killed"], counts["survived"]) == (6, 3, 1)
    assert (counts["not_reached"], counts["not_run"]) == (1, 1)
    assert counts["killed_by"] == {"violation": 1, "divergence": 1, "start": 1}
    assert (counts["share"], counts["share_of_reached"]) == (0.6, 0.75)
    assert counts["operators"]["off by one"]["share"] == 0.5
    assert [item["status"] for item in counts["survivors"]] == ["survived", "not reached"]
    assert summary.mutants_summary([])["share"] is None


# -- the plot ------------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


def test_a_plot_is_well_formed_and_text_is_text() -> None:
    nasty = "<script>&\"'"
    text = step_plot(nasty, {nasty: [1.0, 30.0], "any seed": []}, 600.0, 3)
    assert "<script>" not in text
    root = ElementTree.fromstring(text)
    words = [node.text for node in root.iter(f"{SVG}text")]
    assert words.count(nasty) == 2 and "10 min" in words and "1 h" not in words


def test_a_curve_climbs_once_per_bug_and_stays_inside() -> None:
    root = ElementTree.fromstring(step_plot("t", {"s": [0.0, 5.0, 5.0, 999.0]}, 60.0, 4))
    [path] = root.iter(f"{SVG}path")
    assert path.get("d", "").count("V") == 4
    places = [float(part.split("V")[0]) for part in path.get("d", "").split("H")[1:]]
    assert places == sorted(places) and places[0] == 60.0 and places[-1] == 700.0


@pytest.mark.parametrize(("seconds", "most"), [(0.0, 0), (0.05, 1), (1e6, 1000)])
def test_odd_budgets_can_be_drawn(seconds: float, most: int) -> None:
    ElementTree.fromstring(step_plot("t", {"any seed": [0.01]}, seconds, most))
