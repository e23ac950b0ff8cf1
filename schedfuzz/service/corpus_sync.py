"""Nouns: corpus synchronization.

The guide knows a directory, the cluster a table. What the guide adds to its directory goes to the
table, what others added there comes as files, and what a distillation dropped is deleted. Between
whole readings only what changed is read, and of many additions some at random are taken: a thousand
hunts would else spend their time on what the others found. A full disk costs what would have come,
and nothing that is stored.
"""

import contextlib
import random
from datetime import datetime, timedelta
from pathlib import Path

from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.db import rows, shared_corpus
from schedfuzz.db.connect import Store

NAME_CHARS = 40
TAKEN = 50  # of others' additions, a turn
WHOLE = timedelta(minutes=10)  # between whole readings
# Nodes' clocks differ, and what was written before a reading may be committed after it.
OVERLAP = timedelta(minutes=2)


class CorpusSync:
    """Keeps one directory and one pair's table alike."""

    def __init__(self, store: Store, before: str, after: str, directory: Path) -> None:
        self.store = store
        self.before = before
        self.after = after
        self.directory = directory
        self._kept: set[str] = set()  # as last read
        self._whole_at: datetime | None = None
        self._read_at = rows.now()
        self._known: dict[str, Path] = {}  # scenario id -> file
        self._read: set[Path] = set()

    def turn(self) -> None:
        """Exchange what is new. Raises InfraError when the database fails."""
        shared_corpus.add(self.store, self.before, self.after, self._unread())
        wanted = self._take()
        for scenario_id, scenario in shared_corpus.load(self.store, wanted).items():
            self._write(scenario_id, scenario)
        for scenario_id in self._known.keys() - self._kept:
            self._known.pop(scenario_id).unlink(missing_ok=True)

    @property
    def kept(self) -> int:
        """How many entries the table keeps."""
        return len(self._kept)

    def _take(self) -> list[str]:
        """Read the table; return the ids whose scenarios are to come."""
        moment, first = rows.now(), self._whole_at is None
        if self._whole_at is None or not timedelta() <= moment - self._whole_at < WHOLE:
            self._kept = shared_corpus.ids(self.store, self.before, self.after)
            self._whole_at = moment
        else:
            since = self._read_at - OVERLAP
            added, dropped = shared_corpus.changes(self.store, self.before, self.after, since)
            self._kept = (self._kept | added) - dropped
        self._read_at = moment
        new = sorted(self._kept - self._known.keys())
        return new if first or len(new) <= TAKEN else random.sample(new, TAKEN)

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
