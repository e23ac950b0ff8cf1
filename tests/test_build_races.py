"""Nouns: builders at the same time, builds that a signal ends.

A stand-in for uv makes the moments easy to hit; the last test interrupts a real installation.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path

import pytest

from schedfuzz.workers.build import ensure, examine
from schedfuzz.workers.environment import Environment, environment
from schedfuzz.workers.home import Home

RELEASE = "0.28.0"
BUILDER = """
import sys, uv
from pathlib import Path
from schedfuzz.workers.build import ensure
from schedfuzz.workers.home import Home
if sys.argv[2]:
    uv.find_uv_bin = lambda: sys.argv[2]
ensure("0.28.0", Home.locate(Path(sys.argv[1])), lambda line: print(line, flush=True))
"""


def silent(line: str) -> None:
    """Ignore a progress line."""


def start_builder(home: Home, tool: str = "") -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(home.root), tool], stdout=subprocess.PIPE, text=True
    )


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 20
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.02)
    return path.read_text().strip()


def is_running(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def lock_is_free(home: Home) -> bool:
    with environment(RELEASE, home).dir.with_name("0.28.0-cpu.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_two_processes_build_once(home: Home, cheap_install: Path) -> None:
    context = get_context("fork")
    builders = [context.Process(target=ensure, args=(RELEASE, home, silent)) for _ in range(3)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(30)
    assert [builder.exitcode for builder in builders] == [0, 0, 0]
    assert len(cheap_install.read_text().split()) == 1
    assert environment(RELEASE, home).problem() == ""


def test_the_second_builder_says_that_it_waits(home: Home, cheap_install: Path) -> None:
    context = get_context("fork")
    first = context.Process(target=ensure, args=(RELEASE, home, silent))
    first.start()
    wait_for(cheap_install)
    lines: list[str] = []
    ensure(RELEASE, home, lines.append)
    first.join(30)
    assert lines == ["0.28.0: waiting for the process that is building it"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_build_and_its_children(
    number: signal.Signals,
    home: Home,
    fake_uv: Callable[[str], str],
    cheap_install: Path,
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"
    tool = fake_uv(f"sleep 300 & echo $! $$ > {pids}; wait")
    with start_builder(home, tool) as builder:
        children = [int(word) for word in wait_for(pids).split()]
        builder.send_signal(number)
        status = builder.wait(30)
    assert status in (128 + number, -number)
    assert not any(is_running(pid) for pid in children)
    assert "did not finish" in environment(RELEASE, home).problem()
    assert ensure(RELEASE, home, silent).problem() == ""


def test_an_orphan_of_a_killed_builder_keeps_the_lock(
    home: Home, fake_uv: Callable[[str], str], tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    tool = fake_uv(f"echo $$ > {pids}; exec sleep 300")
    with start_builder(home, tool) as builder:
        orphan = int(wait_for(pids))
        builder.kill()
        builder.wait(30)
    try:
        assert not lock_is_free(home)
    finally:
        os.kill(orphan, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while not lock_is_free(home) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert lock_is_free(home)


@pytest.fixture
def neighbour(shared_home: Home, environment_028: Environment) -> Iterator[Home]:
    """A second home on the shared one's disk, with its cache: a build there costs few bytes."""
    root = Path(tempfile.mkdtemp(prefix="test-", dir=shared_home.root))
    (root / "uv-cache").symlink_to(shared_home.uv_cache)
    yield Home.locate(root)
    shutil.rmtree(root)


@pytest.mark.vllm
def test_a_real_interrupted_build_recovers(neighbour: Home) -> None:
    with start_builder(neighbour) as builder:
        assert builder.stdout is not None
        for line in builder.stdout:
            if "installing" in line:
                break
        wait_for_site_packages(neighbour)
        builder.send_signal(signal.SIGTERM)
        assert builder.wait(30) == 128 + signal.SIGTERM
    assert lock_is_free(neighbour)
    assert "did not finish" in environment(RELEASE, neighbour).problem()
    env = ensure(RELEASE, neighbour, silent)
    assert examine(env) == ""
    shutil.rmtree(next(env.site_packages.glob("msgspec-*.dist-info")))
    assert "its lock says msgspec" in examine(env)


def wait_for_site_packages(home: Home) -> None:
    """Wait until the installation has begun to write packages."""
    packages = environment(RELEASE, home).site_packages
    deadline = time.monotonic() + 30
    while not (packages.is_dir() and len(list(packages.iterdir())) > 4):
        assert time.monotonic() < deadline, "the installation never began"
        time.sleep(0.01)
