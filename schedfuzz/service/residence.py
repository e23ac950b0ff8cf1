"""Nouns: residence.

Whether a keeper lives on this machine, and which processes belong to it. A lock on a file says
that it lives: the kernel lets go of it however the keeper ends. The list of processes is for what
outlived a keeper that could not end them.
"""

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.workers.footprint import descendants
from schedfuzz.workers.home import Home, make_directory

STOP_SECONDS = 90.0


class Resident(msgspec.Struct):
    """A keeper: its process, where its node is, and each of its processes with its start time."""

    pid: int
    address: str
    head: str
    ready: bool = False
    family: dict[int, int] = {}


class Residence:
    """The place of the keeper in one home."""

    def __init__(self, home: Home) -> None:
        self.folder = make_directory(home.root / "cluster")
        self.card = self.folder / "keeper.json"

    def resident(self) -> Resident | None:
        """Return the keeper that lives here, None when there is none."""
        with self._door() as door:
            if _locked(door):
                return None
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(self.card.read_bytes(), type=Resident)
        return None

    @contextlib.contextmanager
    def occupied(self, address: str, head: str) -> Iterator[Resident]:
        """Live here while the context lasts; what a predecessor left is ended first.

        Raises InputError when somebody lives here already.
        """
        with self._door() as door:
            if not _locked(door):
                raise InputError(
                    f"a cluster node runs already from {self.folder.parent}; `schedfuzz cluster "
                    "stop` ends it, or set SCHEDFUZZ_HOME to another directory"
                )
            self._clear()
            me = Resident(os.getpid(), address, head)
            self.write(me)
            try:
                yield me
            finally:
                self.card.unlink(missing_ok=True)

    def write(self, me: Resident) -> None:
        """Write down who lives here, and its processes of this moment."""
        me.family = {pid: start for pid in descendants(me.pid) if (start := _started(pid))}
        beside = self.card.with_suffix(".new")
        beside.write_bytes(msgspec.json.encode(me))
        beside.replace(self.card)

    def stop(self) -> bool:
        """End the keeper and wait for it; return whether there was one.

        Raises InfraError when it does not end.
        """
        resident = self.resident()
        if resident is None:
            self._clear()
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(resident.pid, signal.SIGTERM)
        end = time.monotonic() + STOP_SECONDS
        begun = _started(resident.pid)
        while self.resident() is not None or (begun and _started(resident.pid) == begun):
            if time.monotonic() > end:
                raise InfraError(f"the cluster's process {resident.pid} does not end; see its log")
            time.sleep(0.2)
        return True

    def _clear(self) -> None:
        """End what is left of a keeper that died without a chance to do so."""
        with contextlib.suppress(OSError, msgspec.DecodeError):
            left = msgspec.json.decode(self.card.read_bytes(), type=Resident)
            for pid, start in left.family.items():
                if pid != os.getpid() and _started(pid) == start:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
        self.card.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _door(self) -> Iterator[IO[bytes]]:
        with (self.folder / "lock").open("ab") as file:
            yield file


def _locked(file: IO[bytes]) -> bool:
    """Take the lock; return whether that was possible."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _started(pid: int) -> int:
    """Return when a process began, in clock ticks since the machine did; 0 if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    state, *numbers = stat.rpartition(")")[2].split()
    return 0 if state == "Z" else int(numbers[18])
