"""Nouns: target processes, seen from outside.

What a user with `ps` and a terminal sees of a running command, and the patience to wait for it.
"""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOR_EVER = ("--time", 10**6)
PATIENCE = 240.0  # seconds for what takes a few on a machine with nothing else to do


def read_to(process: subprocess.Popen[str], start: str) -> None:
    """Read standard error up to a line that begins with `start`."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if line.startswith(start):
            return
    raise AssertionError("".join(seen))


def until(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Return the first answer that is true; fail with the last one after so many seconds."""
    end = time.monotonic() + seconds
    answer = None
    while time.monotonic() < end:
        answer = condition()
        if answer:
            return answer
        time.sleep(0.1)
    raise AssertionError(f"it did not happen in {seconds:.0f} s; last seen: {answer!r}")


def processes(hunt: int) -> dict[int, int]:
    """Return the target processes of a supervisor, dead or alive, as {pid: parent}."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if f'"parent": {hunt},'.encode() in (entry / "cmdline").read_bytes():
                    stat = (entry / "stat").read_text().rpartition(")")[2].split()
                    found[int(entry.name)] = int(stat[1])
            except OSError:
                pass
    return found


def zygotes(hunt: int) -> list[int]:
    return sorted(pid for pid, parent in processes(hunt).items() if parent == hunt)


def workers(hunt: int) -> list[int]:
    return sorted(pid for pid, parent in processes(hunt).items() if parent != hunt)


def gone(hunt: int) -> bool:
    return not processes(hunt)
