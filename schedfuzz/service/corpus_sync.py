"""Nouns: corpus synchronization.

The guide knows a directory, the cluster a table. What the guide adds to its directory goes to the
table, what others added there comes as files, and what a distillation dropped is deleted. A full
disk costs what would have come, and nothing that is stored.
"""

import contextlib
from pathlib import Path

from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.db import shared_corpus
from schedfuzz.db.connect import Store

NAME_CHARS = 40


class CorpusSync:
    """Keeps one directory and one pair's table alike; `kept` is the table's size."""

    def __init__(self, store: Store, before: str, after: str, directory: Path) -> None:
        self.store = store
        self.before = before
        self.after = after
        self.directory = directory
        self.kept = 0
        self._known: dict[str, Path] = {}  # scenario id -> file
        self._read: set[Path] = set()

    def turn(self) -> None:
        """Exchange what is new. Raises InfraError when the database fails."""
        shared_corpus.add(self.store, self.before, self.after, self._unread())
        kept = shared_corpus.ids(self.store, self.before, self.after)
        self.kept = len(kept)
        for scenario_id, scenario in shared_corpus.load(
            self.store, sorted(kept - self._known.keys())
        ).items():
            self._write(scenario_id, scenario)
        for scenario_id in self._known.keys() - kept:
            self._known.pop(scenario_id).unlink(missing_ok=True)

    def _unread(self) -> list[Scenario]:
        found = []
        for file in sorted(self.directory.iterdir()):
            if file in self._read or file.name.startswith("."):
                continue
            self._read.add(file)
            with contextlib.suppress(InputError, OSError):
                scenario = codec.load(file)
                self._known.setdefault(codec.scenario_id(scenario), file)
                found.append(scenario)
        return found

    def _write(self, scenario_id: str, scenario: Scenario) -> None:
        file = self.directory / scenario_id[:NAME_CHARS]
        beside = file.with_name(f".{file.name}")
        try:
            beside.write_bytes(codec.encode(scenario))
            beside.replace(file)
        except OSError:
            beside.unlink(missing_ok=True)
            return
        self._known[scenario_id] = file
        self._read.add(file)
