"""Signals to a hunt: it leaves soon, with its result, and takes its targets along."""

import json
import os
import signal
import time
from collections.abc import Iterator

import pytest
from running import FOR_EVER, PATIENCE, gone, read_to, until, workers, zygotes

from schedfuzz.db import queries
from schedfuzz.db.connect import Store, open_store
from schedfuzz.workers.home import Home

pytestmark = pytest.mark.vllm
PAIR = ("0.28.0", "0.29.0")


@pytest.fixture
def store(own_home: Home) -> Iterator[Store]:
    store = open_store(own_home.database_url)
    yield store
    store.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_a_hunt_with_its_result(start, store, tmp_path, number) -> None:
    out = tmp_path / "out.json"
    hunt = start("hunt", *PAIR, *FOR_EVER, "--json", out, "--export", tmp_path / "cases")
    read_to(hunt, "hunting")
    until(lambda: queries.list_hunts(store)[0].executions)
    os.killpg(hunt.pid, number)  # as a terminal does
    said, err = hunt.communicate(timeout=PATIENCE)
    assert gone(hunt.pid)
    result = json.loads(out.read_text())
    alarming = any(row["verdict"] != "changed" for row in result["findings"])
    assert hunt.returncode == (3 if alarming else 0)
    assert "Traceback" not in err and "schedfuzz hunt 0.28.0 0.29.0 --seed" in err
    row = queries.list_hunts(store)[0]
    assert (row.state, row.executions) == ("interrupted", result["executions"])


def test_a_second_signal_ends_at_once(start) -> None:
    hunt = start("hunt", *PAIR, *FOR_EVER)
    read_to(hunt, "hunting")
    for pid in workers(hunt.pid):
        os.kill(pid, signal.SIGSTOP)  # no trace comes any more, so the first signal has to wait
    time.sleep(1)
    hunt.send_signal(signal.SIGTERM)
    time.sleep(1)
    assert hunt.poll() is None
    hunt.send_signal(signal.SIGTERM)
    hunt.communicate(timeout=30)
    assert hunt.returncode == 128 + signal.SIGTERM
    until(lambda: gone(hunt.pid))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_targets_start(start, store, number) -> None:
    hunt = start("hunt", *PAIR, *FOR_EVER)
    read_to(hunt, "starting")
    until(lambda: len(zygotes(hunt.pid)) == 2)
    os.killpg(hunt.pid, number)
    out, err = hunt.communicate(timeout=60)
    assert (hunt.returncode, out, err) == (130, "", "schedfuzz: interrupted\n")
    assert gone(hunt.pid)
    assert queries.list_hunts(store)[0].state == "interrupted"
