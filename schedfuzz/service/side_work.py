"""Nouns: side work.

What the coordinator's process does besides coordinating, in threads of its own, so that a slow
webhook or a scrape never makes a hunt wait: notices and metrics.
"""

import threading

from schedfuzz.corpus.errors import InfraError
from schedfuzz.db import notices
from schedfuzz.db.connect import Store
from schedfuzz.service import metrics
from schedfuzz.service.channels import Channels
from schedfuzz.service.logs import get
from schedfuzz.service.notify import deliver
from schedfuzz.service.ray_node import split_address

NOTICE_SECONDS = 5.0


class SideWork:
    """Delivers notices, and serves metrics at `address` (HOST:PORT, "" for nowhere)."""

    def __init__(self, store: Store, address: str) -> None:
        """Raises InputError for an address that is none, and for wrong settings of channels."""
        self.store = store
        self.channels = Channels.from_environment()
        self.host, self.port = split_address(address) if address else ("", 0)
        self.log = get().bind(part="side work")
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._notify, name="notices", daemon=True)
        self._server: metrics.Server | None = None

    def start(self) -> None:
        """Begin."""
        if self.host:
            self._server = metrics.serve(self.store, self.host, self.port)
        self._thread.start()

    def stop(self) -> None:
        """End; a delivery that is under way is finished."""
        self._end.set()
        self._thread.join(15)
        if self._server is not None:
            self._server.stop()

    def _notify(self) -> None:
        while not self._end.wait(NOTICE_SECONDS):
            try:
                notices.post_missing(self.store, self.channels.names)
                deliver(self.store, self.channels)
            except InfraError as error:
                self.log.warning("database away", error=str(error))
            except Exception as error:
                self.log.error("notices failed", error=repr(error))
