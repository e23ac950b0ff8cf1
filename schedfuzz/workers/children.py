"""Nouns: child, deferred signals.

A signal that arrives while a child is being started would lose its process id, and so leave an
orphan. So signals are only noted, and looked at between short waits.
"""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

POLL_SECONDS = 0.1
GRACE_SECONDS = 5.0


class Signals:
    """The numbers of the signals that came since they were deferred."""

    def __init__(self) -> None:
        self.caught: list[int] = []

    def note(self, number: int, frame: object) -> None:
        """Be the handler."""
        self.caught.append(number)

    def check(self) -> None:
        """Raise KeyboardInterrupt for a noted SIGINT, SystemExit (128 + number) for another."""
        if self.caught:
            number = self.caught[0]
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


@contextlib.contextmanager
def deferred_signals() -> Iterator[Signals]:
    """Note SIGINT, SIGTERM and SIGHUP instead of acting; act on leaving, if nobody has before.

    In another thread than the main one, and for ignored signals, nothing changes.
    """
    signals = Signals()
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, signals.note)
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    signals.check()


def run_child(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], output: IO[str], lock_fd: int,
    signals: Signals,
) -> int:  # fmt: skip
    """Run a child in its own process group, which never outlives this call; return its status.

    Its stdout and stderr go to `output`; it inherits `lock_fd`. Raises what `Signals.check` does.
    """
    signals.check()
    child = subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        process_group=0, pass_fds=(lock_fd,),
    )  # fmt: skip
    try:
        while True:
            signals.check()
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(POLL_SECONDS)
    finally:
        _end_group(child)


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End what is left of the child's process group, politely first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_SECONDS)
