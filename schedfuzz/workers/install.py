"""Nouns: step, lock, torch source, borrowed dependencies, warm-up.

The steps of a build, each one child process whose output goes to the build log. A child inherits
the build's lock descriptor: should its parent be killed outright, the lock stays held until the
orphan has ended, so the next builder never works beside it.
"""

import errno
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import uv

from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.workers.children import Signals, run_child
from schedfuzz.workers.environment import EXTRAS, PACKAGES, Environment
from schedfuzz.workers.home import Home

WARM_MODULES = ("vllm.v1.engine.core", "vllm.engine.arg_utils")
WARM_CODE = "import vllm, {modules}; print('schedfuzz: vllm', vllm.__version__)"
PATH_FILE = "schedfuzz-base.pth"
UNSOLVABLE = "No solution found"
NO_SPACE = "no space left on the disk"
FULL_DISK_BYTES = 16 << 20
REASON_CHARS = 300


class StepFailed(Exception):
    """A child process ended badly; `args[0]` is its last meaningful line."""


class DependenciesMissing(InfraError):
    """The release exists, but something that it pins does not, for this machine."""


class Installer:
    """Runs the steps of one environment's build; `lock_fd` is the held build lock."""

    def __init__(self, env: Environment, home: Home, lock_fd: int, signals: Signals) -> None:
        self.env = env
        self.home = home
        self.lock_fd = lock_fd
        self.signals = signals
        self.torch_source: list[str] = []

    def install(self, progress: Callable[[str], None]) -> None:
        """Fill `env.dir` (empty but for the log).

        Raises InputError, DependenciesMissing or another InfraError.
        """
        name = self._name
        progress(f"{name}: resolving its dependencies")
        self._resolve()
        progress(f"{name}: installing (the first target downloads about 700 MB, others less)")
        self._unpack()
        self._warm_up(progress)

    def borrow(self, base: Environment, progress: Callable[[str], None]) -> None:
        """Fill `env.dir` with vLLM alone, which imports all else from the ready `base`.

        Raises InputError or InfraError.
        """
        self.env.lock.write_text(f"{PACKAGES[self.env.build]}=={self.env.release}\n")
        self._unpack()
        # A path file's directory comes after its own: this release's vLLM and metadata win over
        # the base's. Relative, so that no spelling of the home can break the file.
        place = os.path.relpath(base.site_packages, self.env.site_packages)
        (self.env.site_packages / PATH_FILE).write_text(f"{place}\n")
        self._warm_up(progress)

    def _unpack(self) -> None:
        """Make the virtual environment and install the lock in it."""
        self._step("install", self._uv("venv", "--python", sys.executable, self._venv))
        self._step(
            "install",
            self._uv("pip", "install", "--python", str(self.env.python), "--no-deps",
                     *self.torch_source, "-r", str(self.env.lock)),
        )  # fmt: skip

    def _warm_up(self, progress: Callable[[str], None]) -> None:
        """Import the engine once, so that later starts find bytecode; check the version."""
        progress(f"{self._name}: warming up its imports (about a minute, once)")
        code = WARM_CODE.format(modules=", ".join(WARM_MODULES))
        output = self._step("import", [str(self.env.python), "-c", code], self.env.variables())
        said = [line.split()[-1] for line in output.splitlines() if line.startswith("schedfuzz: ")]
        if [version.partition("+")[0] for version in said] != [self.env.release]:
            raise InfraError(
                f"target {self.env.release}: the installed vLLM calls itself {said}; {self._log}"
            )

    def _resolve(self) -> None:
        """Write the lock: find-links first when it holds a torch wheel, then uv's own index."""
        command = self._compile_command()
        reasons: list[str] = []
        for source in torch_sources(self.env):
            # A directory with another torch than this release pins is as good as none.
            try:
                self._run([*command, *source])
            except StepFailed as failure:
                reasons.append(str(failure))
            else:
                self.torch_source = source
                return
        raise self._unresolved(reasons)

    def _compile_command(self) -> list[str]:
        """Return the command that writes the lock, without a source of torch."""
        wanted = self.env.dir / "requirements.in"
        lines = (f"{PACKAGES[self.env.build]}=={self.env.release}", *EXTRAS)
        wanted.write_text("".join(f"{line}\n" for line in lines))
        excludes = self.env.dir / "excludes.txt"
        excludes.write_text("".join(f"{name}\n" for name in self.env.excludes()))
        return self._uv(
            "pip", "compile", "--python", sys.executable, "--excludes", str(excludes),
            "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links",
            "-o", str(self.env.lock), str(wanted),
        )  # fmt: skip

    def _unresolved(self, reasons: list[str]) -> InputError | InfraError:
        """Return the error to raise when every source of torch failed, for a reason each."""
        *others, last = reasons
        tried = "".join(f" (and from PIP_FIND_LINKS: {other})" for other in others)
        error = self._failure("resolve", last, tried)
        missing = any(text.startswith(UNSOLVABLE) and not self._unknown(text) for text in reasons)
        if isinstance(error, InfraError) and missing and not last.startswith(NO_SPACE):
            return DependenciesMissing(str(error))
        return error

    def _step(self, what: str, command: list[str], env: dict[str, str] | None = None) -> str:
        """Run one step and return its output. Raises InputError or InfraError, one line each."""
        try:
            return self._run(command, env)
        except StepFailed as failure:
            reason = str(failure)
        raise self._failure(what, reason)

    def _failure(self, what: str, reason: str, tried: str = "") -> InputError | InfraError:
        """Return the error to raise for a step; `tried` is added to its reason."""
        package, release = PACKAGES[self.env.build], self.env.release
        if self._unknown(reason):
            return InputError(
                f"target {release}: PyPI has no {package} {release} for this Python; "
                f"`pip index versions {package}` lists the releases"
            )
        return InfraError(f"target {release}: {what} failed: {reason}{tried}; {self._log}")

    def _unknown(self, reason: str) -> bool:
        return f"no version of {PACKAGES[self.env.build]}=={self.env.release}" in reason

    def _run(self, command: list[str], env: dict[str, str] | None = None) -> str:
        with self.env.log.open("a+", encoding="utf-8", errors="replace") as log:
            log.write(f"$ {' '.join(command)}\n")
            log.flush()
            start = log.seek(0, os.SEEK_END)
            env = env or self._uv_variables()
            status = run_child(command, self.env.dir, env, log, self.lock_fd, self.signals)
            log.seek(start)
            output = log.read()
        if status:
            raise StepFailed(self._reason(output, status))
        return output

    def _reason(self, output: str, status: int) -> str:
        full = shutil.disk_usage(self.env.dir).free < FULL_DISK_BYTES
        if full or os.strerror(errno.ENOSPC) in output:
            return f"{NO_SPACE} of {self.home.root} (a target needs 0.5 to 2 GB)"
        return last_lines(output) or f"exit status {status}"

    def _uv(self, *arguments: str | Path) -> list[str]:
        try:
            tool = uv.find_uv_bin()
        except FileNotFoundError:
            raise InfraError("uv is not installed beside schedfuzz; `pip install uv`") from None
        return [tool, *map(str, arguments)]

    def _uv_variables(self) -> dict[str, str]:
        dropped = ("VIRTUAL_ENV", "PYTHONPATH")
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        return kept | {"UV_CACHE_DIR": str(self.home.uv_cache), "UV_NO_PROGRESS": "1"}

    @property
    def _name(self) -> str:
        return f"{PACKAGES[self.env.build]} {self.env.release}"

    @property
    def _venv(self) -> Path:
        return self.env.dir / "venv"

    @property
    def _log(self) -> str:
        return f"see {self.env.log}"


def torch_sources(env: Environment) -> list[list[str]]:
    """Return the uv options that may find this environment's torch, in the order to try them.

    A CPU torch has a local version, which PyPI never carries. With both options at once uv still
    asks the remote index, which fails on a machine that is offline: hence one after the other.
    """
    if env.build == "gpu":
        return [[]]
    places = os.environ.get("PIP_FIND_LINKS", "").split()
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    holds = any(
        Path(place).is_dir() and any(Path(place).glob(f"torch-*-{tag}-*.whl")) for place in places
    )
    links = [option for place in places for option in ("--find-links", place)]
    return ([links] if holds else []) + [["--torch-backend", "cpu"]]


def last_lines(output: str) -> str:
    """Return one line: uv's first `error:` and last `cause:`, or the last line of any output."""
    lines = [line.strip() for line in output.splitlines()]
    lines = [line for line in lines if line and not line.startswith("hint:")]
    if not lines:
        return ""
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    causes = [line.removeprefix("cause: ") for line in lines if line.startswith("cause: ")]
    parts = errors[:1] + causes[-1:] or lines[-1:]
    return ": ".join(parts)[:REASON_CHARS]
