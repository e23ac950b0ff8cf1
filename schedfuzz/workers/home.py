"""Nouns: Home.

One directory holds everything schedfuzz keeps between runs: target environments, campaign
corpora, the default database, uv's cache and the logs. Environments and cache share it so that
uv can hard-link from one to the other.
"""

import contextlib
import errno
import os
from dataclasses import dataclass
from pathlib import Path

from schedfuzz.corpus.errors import InputError

LOG_BYTES = 10 << 20
CURE = "set SCHEDFUZZ_HOME to a writable directory"


@dataclass(frozen=True)
class Home:
    """The directories of one installation; each property that names one creates it.

    Every property may raise InputError naming the path that cannot be used, and the cure.
    """

    root: Path

    @classmethod
    def locate(cls, root: Path | None = None) -> "Home":
        """Return the home at `root`, else at $SCHEDFUZZ_HOME, else in the user's cache directory.

        Raises InputError when the directory cannot be created or written.
        """
        chosen = root or Path(os.environ.get("SCHEDFUZZ_HOME") or _cache())
        path = Path(os.path.abspath(chosen.expanduser()))
        if "?" in str(path):
            raise InputError(f"{path}: a home's path may not hold '?' (database URLs); {CURE}")
        return cls(make_directory(path))

    @property
    def targets(self) -> Path:
        """Return where the environments stand, one directory a release and build."""
        return make_directory(self.root / "targets")

    @property
    def uv_cache(self) -> Path:
        """Return uv's cache of downloaded packages."""
        return make_directory(self.root / "uv-cache")

    @property
    def logs(self) -> Path:
        """Return where campaigns write their logs."""
        return make_directory(self.root / "logs")

    @property
    def database_url(self) -> str:
        """Return the SQLAlchemy URL of the default database file."""
        return f"sqlite:///{self.root / 'schedfuzz.db'}"

    def corpus(self, before: str, after: str) -> Path:
        """Return the corpus directory of the pair of target names."""
        return make_directory(self.root / "corpus" / f"{before}..{after}")

    def corpora(self) -> list[Path]:
        """Return the corpus directory of every pair that has one, named `BEFORE..AFTER`."""
        return sorted(
            path for path in make_directory(self.root / "corpus").iterdir() if path.is_dir()
        )


def _cache() -> Path:
    # Here, for where the pytest plugin runs there is vLLM and little else.
    import platformdirs

    return platformdirs.user_cache_path("schedfuzz")


def trim_log(log: Path) -> None:
    """Empty a log that has grown beyond LOG_BYTES; whoever appends to it just goes on."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > LOG_BYTES:
            os.truncate(log, 0)


def make_directory(path: Path, cure: str = CURE) -> Path:
    """Create `path` with its parents and return it.

    Raises InputError, one line with the path and the cure, when it cannot be created or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{path}: a file is in the way of this directory; {cure}") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(f"{path}: no space left on the disk; free some, or {cure}") from None
        raise InputError(f"{path}: cannot create it ({error.strerror}); {cure}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise InputError(f"{path}: this directory is not writable; {cure}")
    return path


def write_file(path: Path, text: str) -> None:
    """Write a whole file or leave what was there. Raises InputError naming the path."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        why = error.strerror
        raise InputError(f"{path}: cannot write it ({why}); name another place") from None
