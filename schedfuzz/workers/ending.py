"""Nouns: ending.

What a worker's wait status says about why it ended. Only a fault of the process itself speaks
about vLLM; a signal from outside (the out-of-memory killer, an administrator) proves nothing.
"""

import os
import signal
from typing import Literal

from schedfuzz.corpus.trace import Component, Kind, Trace, Violation
from schedfuzz.workers.target.wire import EXIT_BROKEN_FRAME, EXIT_RECYCLE

OWN_SIGNALS = {
    signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS,
    signal.SIGTRAP,
}  # fmt: skip

Ending = Literal["recycled", "broken frame", "killed", "died"]


def ending(status: int) -> tuple[Ending, str]:
    """Return why a worker ended and its signal or exit code in words."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        known: dict[int, Ending] = {EXIT_RECYCLE: "recycled", EXIT_BROKEN_FRAME: "broken frame"}
        return known.get(code, "died"), f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal
        name = f"signal {-code}"
    return ("died" if -code in OWN_SIGNALS else "killed"), name


def violated(kind: Kind, rule: str, detail: str, component: Component = "scheduler") -> Trace:
    """Return the trace of a run whose worker could not write it."""
    broken = Violation(kind, rule, detail, 0, component=component)
    return Trace("violated", violations=(broken,))
