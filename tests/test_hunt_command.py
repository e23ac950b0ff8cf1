"""The hunt command where no vLLM is needed: bad input, a bad disk, bad company, our own faults."""

import json
import os
import signal
import sqlite3
from pathlib import Path

import pytest
from stub_hunt import started, stub_hunt

from schedfuzz.cli.main import run
from schedfuzz.db import queries
from schedfuzz.db.connect import open_store
from schedfuzz.fuzzer import guide

pytestmark = pytest.mark.skipif(not guide.available(), reason="no Atheris on this machine")
PAIR = ("0.28.0", "0.29.0")
BAD_FILES = {
    "empty": b"",
    "broken": b"{",
    "list": b"[]",
    "deep": b'{"engine":' * 6000,
    "deep list": b"[" * 60_000,
    "not utf-8": b'{"engine":{"policy":"\xff"}}',
    "too big a number": b'{"engine":{"max_model_len":1e999}}',
    "zeros": bytes(5000),
    "beyond the limit": b" " * (1 << 17) + b"{}",
}


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {
        "SCHEDFUZZ_HOME": str(tmp_path / "home"), "SCHEDFUZZ_DB": "",
        "STUB_SIGHTINGS": str(tmp_path / "sightings"),
    }  # fmt: skip


# -- input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("0.28", "0.29.0"), "'0.28' is not a release"),
        (("0.28.0", "0.29.0;x"), "'0.29.0;x' is not a release"),
        (("0.28.0", "0.28.0+gone.py:f"), "gone.py; check the path"),
        (("0.28.0", "0.28.0+mine.py:other"), "defines no function 'other'; it has: f"),
        ((*PAIR, "--corpus", "mine.py"), "mine.py: a file is in the way"),
        ((*PAIR, "--export", "mine.py"), "mine.py: a file is in the way"),
        ((*PAIR, "--json", "mine.py/x.json"), "mine.py: a file is in the way"),
        ((*PAIR, "--json", "."), ".: cannot write it (Is a directory)"),
        ((*PAIR, "--json", "/proc/none/x.json"), "/proc/none: cannot create it"),
        ((*PAIR, "--db", "sqlite:///mine.py"), "mine.py: not a SQLite file"),
        ((*PAIR, "--db", "sqlite:///foreign.db"), "foreign.db"),
    ],
)
def test_bad_input_is_one_line(env, tmp_path, monkeypatch, capfd, arguments, part) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    Path("mine.py").write_text("def f(name, tree):\n    return tree\n" + "# long\n" * 99)
    with sqlite3.connect("foreign.db") as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    assert run(["hunt", *arguments]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1), err
    assert err.startswith("schedfuzz: ")
    assert part in err


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((), "Missing argument 'BEFORE'"),
        ((*PAIR, "--seed", "-1"), "'--seed'"),
        ((*PAIR, "--time", "soon"), "'soon'"),
        ((*PAIR, "--color"), "--color"),
    ],
)
def test_bad_arguments_are_one_line(capfd, arguments, part) -> None:
    assert run(["hunt", *arguments]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1), err
    assert err.startswith("schedfuzz hunt: ") and err.endswith("see `schedfuzz hunt --help`\n")
    assert part in err


def test_a_home_in_the_way(env, tmp_path) -> None:
    (tmp_path / "home").write_text("")
    result = stub_hunt(env, "--runs", 1)
    assert result.returncode == 2
    [line] = result.stderr.splitlines()
    assert "home: a file is in the way" in line and "SCHEDFUZZ_HOME" in line


@pytest.mark.parametrize("limit", [("--runs", 0), ("--time", 0)])
def test_a_limit_of_nothing_is_a_hunt_that_ends_at_once(env, tmp_path, limit) -> None:
    result = stub_hunt(env, *limit, "--json", tmp_path / "new" / "x.json")
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "new" / "x.json").read_text())["executions"] == 0


def test_what_is_no_scenario_in_a_corpus_is_passed_over(env, tmp_path) -> None:
    corpus = tmp_path / "-runs=1"  # and a name that libFuzzer must not take for an option
    corpus.mkdir()
    for name, data in BAD_FILES.items():
        (corpus / name).write_bytes(data)
    for number in range(300):
        (corpus / f"big {number}").write_bytes(os.urandom(1 << 18))
    (corpus / "dangling").symlink_to("nowhere")
    os.mkfifo(corpus / "pipe")
    result = stub_hunt(
        env, "--runs", 400, "--corpus=-runs=1", "--json", tmp_path / "x.json", cwd=tmp_path
    )
    assert result.returncode == 3, result.stderr
    assert json.loads((tmp_path / "x.json").read_text())["executions"] == 400
    assert all((corpus / name).read_bytes() == data for name, data in BAD_FILES.items())
    assert not list(tmp_path.glob("crash-*"))


# -- our own faults ------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["judge", "features", "mutate", "crossover"])
def test_a_fault_of_our_own_is_loud(env, tmp_path, fault) -> None:
    result = stub_hunt(env, "--time", 10**6, fault=fault)
    assert result.returncode == 1
    lines = result.stderr.splitlines()
    assert lines[-2:] == [
        "RuntimeError: planted",
        "schedfuzz: this is schedfuzz's own fault; please report the lines above",
    ]
    store = open_store(f"sqlite:///{tmp_path / 'home' / 'schedfuzz.db'}")
    assert [row.state for row in queries.list_hunts(store)] == ["interrupted"]


def test_a_crash_of_the_hunt_itself_leaves_its_input_in_the_logs(env, tmp_path) -> None:
    cwd = tmp_path / "here"
    cwd.mkdir()
    hunt = started(env, "--time", 10**6, cwd=cwd)
    hunt.send_signal(signal.SIGSEGV)
    hunt.communicate(timeout=60)
    assert hunt.returncode != 0
    assert not list(cwd.iterdir())
    assert list((tmp_path / "home" / "logs").glob("crash-*"))


def test_a_log_does_not_grow_for_ever(env, tmp_path) -> None:
    log = tmp_path / "home" / "logs" / "libfuzzer.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(bytes(11 << 20))
    assert stub_hunt(env, "--runs", 9).returncode in (0, 3)
    assert 0 < log.stat().st_size < 1 << 20
