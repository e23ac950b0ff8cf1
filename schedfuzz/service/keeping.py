"""Nouns: kept lease.

Whoever works on a job renews its lease from a thread of its own, and learns there that it has lost
the job, that its campaign was paused, or that the database is gone for longer than the lease lasts.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from schedfuzz.corpus.errors import InfraError
from schedfuzz.db import jobs
from schedfuzz.db.connect import Store
from schedfuzz.db.jobs import Lease

LEASE_SECONDS = 90.0
RENEWALS = 4  # tries within one lease


class Kept:
    """A lease that is being renewed; `lost` once somebody else may have the job."""

    def __init__(self, store: Store, lease: Lease, seconds: float) -> None:
        self.store = store
        self.lease = lease
        self.lost = False
        self._seconds = seconds
        self._renewed = time.monotonic()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)

    def _keep(self) -> None:
        while not self._end.wait(self._seconds / RENEWALS):
            try:
                self.lost = not jobs.renew(self.store, self.lease, self._seconds)
                self._renewed = time.monotonic()
            except InfraError:
                # The database is away. It may come back before the lease runs out.
                self.lost = time.monotonic() - self._renewed > self._seconds
            if self.lost:
                return

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def stop(self) -> None:
        """Renew no more."""
        self._end.set()
        self._thread.join()


@contextlib.contextmanager
def kept(store: Store, lease: Lease, seconds: float = LEASE_SECONDS) -> Iterator[Kept]:
    """Renew a lease while the context lasts."""
    holder = Kept(store, lease, seconds)
    holder.start()
    try:
        yield holder
    finally:
        holder.stop()


def patiently(act: Callable[[], object], seconds: float = LEASE_SECONDS) -> None:
    """Do what needs the database, again and again while that is away, for so long.

    Raises InfraError when it stays away.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            act()
            return
        except InfraError:
            if time.monotonic() >= end:
                raise
            time.sleep(1.0)
