"""The hunt command on a bad machine: full disks, locked databases, nobody who reads, company."""

import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fabricated import SMALL
from found import list_findings
from stub_hunt import command, started, stub_hunt

from schedfuzz.db import queries, writes
from schedfuzz.db.connect import open_store
from schedfuzz.fuzzer import guide
from schedfuzz.service.recorder import KEPT_INCIDENTS, DatabaseRecorder

pytestmark = pytest.mark.skipif(not guide.available(), reason="no Atheris on this machine")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {
        "SCHEDFUZZ_HOME": str(tmp_path / "home"),
        "SCHEDFUZZ_DB": "",
        "STUB_SIGHTINGS": str(tmp_path / "sightings"),
    }


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 8, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                pass


def test_no_space_for_the_home(env, small_disk) -> None:
    fill(small_disk)
    result = stub_hunt(env | {"SCHEDFUZZ_HOME": str(small_disk / "home")}, "--runs", 9)
    assert result.returncode == 2
    [line] = result.stderr.splitlines()
    assert str(small_disk) in line and "no space left" in line


def test_the_disk_fills_during_a_hunt(env, small_disk) -> None:
    env["SCHEDFUZZ_HOME"] = str(small_disk / "home")
    hunt = started(env, "--time", 10**6)
    fill(small_disk)
    out, err = hunt.communicate(timeout=120)
    assert (hunt.returncode, out) == (1, "")
    last = err.splitlines()[-1]
    assert last.startswith("schedfuzz: sqlite:///") and "no space left" in last
    assert "Traceback" not in err
    (small_disk / "filler").unlink()
    result = stub_hunt(env, "--runs", 50)  # what libFuzzer wrote on the full disk does no harm
    assert result.returncode in (0, 3), result.stderr


def test_a_corpus_on_a_full_disk_does_not_end_a_hunt(env, small_disk, tmp_path) -> None:
    fill(small_disk)
    result = stub_hunt(env, "--runs", 300, "--corpus", small_disk, "--json", tmp_path / "x.json")
    assert result.returncode in (0, 3), result.stderr
    assert json.loads((tmp_path / "x.json").read_text())["executions"] == 300


def test_a_result_that_cannot_be_written_is_one_line(env) -> None:
    result = stub_hunt(env, "--runs", 9, "--json", "/dev/full")
    assert result.returncode == 2
    assert "/dev/full: cannot write it (No space left on device)" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_corpus_that_is_deleted_does_not_end_a_hunt(env, tmp_path) -> None:
    hunt = started(env, "--runs", 300, "--corpus", tmp_path / "c", "--json", tmp_path / "x.json")
    (tmp_path / "c").rename(tmp_path / "gone")
    err = hunt.communicate(timeout=120)[1]
    assert hunt.returncode in (0, 3), err
    assert json.loads((tmp_path / "x.json").read_text())["executions"] == 300


@pytest.mark.parametrize("how", ["2>&-", "2>/dev/full", "<&- >&- 2>&-", "2> >(true)"])
def test_nobody_reads_the_progress(env, tmp_path, how) -> None:
    line = '"$@" ' + how
    words = command("none", "--runs", 300, "--json", tmp_path / "x.json")
    result = subprocess.run(["bash", "-c", line, "bash", *words], env={**os.environ, **env})
    assert result.returncode in (0, 3)
    assert json.loads((tmp_path / "x.json").read_text())["executions"] == 300
    assert queries.list_hunts(open_store(f"sqlite:///{tmp_path / 'home' / 'schedfuzz.db'}"))


def test_a_terminal_without_unicode(env) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    result = stub_hunt(env | plain, "--runs", 9)
    assert result.returncode in (0, 3), result.stderr


def test_a_hunt_outlasts_a_locked_database(env, tmp_path) -> None:
    file = tmp_path / "home" / "schedfuzz.db"
    hunt = started(env, "--runs", 400, "--json", tmp_path / "x.json")
    with sqlite3.connect(file, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        time.sleep(3)
        other.execute("ROLLBACK")
    err = hunt.communicate(timeout=120)[1]
    assert hunt.returncode == 3, err
    result = json.loads((tmp_path / "x.json").read_text())
    assert result["executions"] == 400
    [finding] = list_findings(open_store(f"sqlite:///{file}"))
    assert finding.count == (tmp_path / "sightings").stat().st_size


def test_a_database_that_stays_locked_is_one_line(env, tmp_path) -> None:
    stub_hunt(env, "--runs", 0)
    file = tmp_path / "home" / "schedfuzz.db"
    with sqlite3.connect(file, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        result = stub_hunt(env, "--runs", 0, fault="impatient")
    assert result.returncode == 2
    [line] = result.stderr.splitlines()
    assert "schedfuzz.db: locked by another process" in line


def test_a_reproducer_that_cannot_be_read_any_more_stops_no_hunt(env, tmp_path) -> None:
    stub_hunt(env, "--runs", 200, "--seed", 1)
    with sqlite3.connect(tmp_path / "home" / "schedfuzz.db") as connection:
        connection.execute("UPDATE findings SET minimize_state = 'partial'")
        connection.execute("UPDATE scenarios SET data = '{}'")
    result = stub_hunt(env, "--runs", 0)
    assert result.returncode == 0, result.stderr


def test_a_broken_machine_does_not_fill_the_database(tmp_path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'x.db'}")
    names = "0.28.0", "0.28.0+mine.py:f@12345678"
    recorder = DatabaseRecorder(store, writes.start_hunt(store, *names, 1, {}), *names)
    for _ in range(KEPT_INCIDENTS + 20):
        recorder.incident("not-run", f"{names[1]}: out of memory: 9", SMALL)
    rows = queries.list_incidents(store, limit=1000)
    assert len(rows) == KEPT_INCIDENTS
    assert {row.target for row in rows} == {names[1]}


def test_two_hunts_at_once_count_everything(env, tmp_path) -> None:
    outs = [tmp_path / "1.json", tmp_path / "2.json"]
    hunts = [
        subprocess.Popen(
            command("none", "--runs", 1500, "--seed", number, "--json", out),
            env={**os.environ, **env}, stderr=subprocess.PIPE, text=True,
        )
        for number, out in enumerate(outs)
    ]  # fmt: skip
    for hunt in hunts:
        err = hunt.communicate(timeout=300)[1]
        assert hunt.returncode == 3, err
    store = open_store(f"sqlite:///{tmp_path / 'home' / 'schedfuzz.db'}")
    [finding] = list_findings(store)
    assert finding.count == (tmp_path / "sightings").stat().st_size > 20
    assert finding.minimize_state == "done"
    rows = queries.list_hunts(store)
    assert [(row.state, row.executions) for row in rows] == [("done", 1500)] * 2
    assert all(json.loads(out.read_text())["executions"] == 1500 for out in outs)
