"""Nouns: ledger, plan, result.

What a bench has measured so far, in the JSON file that is its result in the end: written after each
measurement, so that a bench that was stopped goes on where it was.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from schedfuzz.corpus.errors import InputError

Result = dict[str, Any]
CURE = "name another file, or delete it to begin anew"


class _File(msgspec.Struct):
    bench: str
    plan: dict[str, Any]
    results: dict[str, Result]
    summary: Any = None


class Ledger:
    """Results by name; `save(text)` keeps the whole file (None: in memory only).

    The plan is what makes results comparable (table, budgets), so a file with another one is not
    continued.
    """

    def __init__(
        self, bench: str, plan: dict[str, Any], path: Path | None,
        save: Callable[[Path, str], None],
    ) -> None:  # fmt: skip
        """Take up the file at `path` if there is one. Raises InputError if it is another bench's.

        The file is written at once: better to learn now that it cannot be.
        """
        # As it will be read back: JSON has no tuples.
        self.file = _File(bench, msgspec.json.decode(msgspec.json.encode(plan)), {})
        self.path = path
        self._save = save
        if path is not None and path.exists() and path.stat().st_size:
            self._continue(path)
        self.write()

    def _continue(self, path: Path) -> None:
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_File)
        except OSError as error:
            raise InputError(f"{path}: cannot read it ({error.strerror}); {CURE}") from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise InputError(f"{path}: holds no results of a bench; {CURE}") from None
        if found.bench != self.file.bench:
            raise InputError(f"{path}: holds the results of `bench {found.bench}`; {CURE}")
        for name, value in self.file.plan.items():
            if found.plan.get(name) != value:
                raise InputError(f"{path}: was measured with another {name}; {CURE}")
        self.file.results = found.results

    def __contains__(self, name: str) -> bool:
        return name in self.file.results

    def __iter__(self) -> Iterator[Result]:
        return iter(self.file.results.values())

    def put(self, name: str, result: Result) -> None:
        """Keep a result at once."""
        self.file.results[name] = result
        self.write()

    def write(self, summary: Any = None) -> None:
        """Write the file, with a summary once there is one."""
        self.file.summary = summary
        if self.path is not None:
            data = msgspec.json.format(msgspec.json.encode(self.file), indent=1)
            self._save(self.path, data.decode() + "\n")
