"""targets dimensions: cells, footnotes, the page between its markers, and one real column."""

import re
from pathlib import Path

import pytest
from command import schedfuzz

from schedfuzz.cli import dimensions
from schedfuzz.cli.dimension_page import PARTS, Cell, cell, dimension, page, table
from schedfuzz.cli.hunt import seed_corpus
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.rules import violation
from schedfuzz.corpus.trace import Trace, Violation
from schedfuzz.workers.home import Home
from schedfuzz.workers.targets import Runner

START, END, *_ = PARTS["simulated"]
PAGE = Path(__file__).parents[1] / "docs" / "dimensions.md"
NO_GROUPS = Cell("unsupported", "engine.groups: unknown")
COLUMNS = {
    "0.28.0": {"one-two": NO_GROUPS, "three_four": Cell("works")},
    "0.29.0": {"one-two": Cell("rejected", "ValueError: a | `b`"), "three_four": NO_GROUPS},
}


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (Trace("finished"), Cell("works")),
        (Trace("unsupported", reason="engine.groups"), Cell("unsupported", "engine.groups")),
        (Trace("rejected", reason="no /my/home/x"), Cell("rejected", "no SCHEDFUZZ_HOME/x")),
        (Trace("infra", reason="killed"), Cell("not run", "killed")),
        (Trace("violated", violations=(violation("deadlock", "stuck", 3),)),
         Cell("`deadlock`", "stuck")),
        (Trace("violated", violations=(Violation("crash", "KeyError", "7", 1, function="m:f"),)),
         Cell("`KeyError`", "m:f: 7")),
    ],
)  # fmt: skip
def test_a_cell_is_the_outcome_or_the_first_broken_rule(trace: Trace, expected: Cell) -> None:
    assert cell(trace, "/my/home") == expected


def test_the_table_has_a_footnote_for_each_message() -> None:
    assert table(COLUMNS).splitlines() == [
        "| dimension | 0.28.0 | 0.29.0 |",
        "| --- | --- | --- |",
        "| one two | unsupported[^1] | rejected[^2] |",
        "| three four | works | unsupported[^1] |",
        "",
        "[^1]: `engine.groups: unknown`",
        "[^2]: `ValueError: a | 'b'`",
    ]


def test_the_page_replaces_only_what_is_between_its_markers() -> None:
    first = page(COLUMNS, "schedfuzz targets dimensions")
    assert first.startswith(START) and first.endswith(f"{END}\n")
    kept = "before\n" + first + "after\n"
    second = page({"0.28.0": {"five": Cell("works")}}, "schedfuzz targets dimensions", kept)
    assert second.startswith(f"before\n{START}") and second.endswith(f"{END}\nafter\n")
    assert "five" in second and "three four" not in second
    assert page(COLUMNS, "schedfuzz targets dimensions", second) == kept


def test_each_runner_has_its_own_part_of_a_page() -> None:
    one = page(COLUMNS, "schedfuzz targets dimensions")
    both = page(COLUMNS, "schedfuzz targets dimensions --runner real", one, "real")
    assert both.startswith(one) and both.count("unsupported[^1]") == 2
    assert "| one two | unsupported[^real-1] | rejected[^real-2] |" in both
    assert "[^real-1]: `engine.groups: unknown`" in both
    fewer = {"0.28.0": {"five": Cell("works")}}
    again = page(fewer, "schedfuzz targets dimensions", both)
    assert "five" in again and again.endswith(both.removeprefix(one))
    assert page(fewer, "schedfuzz targets dimensions --runner real", both, "real").startswith(one)


@pytest.mark.parametrize("text", ["my notes", f"{END} {START}", START])
def test_a_file_of_somebody_elses_is_refused_before_anything_runs(
    text: str, home: Home, tmp_path: Path
) -> None:
    file = tmp_path / "notes.md"
    file.write_text(text)
    env = {"SCHEDFUZZ_HOME": str(home.root)}
    result = schedfuzz("targets", "dimensions", "0.28.0", "--write", file, env=env)
    assert result.returncode == 2
    assert f"{file}: it was not written by this command" in result.stderr
    assert file.read_text() == text


def test_without_a_release_the_ready_ones_are_taken_oldest_first(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="no target is ready"):
        dimensions.ready(home)

    class Known:
        def __init__(self, release: str, problem: str = "") -> None:
            self.release = release
            self.problem = lambda: problem

    known = [Known("0.100.0"), Known("0.28.0"), Known("0.27.1"), Known("0.26.0", "not built")]
    monkeypatch.setattr(dimensions, "list_environments", lambda home: known)
    assert dimensions.ready(home) == ["0.27.1", "0.28.0", "0.100.0"]


# -- the page in docs ----------------------------------------------------------------------------


@pytest.mark.parametrize("runner", list(PARTS))
def test_the_page_in_docs_is_well_formed_and_names_every_example(runner: Runner) -> None:
    part, whole = PARTS[runner], PAGE.read_text()
    assert whole.count(part.start) == whole.count(part.end) == 1
    text = whole.partition(part.start)[2].partition(part.end)[0]
    head, *rows = (line.split(" | ") for line in text.splitlines() if line.startswith("| "))
    assert len(head) > 1 and all(len(row) == len(head) for row in rows)
    releases = [name.strip("| ") for name in head[1:]]
    assert re.search(rf"^    schedfuzz targets dimensions {' '.join(releases)} ", text, re.M)
    named = {row[0].removeprefix("| ") for row in rows[1:]}
    assert named == {dimension(path.stem) for path in seed_corpus().glob("*.json")}
    used = set(re.findall(rf"\S\[\^{part.notes}(\d+)\]", text))
    assert used == set(re.findall(rf"^\[\^{part.notes}(\d+)\]: `.+`$", text, re.M))


# -- the real thing ------------------------------------------------------------------------------


@pytest.mark.vllm
def test_every_example_is_run_on_a_release(
    shared_home: Home, environment_029, tmp_path: Path
) -> None:
    file = tmp_path / "page.md"
    env = {"SCHEDFUZZ_HOME": str(shared_home.root)}
    result = schedfuzz("targets", "dimensions", "0.29.0", "--write", file, env=env)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{file}\n"
    text = file.read_text()
    assert "| chunked prefill | works |" in text
    assert text.count("\n| ") == 2 + len(list(seed_corpus().glob("*.json")))
    assert str(shared_home.root) not in text
