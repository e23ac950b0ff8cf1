"""Nouns: footprint.

What a process and all its descendants hold in memory. Shared pages count by their share (PSS), so
forked workers do not count their zygote's pages again.
"""

import contextlib
from pathlib import Path

PROC = Path("/proc")


def footprint(pid: int) -> int:
    """Return the bytes that process `pid` and its descendants hold; 0 for what is gone."""
    return sum(held(each) for each in descendants(pid))


def descendants(pid: int) -> list[int]:
    """Return `pid` and every process under it, parents first; those that end meanwhile may lack."""
    found = [pid]
    for each in found:
        with contextlib.suppress(OSError):
            for task in (PROC / str(each) / "task").iterdir():
                with contextlib.suppress(OSError):
                    found += map(int, (task / "children").read_text().split())
    return found


def held(pid: int) -> int:
    """Return the bytes that one process holds; 0 for one that is gone."""
    try:
        rollup = (PROC / str(pid) / "smaps_rollup").read_text()
    except OSError:
        return 0
    for line in rollup.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
