"""Nouns: stop request.

SIGINT, SIGTERM and SIGHUP ask a long verb to stop after the scenario at hand, so that what it has
is stored; a second one ends it at once. At any other time they leave through the code that closes
what is open.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

EXIT_INTERRUPTED = 130
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequest:
    """Whether somebody asked to stop."""

    def __init__(self) -> None:
        self.made = False


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn the signals into a stop request while the context lasts."""
    request = StopRequest()

    def stop(signum: int, frame: FrameType | None) -> None:
        if request.made:
            os._exit(128 + signum)
        request.made = True

    saved = _handle(stop)
    try:
        yield request
    finally:
        for number, handler in saved.items():
            signal.signal(number, handler)


def leave_on_signals() -> None:
    """Turn the signals into SystemExit from now on, outside of `stop_on_signals`."""

    def leave(signum: int, frame: FrameType | None) -> None:
        sys.exit(EXIT_INTERRUPTED)

    _handle(leave)


def _handle(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Set the handlers and return the former ones; SIGHUP stays ignored under nohup."""
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    numbers = [number for number in NUMBERS if number != signal.SIGHUP or not ignored]
    return {number: signal.signal(number, handler) for number in numbers}
