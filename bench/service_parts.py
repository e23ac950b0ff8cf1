"""Nouns: part of the service, its processes, CPU seconds, memory, open files.

What the measuring scripts of the service share: a cluster of one or two nodes on this machine with
a PostgreSQL of its own, and what each of its parts uses. The cluster and the server are those of
the tests.
"""

import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from clusters import Cluster, command_line
from postgres import Server, postgres_server

from schedfuzz.db.connect import open_store
from schedfuzz.workers.footprint import descendants
from schedfuzz.workers.home import Home

# The first that a command line holds says which part it is.
PARTS = (
    ("coordinator", "schedfuzz.service.coordinating"), ("hunt", "schedfuzz.service.hunting"),
    ("target", "/targets/"), ("actor", "ray::HuntActor"), ("triage", "ray::triage_task"),
    ("keeper", "schedfuzz cluster"), ("keeper", "-m schedfuzz"), ("ray", "ray"),
)  # fmt: skip
TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def measured_cluster(port: int) -> Iterator[tuple[Cluster, Server]]:
    """Yield a cluster that is not started, and its database's server."""
    with tempfile.TemporaryDirectory(prefix="bench") as root, postgres_server() as server:
        url = server.new_database()
        store = open_store(url)
        try:
            yield Cluster(Path(root), Home.locate().targets, url, store, port), server
        finally:
            store.close()


def parts(cluster: Cluster, server: Server, nodes: int) -> dict[str, list[int]]:
    """Return the processes of each part."""
    found = defaultdict(list)
    for node in range(nodes):
        for pid in descendants(cluster.keeper(node)):
            line = command_line(pid)
            found[next((part for part, text in PARTS if text in line), "other")].append(pid)
    card = server.folder / "data" / "postmaster.pid"
    found["database"] = descendants(int(card.read_text().split()[0]))
    return dict(found)


def cpu_seconds(pids: list[int]) -> float:
    """Return the CPU time of processes, and of those children that they have waited for."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / TICKS


def open_files(pids: list[int]) -> int:
    """Return how many files and sockets processes hold open."""
    total = 0
    for pid in pids:
        try:
            total += len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue
    return total
