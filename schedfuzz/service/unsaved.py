"""Nouns: unsaved sighting.

What a hunt found while the database was away. It waits in a file of the node, which outlives the
hunt, its actor and the node's own restart; whoever hunts there next, with the database back, saves
it. A sighting is saved before its line is given up, so a death in between counts it twice at worst:
the finding is there, and there once.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

import msgspec

from schedfuzz.corpus.errors import InfraError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Verdict
from schedfuzz.workers.home import Home, make_directory


class Sighted(msgspec.Struct, frozen=True):
    """The arguments of `writes.record_verdict`, but for the store."""

    hunt: int
    before: str
    after: str
    verdict: Verdict
    scenario: Scenario
    steps: int
    execution: int
    seconds: float
    campaign: int | None


class Unsaved:
    """A node's sightings that wait for one database."""

    def __init__(self, home: Home, database: str) -> None:
        name = hashlib.sha256(database.encode()).hexdigest()[:16]
        self.path: Path = make_directory(home.root / "unsaved") / f"{name}.jsonl"

    def keep(self, sighted: Sighted) -> None:
        """Put a sighting where it outlives this process. Raises InfraError."""
        try:
            with self._locked() as file:
                file.write(msgspec.json.encode(sighted) + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InfraError(f"{self.path}: {error.strerror}") from error

    def save(self, record: Callable[[Sighted], object]) -> int:
        """Hand each sighting to `record` and forget it; return how many there were.

        Raises what `record` raises: those that it was not handed, and that one, stay.
        """
        if not self.path.exists() or not self.path.stat().st_size:
            return 0
        saved = 0
        with self._locked() as file:
            file.seek(0)
            lines = file.read().splitlines()
            try:
                for line in lines:
                    if (sighted := _read(line)) is not None:
                        record(sighted)
                    saved += 1
            finally:
                rest = b"".join(line + b"\n" for line in lines[saved:])
                file.truncate(0)
                file.write(rest)
                file.flush()
                os.fsync(file.fileno())
        return saved

    def _locked(self) -> IO[bytes]:
        file = self.path.open("a+b")
        fcntl.flock(file, fcntl.LOCK_EX)
        return file


def _read(line: bytes) -> Sighted | None:
    """Return a line's sighting, None for one that a full disk or a power cut has torn."""
    try:
        return msgspec.json.decode(line, type=Sighted)
    except msgspec.DecodeError:
        return None
