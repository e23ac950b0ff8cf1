"""The bench verbs: bad input without vLLM; one short real bench of each."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from command import schedfuzz
from fabricated import FakePair
from running import read_to

from schedfuzz.bench.fidelity import Fidelity
from schedfuzz.cli import fidelity as fidelity_module
from schedfuzz.cli.main import run
from schedfuzz.cli.options import Seconds
from schedfuzz.corpus.codec import decode
from schedfuzz.fuzzer import guide
from schedfuzz.workers.home import Home
from schedfuzz.workers.targets import parse_target

needs_atheris = pytest.mark.skipif(not guide.available(), reason="no Atheris on this machine")


@needs_atheris
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("bugs", "--only", "PR#0"), "--only 'PR#0': no such bug; the table has: PR#46066"),
        (("bugs", "--table", "gone.toml"), "gone.toml: no such table"),
        (("bugs", "--table", "mine.json"), "mine.json: not a table of bugs"),
        (("bugs", "--json", "mine.json"), "mine.json: holds no results of a bench"),
        (("bugs", "--json", "."), "."),
        (("mutants", "0.29"), "'0.29' is not a release"),
        (("mutants", "0.29.0+x.py:f"), "'0.29.0+x.py:f' is not a release"),
        (("mutants", "0.29.0", "--corpus", "gone"), "gone: no such directory"),
        (("mutants", "0.29.0", "--out", "mine.json"), "mine.json: a file is in the way"),
        (("mutants", "0.29.0", "--json", "mine.json"), "mine.json: holds no results of a bench"),
    ],
)
def test_bad_input_is_one_line(home, tmp_path, monkeypatch, capfd, arguments, part) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.json").write_text("{}")
    assert run(["bench", *arguments]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1), err
    assert err.startswith("schedfuzz: ") and part in err
    assert Path("mine.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("0", 0)]
)
def test_a_time_may_have_a_unit(text: str, seconds: float) -> None:
    assert Seconds().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "m", "-1", "1d", "1 m", "nan", "inf", "1e3", "9" * 99])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write it like 90, 90s, 10m or 2h"):
        Seconds().convert(text, None, None)


@pytest.mark.parametrize("text", ["4", "25h", "1441m", "0.1s"])
def test_a_time_keeps_its_bounds_whatever_its_unit(text: str) -> None:
    day = Seconds(5, 86_400)
    assert [day.convert(edge, None, None) for edge in ("5", "24h", 600.0)] == [5, 86_400, 600]
    with pytest.raises(click.BadParameter, match="is not within 5 to 86,400 seconds; write"):
        day.convert(text, None, None)


def test_a_fidelity_that_is_interrupted_says_that_it_was_cut_short(monkeypatch, capfd) -> None:
    def measure(*_: object) -> Fidelity:
        os.kill(os.getpid(), signal.SIGINT)
        return Fidelity("0.29.0", 1, compared=7, equal=7)

    monkeypatch.setattr(fidelity_module, "measure", measure)
    monkeypatch.setattr(fidelity_module, "start_pair", lambda *_, **__: FakePair())
    assert run(["bench", "fidelity", "0.29.0", "--scenarios", "50"]) == 130
    assert "cut short: 7 of 50 scenarios were compared\n" in capfd.readouterr().out


def test_the_help_names_every_bench(capfd) -> None:
    assert run(["bench", "-h"]) == 0
    summary = " ".join(capfd.readouterr().out.partition("Options:")[0].split())
    assert "bugs" in summary and "mutants" in summary and "simulated runner" in summary


# -- real ones -----------------------------------------------------------------------------------


# Whatever two releases differ in first: the seed bug itself may take a thousand executions.
ANY = """
[[bug]]
id = "any"
title = "any difference of two schedulers"
kind = "divergence"
before = "0.28.0"
after = "0.29.0"
dimensions = []
component = ["vllm.v1.core.sched.scheduler:Scheduler.schedule"]
evidence = ["crash", "contract", "corruption", "starvation", "changed:schedule:"]
"""


@needs_atheris
@pytest.mark.vllm
def test_a_bug_is_found_proved_and_not_hunted_again(own_home: Home, tmp_path: Path) -> None:
    table, file, plot = tmp_path / "any.toml", tmp_path / "new" / "x.json", tmp_path / "x.svg"
    table.write_text(ANY)
    env = {"SCHEDFUZZ_HOME": str(own_home.root)}
    arguments = ("bench", "bugs", "--table", table, "--seeds", 1, "--runs", 3000,
                 "--json", file, "--plot", plot)  # fmt: skip
    first = schedfuzz(*arguments, env=env)
    assert first.returncode == 0, first.stderr
    assert "any sighted after" in first.stderr
    result = json.loads(file.read_text())
    [found] = result["results"].values()
    assert found["found"] and found["repeats"] and found["precise"]
    assert all(".schedule:" in site for site in found["touched"])
    assert found["verdict"] in ("fixed", "changed") and found["executions"] <= 3000
    decode(json.dumps(found["reproducer"]))
    assert result["summary"]["found"] == result["summary"]["precise"] == 1
    assert "found 1 of 1 bugs" in first.stdout and "yes (1/1)" in first.stdout
    assert "any seed" in plot.read_text()
    again = schedfuzz(*arguments, env=env)
    assert (again.returncode, again.stdout, again.stderr) == (0, first.stdout, "")
    assert json.loads(file.read_text()) == result
    other = schedfuzz(*arguments, "--time", "1m", env=env)
    assert other.returncode == 2 and "was measured with another time" in other.stderr


@needs_atheris
@pytest.mark.vllm
def test_a_bench_that_is_ended_says_so_and_leaves_its_file(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "bugs.json"
    bench = start("bench", "bugs", "--only", "PR#47272", "--time", "9h", "--json", file)
    read_to(bench, "0.28.0 0.29.0, seed 1: hunting")
    bench.send_signal(signal.SIGTERM)
    out, err = bench.communicate(timeout=240)
    assert bench.returncode == 130, err
    result = json.loads(file.read_text())
    assert len(result["summary"]["rows"]) == len(result["results"]) <= 1
    assert f"of {len(result['results'])} bugs with any seed" in out


@pytest.mark.vllm
def test_mutants_are_killed_and_survivors_are_targets(own_home: Home, tmp_path: Path) -> None:
    file, out = tmp_path / "mutants.json", tmp_path / "out"
    arguments = ("bench", "mutants", "0.29.0", "--modules", "request_queue", "--count", 4,
                 "--scenarios", 60, "--runs", 90, "--json", file, "--out", out)  # fmt: skip
    answer = schedfuzz(*arguments, env={"SCHEDFUZZ_HOME": str(own_home.root)})
    assert answer.returncode == 0, answer.stderr
    result = json.loads(file.read_text())
    summary = result["summary"]
    assert summary["mutants"] == len(result["results"]) == 4
    assert summary["killed"] >= 1 and summary["not_run"] == 0
    states = [item["status"] for item in result["results"].values()]
    assert summary["killed"] == states.count("killed")
    files = list(out.iterdir())
    assert len(files) == states.count("survived")
    for file in files:
        parse_target(f"0.29.0+{file}:mutate")
    assert len(answer.stdout.split("survivor ")) - 1 == len(files)
