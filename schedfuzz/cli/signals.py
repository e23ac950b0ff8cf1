"""Nouns: stop request.

SIGINT and SIGTERM ask a long verb to stop after the scenario at hand, so that what it has is
stored; a second one ends it at once.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

EXIT_INTERRUPTED = 130


class StopRequest:
    """Whether somebody asked to stop."""

    def __init__(self) -> None:
        self.made = False


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn SIGINT and SIGTERM into a stop request while the context lasts."""
    request = StopRequest()

    def stop(signum: int, frame: FrameType | None) -> None:
        if request.made:
            os._exit(128 + signum)
        request.made = True

    saved = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in saved.items():
            signal.signal(number, handler)
