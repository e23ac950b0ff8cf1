"""corpus coverage: what is replayed, what a lost child costs, and the real thing once."""

import faulthandler
import json
import os
import signal
import sys
import time
from pathlib import Path

import msgspec
import pytest
from command import schedfuzz
from fabricated import SEED_BUG
from running import gone, processes, read_to, until

from schedfuzz.cli.coverage import as_object, collect, corpora, figures_table
from schedfuzz.cli.hunt import seed_corpus
from schedfuzz.corpus import codec
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.workers.covering import Report
from schedfuzz.workers.home import Home
from schedfuzz.workers.target import covered
from schedfuzz.workers.target.covered import Played, batch

SEATS = seed_corpus() / "seats_saturated.json"
ABORT = seed_corpus() / "abort_in_flight.json"


# -- what is replayed ----------------------------------------------------------------------------


def test_the_default_is_the_seeds_and_every_pair_of_the_release(home: Home) -> None:
    both = home.corpus("0.28.0", "0.29.0"), home.corpus("0.29.0", "0.29.0")
    home.corpus("0.28.0", "0.30.0")
    assert corpora(home, "0.29.0") == [seed_corpus(), *both]


def test_each_scenario_is_replayed_once_and_other_files_never(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
        (folder / "notes").write_text("no scenario")
        (folder / "seats").write_bytes(codec.encode(codec.load(SEATS)))
    (two / "abort.json").write_text(ABORT.read_text())
    assert collect([one, two]) == [codec.load(SEATS), codec.load(ABORT)]


def test_a_corpus_without_scenarios_is_bad_input(home: Home, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("no scenario")
    env = {"SCHEDFUZZ_HOME": str(home.root)}
    result = schedfuzz("corpus", "coverage", "0.29.0", "--corpus", tmp_path, env=env)
    assert result.returncode == 2
    assert str(tmp_path) in result.stderr and "no scenarios" in result.stderr


# -- children ------------------------------------------------------------------------------------


class Saves:
    """Stands in for coverage.py: notes how many scenarios had been played at each save."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.played = 0

    def save(self) -> None:
        with self.file.open("a") as file:
            file.write(f"{self.played}\n")


def scenarios(count: int) -> list[Scenario]:
    """Return scenarios that are told apart by their pool."""
    engines = [msgspec.structs.replace(SEED_BUG.engine, num_blocks=50 + n) for n in range(count)]
    return [msgspec.structs.replace(SEED_BUG, engine=engine) for engine in engines]


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that plays scenarios with made-up outcomes, and tells what was heard."""
    monkeypatch.setattr(covered, "limit_address_space", lambda extra: None)
    monkeypatch.setattr(covered, "SAVE_SECONDS", 0.0)
    measured = Saves(tmp_path / "saves")

    def run(wanted: list[Scenario], what) -> list[Played]:
        def play(scenario: Scenario, cpu_seconds: float) -> str:
            measured.played += 1
            return what(scenario.engine.num_blocks - 50)

        monkeypatch.setattr(covered, "play", play)
        reader, writer = os.pipe()
        left = wanted
        while left:
            fewer = batch(left, measured, writer, 1.0)
            assert len(fewer) < len(left)
            left = fewer
        os.close(writer)
        with os.fdopen(reader, "rb") as lines:
            return [msgspec.json.decode(line, type=Played) for line in lines]

    return run


def total(heard: list[Played]) -> dict[str, int]:
    found: dict[str, int] = {}
    for message in heard:
        for name, count in message.outcomes.items():
            found[name] = found.get(name, 0) + count
    return found


def die(number: int) -> str:
    if number == 3:
        faulthandler.disable()  # pytest's, which would print this death at length
        os.kill(os.getpid(), signal.SIGSEGV)
    return "finished"


def test_a_scenario_that_ends_its_process_costs_only_itself(played) -> None:
    heard = played(scenarios(6), die)
    assert total(heard) == {"finished": 5, "lost": 1}
    (reason,) = (message.reason for message in heard if message.reason)
    assert "Segmentation fault" in reason


def test_what_was_not_saved_is_played_again_without_the_culprit(
    played, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(covered, "SAVE_SECONDS", 1000.0)
    assert total(played(scenarios(6), die)) == {"finished": 5, "lost": 1}
    assert (tmp_path / "saves").read_text() == "5\n"  # one child played all but the culprit


def test_an_exit_of_the_process_is_lost_too_and_a_hang_is_not(played) -> None:
    def what(number: int) -> str:
        if number == 0:
            sys.exit()
        return "hang" if number == 1 else "finished"

    heard = played(scenarios(3), what)
    assert total(heard) == {"lost": 1, "hang": 1, "finished": 1}
    assert heard[0].reason == "a scenario ended its process: exit code 1"


def test_an_endless_native_loop_ends_by_the_clock(played, monkeypatch) -> None:
    monkeypatch.setattr(covered, "WALL_FACTOR", 0)

    def what(number: int) -> str:
        if number == 1:
            time.sleep(60)  # what SIGALRM's default action does needs no Python
        return "finished"

    heard = played(scenarios(3), what)
    assert total(heard) == {"finished": 2, "lost": 1}


def test_a_child_that_cannot_save_is_not_the_scenarios_fault(played, monkeypatch) -> None:
    def save(self) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(Saves, "save", save)
    with pytest.raises(RuntimeError, match="between two scenarios"):
        played(scenarios(2), lambda number: "finished")


# -- figures -------------------------------------------------------------------------------------

SUMMARY = {
    "num_statements": 8, "covered_lines": 4, "num_branches": 2, "covered_branches": 1,
    "percent_covered": 50.0,
}  # fmt: skip
REPORT = msgspec.convert(
    {"files": {"vllm/v1/core/a.py": {"summary": SUMMARY}}, "totals": SUMMARY}, type=Report
)


def test_the_table_has_a_row_a_file_and_the_total() -> None:
    columns = [list(column.cells) for column in figures_table(REPORT).columns]
    assert list(zip(*columns, strict=True)) == [
        ("vllm/v1/core/a.py", "4/8", "1/2", "50.0"),
        ("total", "4/8", "1/2", "50.0"),
    ]


def test_the_object_counts_scenarios() -> None:
    value = as_object("0.29.0", {"violated": 1, "finished": 2}, Path("html"), REPORT)
    assert (value["scenarios"], value["report"]) == (3, "html/index.html")
    assert value["total"] == {
        "statements": 8, "statements_run": 4, "branches": 2, "branches_run": 1, "percent": 50.0,
    }  # fmt: skip


# -- the real thing ------------------------------------------------------------------------------


@pytest.mark.vllm
def test_two_seeds_on_a_release(shared_home: Home, environment_029, tmp_path: Path) -> None:
    corpus, html = tmp_path / "corpus", tmp_path / "new" / "html"
    corpus.mkdir()
    for seed in (SEATS, ABORT):
        (corpus / seed.name).write_text(seed.read_text())
    env = {"SCHEDFUZZ_HOME": str(shared_home.root), "COVERAGE_FILE": str(tmp_path / "theirs")}
    result = schedfuzz(
        "corpus", "coverage", "0.29.0", "--corpus", corpus, "--html", html, "--json", env=env
    )
    assert result.returncode == 0, result.stderr
    value = json.loads(result.stdout)
    assert value["outcomes"] == {"finished": 2}
    files = {row["file"]: row for row in value["files"]}
    scheduler = files["vllm/v1/core/sched/scheduler.py"]
    assert 0 < scheduler["branches_run"] < scheduler["branches"]
    assert 20 < scheduler["percent"] < 90
    # Imported while it was measured, so the lines of its module and classes count.
    assert files["vllm/v1/core/sched/async_scheduler.py"]["percent"] > 50
    assert all(name.startswith("vllm/v1/core/") for name in files)
    assert value["total"]["statements"] == sum(row["statements"] for row in value["files"])
    pages = sorted(html.glob("*.html"))
    assert html / "index.html" in pages
    here = [str(tmp_path), str(shared_home.root)]
    assert not [page for page in pages if any(place in page.read_text() for place in here)]
    assert not (tmp_path / "theirs").exists()


@pytest.mark.vllm
def test_an_interrupt_leaves_no_process_and_no_report(start, tmp_path: Path) -> None:
    html = tmp_path / "html"
    process = start("corpus", "coverage", "0.29.0", "--corpus", seed_corpus(), "--html", html)
    read_to(process, "starting")
    until(lambda: processes(process.pid))
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    until(lambda: gone(process.pid))
    assert not list(html.iterdir())
