"""Nouns: latest.

A campaign may name `latest` instead of a release. What that is today the package index says; when
it cannot be asked, what it said before is as good.
"""

import time
from collections.abc import Callable

from schedfuzz.corpus.errors import InfraError
from schedfuzz.workers.home import Home
from schedfuzz.workers.newest import newest_release

LATEST = "latest"
ASK_AGAIN_SECONDS = 3600.0


class Releases:
    """Turns a campaign's spelling into a target's."""

    def __init__(self, ask: Callable[[], str] | None = None) -> None:
        self._ask = ask or (lambda: newest_release(Home.locate()))
        self._newest = ""
        self._asked = 0.0

    def resolve(self, spelling: str) -> str:
        """Return the spelling with `latest` replaced by a release.

        Raises InfraError when that has never been known.
        """
        first, colon, rest = spelling.partition(":")
        return self._release() + colon + rest if first == LATEST else spelling

    def _release(self) -> str:
        if not self._newest or time.monotonic() - self._asked > ASK_AGAIN_SECONDS:
            try:
                self._newest = self._ask()
            except InfraError:
                if not self._newest:
                    raise
            self._asked = time.monotonic()
        return self._newest
