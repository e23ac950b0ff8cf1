"""Nouns: ensure, build lock, doctor.

Builders of one environment take turns on a file lock and look again once they hold it, so the
second of two finds the first one's work. Virtual environments cannot be moved: each is built where
it will stand, and what was there before is wiped. Who builds a release that borrows takes its
base's lock too, while holding its own; a base never borrows, so nobody waits in a circle.
"""

import contextlib
import fcntl
import importlib.metadata
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator

import msgspec

from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.workers.children import deferred_signals
from schedfuzz.workers.environment import (
    BASE_RELEASE,
    Environment,
    environment,
    list_environments,
)
from schedfuzz.workers.home import CURE, Home
from schedfuzz.workers.install import DependenciesMissing, Installer
from schedfuzz.workers.targets import parse_release

IMPORT_SECONDS = 300
Progress = Callable[[str], None]


def ensure(release: str, home: Home, progress: Progress) -> Environment:
    """Return the ready environment of `release`, building or rebuilding it when it is not ready.

    A release older than BASE_RELEASE whose pinned dependencies cannot be found borrows those of
    BASE_RELEASE, which is built first. `progress` gets a line per step; a ready environment costs
    a few file reads. Raises InputError for a release that does not exist, InfraError naming what
    failed and the log.
    """
    env = environment(parse_release(release), home)
    if not env.problem():
        return env
    with _build_lock(env, home, progress) as lock_fd, deferred_signals() as signals:
        problem = env.own_problem()
        if problem:
            if problem != "not built":
                progress(f"{env.dir}: {problem}; rebuilding it")
            _build(env, home, Installer(env, home, lock_fd, signals), progress)
        elif env.base is not None:
            _ensure_base(env, home, progress)
    return env


def remove(release: str, home: Home, progress: Progress) -> None:
    """Delete the environment of `release`, and tell `progress` who borrowed from it.

    Raises InputError when there is none.
    """
    env = environment(parse_release(release), home)
    if not env.dir.is_dir():
        raise InputError(f"target {release} is not built; `schedfuzz targets list` shows them")
    with _build_lock(env, home, progress):
        _wipe(env)
    for other in list_environments(home):
        if other.base == env:
            progress(f"{other.release} borrowed from {release}: `schedfuzz targets add` mends it")


def doctor(home: Home) -> list[tuple[Environment, str]]:
    """Return each environment in `home` with its first problem ("" for a healthy one).

    Costs an import of vLLM (10 to 60 s) an environment.
    """
    return [(env, examine(env)) for env in list_environments(home)]


def examine(env: Environment) -> str:
    """Return the first problem of `env`: marker, then packages against the lock, then import."""
    return env.problem() or _packages_problem(env) or _import_problem(env)


def _build(env: Environment, home: Home, installer: Installer, progress: Progress) -> None:
    base = ""
    try:
        _wipe(env)
        env.dir.mkdir(parents=True)
        try:
            installer.install(progress)
        except DependenciesMissing:
            if not _may_borrow(env.release):
                raise
            base = BASE_RELEASE
            _borrow(env, home, installer, progress)
        _write_marker(env, base)
    except InputError:
        _wipe(env)  # no such release: leave nothing to list or to mend
        raise
    except OSError as error:
        raise InfraError(
            f"target {env.release}: cannot build in {env.dir}: {error.strerror}; free some space "
            f"(a target needs 0.5 to 2 GB), or {CURE}"
        ) from error
    progress(f"{env.release}: ready in {env.dir}")


def _may_borrow(release: str) -> bool:
    """Return whether `release` is older than the base, release candidates left aside."""

    def numbers(text: str) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", text)[:3]]

    return numbers(release) < numbers(BASE_RELEASE)


def _borrow(env: Environment, home: Home, installer: Installer, progress: Progress) -> None:
    progress(
        f"{env.release}: what it pins cannot be found here, so it borrows the dependencies of "
        f"{BASE_RELEASE}: enough for the simulated runner, its compiled kernels do not load"
    )
    installer.borrow(_ensure_base(env, home, progress), progress)


def _ensure_base(env: Environment, home: Home, progress: Progress) -> Environment:
    try:
        return ensure(BASE_RELEASE, home, progress)
    except (InfraError, InputError) as error:
        raise InfraError(f"target {env.release}: cannot borrow dependencies: {error}") from error


def _write_marker(env: Environment, base: str) -> None:
    draft = env.marker.with_suffix(".new")
    draft.write_bytes(msgspec.json.encode(env.expected_marker(base)))
    draft.replace(env.marker)


def _wipe(env: Environment) -> None:
    """Remove the environment, marker first: half removed must not look ready."""
    env.marker.unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(env.dir)


@contextlib.contextmanager
def _build_lock(env: Environment, home: Home, progress: Progress) -> Iterator[int]:
    """Hold the environment's lock file, waiting for whoever holds it; yield its descriptor."""
    path = home.targets / f"{env.dir.name}.lock"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise InputError(f"{path}: cannot open it ({error.strerror}); {CURE}") from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"{env.release}: waiting for the process that is building it")
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd
    finally:
        os.close(fd)


def _packages_problem(env: Environment) -> str:
    """Compare the lock with the installed distributions' metadata."""
    locked = dict(
        line.split(" ;")[0].strip().split("==", 1)
        for line in env.lock.read_text().splitlines()
        if "==" in line
    )
    found = {
        _normal(item.metadata["Name"]): item.version
        for item in importlib.metadata.distributions(path=[str(env.site_packages)])
        if item.metadata["Name"]
    }
    for name, version in locked.items():
        installed = found.get(_normal(name))
        if installed != version:
            return f"its lock says {name} {version}, installed is {installed or 'none'}"
    extra = sorted(found.keys() - {_normal(name) for name in locked})
    return f"{extra[0]} is installed but not in its lock" if extra else ""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _import_problem(env: Environment) -> str:
    command = [str(env.python), "-c", "import vllm; print('version', vllm.__version__)"]
    try:
        answer = subprocess.run(
            command, env=env.variables(), cwd=env.dir, capture_output=True, text=True,
            timeout=IMPORT_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"`import vllm` takes longer than {IMPORT_SECONDS} s"
    except OSError as error:
        return f"its interpreter does not run ({error.strerror})"
    if answer.returncode:
        lines = answer.stderr.strip().splitlines() or [f"exit status {answer.returncode}"]
        return f"`import vllm` fails: {lines[-1]}"
    version = answer.stdout.split()[-1].partition("+")[0]
    return "" if version == env.release else f"`import vllm` answers version {version}"
