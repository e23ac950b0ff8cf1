"""A child process tells what it finds, fails as it would here, and stops when asked."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from schedfuzz.bench.child import Stopping, Tell, in_child
from schedfuzz.corpus.errors import InfraError, InputError


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "child.log"


def test_a_child_tells_values_in_their_order_and_its_prints_go_to_the_log(log: Path, capfd) -> None:
    def work(tell: Tell, stopping: Stopping) -> None:
        os.write(1, b"noise")
        for number in range(300):
            tell({"number": number, "text": "x" * 999})

    told = list(in_child(work, log))
    assert [item["number"] for item in told] == list(range(300))
    assert log.read_bytes() == b"noise" and capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("fault", "seen", "said"),
    [
        (InfraError("no disk"), InfraError, "^no disk$"),
        (InputError("bad"), InputError, "^bad$"),
        (KeyError("x"), RuntimeError, "KeyError: 'x'"),
        (SystemExit(3), RuntimeError, "SystemExit: 3"),
    ],
)
def test_a_childs_fault_is_raised_here(log: Path, fault, seen, said) -> None:
    def work(tell: Tell, stopping: Stopping) -> None:
        tell(1)
        raise fault

    told: list[Any] = []
    with pytest.raises(seen, match=said):
        told.extend(in_child(work, log))


def test_a_child_that_dies_is_the_machines_fault(log: Path) -> None:
    def work(tell: Tell, stopping: Stopping) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(InfraError, match="ended with status 9"):
        list(in_child(work, log))


def test_a_child_stops_when_asked_and_what_it_tells_then_is_heard(log: Path) -> None:
    def work(tell: Tell, stopping: Stopping) -> None:
        tell("started")
        while not stopping():
            time.sleep(0.01)
        tell("stopped")

    heard: list[str] = []
    for word in in_child(work, log, lambda: bool(heard)):
        heard.append(word)
    assert heard == ["started", "stopped"]


def test_signals_of_the_terminal_do_not_reach_what_a_child_does(log: Path) -> None:
    def work(tell: Tell, stopping: Stopping) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), number)
        tell("alive")

    assert list(in_child(work, log)) == ["alive"]


def test_a_child_that_nobody_hears_ends(log: Path) -> None:
    def work(tell: Tell, stopping: Stopping) -> None:
        while not stopping():
            time.sleep(0.01)
            tell("more")

    told = in_child(work, log)
    assert next(told) == "more"
    told.close()  # type: ignore[attr-defined]
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
