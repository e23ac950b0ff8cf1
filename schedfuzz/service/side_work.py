"""Nouns: side work.

What the coordinator's process does besides coordinating, in threads of its own, so that a slow
webhook, a scrape or a pruning never makes a hunt wait: notices, metrics and retention.
"""

import os
import threading
import time
from collections.abc import Callable

from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.db import notices
from schedfuzz.db.connect import Store
from schedfuzz.db.retention import prune
from schedfuzz.service import metrics
from schedfuzz.service.channels import Channels
from schedfuzz.service.logs import get
from schedfuzz.service.notify import deliver
from schedfuzz.service.ray_node import split_address

NOTICE_SECONDS = 5.0
PRUNE_SECONDS = 86_400.0
FIRST_PRUNE_SECONDS = 600.0  # a coordinator that is started again and again must get to it too
PRUNE = "SCHEDFUZZ_PRUNE"


class SideWork:
    """Delivers notices, and serves metrics at `address` (HOST:PORT, "" for nowhere)."""

    def __init__(self, store: Store, address: str) -> None:
        """Raises InputError for an address that is none, and for wrong settings of channels."""
        self.store = store
        self.channels = Channels.from_environment()
        self.host, self.port = split_address(address) if address else ("", 0)
        self.log = get().bind(part="side work")
        self._end = threading.Event()
        self._threads = [self._repeating("notices", NOTICE_SECONDS, NOTICE_SECONDS, self._notify)]
        if prunes():
            self._threads.append(
                self._repeating("retention", FIRST_PRUNE_SECONDS, PRUNE_SECONDS, self._prune)
            )
        self._server: metrics.Server | None = None

    def start(self) -> None:
        """Begin."""
        if self.host:
            self._server = metrics.serve(self.store, self.host, self.port)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End; a delivery that is under way is finished."""
        self._end.set()
        end = time.monotonic() + 15
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        if self._server is not None:
            self._server.stop()

    def _repeating(
        self, name: str, first: float, every: float, act: Callable[[], None]
    ) -> threading.Thread:
        """Return a thread that acts after `first` seconds, and again `every` so many."""

        def work() -> None:
            wait = first
            while not self._end.wait(wait):
                wait = every
                try:
                    act()
                except InfraError as error:
                    self.log.warning("database away", part=name, error=str(error))
                    wait = first
                except Exception as error:
                    self.log.error("side work failed", part=name, error=repr(error))

        return threading.Thread(target=work, name=name, daemon=True)

    def _notify(self) -> None:
        notices.post_missing(self.store, self.channels.names)
        deliver(self.store, self.channels)

    def _prune(self) -> None:
        counts = {name: count for name, count in prune(self.store).items() if count}
        self.log.info("pruned", **counts)


def prunes() -> bool:
    """Whether the environment leaves the pruning to us. Raises InputError."""
    said = os.environ.get(PRUNE, "on")
    if said not in ("on", "off"):
        raise InputError(f"{PRUNE} = {said!r}: write on or off")
    return said == "on"
