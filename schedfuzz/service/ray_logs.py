"""Nouns: Ray's log of a process.

Ray gives every process of its own a handful of log files and keeps them as long as the machine's
node runs. A hunt's slice is a process, so in weeks they would be tens of thousands.
"""

import time
from pathlib import Path

FOLDER = Path("/tmp/ray/session_latest/logs")
KEPT_SECONDS = 24 * 3600.0
OF_PROCESSES = (
    "worker-*", "python-core-worker-*", "python-core-driver-*", "events/event_CORE_WORKER_*",
    "export_events/event_EXPORT_TASK_*",
)  # fmt: skip


def age_out(folder: Path = FOLDER, seconds: float = KEPT_SECONDS) -> int:
    """Delete the logs of processes that wrote nothing for so long; return how many went.

    A process that still lives goes on writing into its deleted file, which nobody reads.
    """
    gone = 0
    for pattern in OF_PROCESSES:
        for path in folder.glob(pattern):
            try:
                if time.time() - path.lstat().st_mtime > seconds:
                    path.unlink()
                    gone += 1
            except OSError:  # of another user, or deleted by another node of this machine
                continue
    return gone
