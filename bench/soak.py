"""Nouns: soak, figure of a part, growth.

Whether a cluster keeps its size. Two nodes hunt and triage on one machine, in short slices, so that
every process of a hunt is made and ended many times. Now and then it writes down, for each part:
processes, memory (shared pages by their share), open files; and for the machine: files of the
homes, of Ray's folder and of shared memory, and Ray's objects. Prints a row each time; at the end,
for each figure, the medians of the second and of the last quarter of the time and their ratio.
Exits with 1 if a process is left after the cluster was stopped.

    .venv/bin/python bench/soak.py 0.28.0 0.29.0 [--time 3600] [--slice 60]
"""

import argparse
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from service_parts import Cluster, Server, command_line, measured_cluster, open_files, parts

from schedfuzz.db import campaigns, finding_lists, shared_corpus
from schedfuzz.workers.footprint import held

PORT = 28479
# A raylet writes its state here every ten seconds. The client that could ask for it needs gRPC,
# which the small Ray does not bring, and would leave log files of its own.
RAY_STATE = Path("/tmp/ray/session_latest/logs/debug_state.txt")
# What a slice leaves while it is being handed on, not what it keeps.
PARTS = ("coordinator", "keeper", "ray", "actor", "hunt", "target", "triage", "database")

Row = dict[str, Any]


def main() -> None:
    """Run the soak and print."""
    options = _options()
    rows, left = [], []
    with measured_cluster(PORT) as (cluster, server):
        try:
            cluster.start()
            cluster.join()
            cluster.run(
                "campaign", "add", options.before, options.after, "--hunts", 2,
                "--slice", options.slice, "--name", "soak",
            )  # fmt: skip
            for row in _watched(cluster, server, options.time, options.every):
                rows.append(row)
                print(json.dumps(row), flush=True)
                if options.json:
                    options.json.write_text(json.dumps(rows) + "\n")
            seen = {pid for pids in parts(cluster, server, 2).values() for pid in pids}
            seen -= set(parts(cluster, server, 0)["database"])
        finally:
            cluster.stop()
        left = [line for line in map(command_line, seen) if line]
    for line in _growth(rows):
        print(line)
    print(f"left over: {left}")
    sys.exit(1 if left else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--time", type=float, default=3600.0)
    parser.add_argument("--slice", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=30.0)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _watched(cluster: Cluster, server: Server, seconds: float, every: float) -> Iterator[Row]:
    start = time.monotonic()
    while time.monotonic() < start + seconds:
        time.sleep(every)
        yield {"minute": round((time.monotonic() - start) / 60, 2)} | _look(cluster, server)


def _look(cluster: Cluster, server: Server) -> Row:
    row: Row = {}
    found = parts(cluster, server, 2)
    for part in PARTS:
        pids = found.get(part, [])
        row[f"{part} processes"] = len(pids)
        row[f"{part} MB"] = sum(map(held, pids)) >> 20
        row[f"{part} open files"] = open_files(pids)
    for number, home in enumerate(cluster.homes):
        row[f"files of home {number}"] = _files(home)
    row["files of Ray"] = _files(Path("/tmp/ray"))
    row["files of shared memory"] = len(os.listdir("/dev/shm"))
    row["objects of Ray"] = _objects()
    row["executions"], row["hunting seconds"] = campaigns.spent(cluster.store, 1)
    found = finding_lists.find(cluster.store, finding_lists.Wanted())
    row["sightings"] = sum(finding.count for finding, _ in found.page)
    row["corpus"] = sum(size.kept for size in shared_corpus.sizes(cluster.store))
    row["hunts"] = len(campaigns.hunts_of(cluster.store, 1))
    return row


def _files(folder: Path) -> int:
    # The targets are links, and theirs are not counted.
    return sum(len(names) for _, _, names in os.walk(folder))


def _objects() -> int | None:
    """Return how many objects a node's store holds, None while no raylet has said so."""
    said = RAY_STATE.read_text(errors="replace") if RAY_STATE.exists() else ""
    found = re.search(r"num local plasma objects: (\d+)", said)
    return int(found[1]) if found else None


def _growth(rows: list[Row]) -> Iterator[Row]:
    """Yield each figure's medians of the second and the last quarter, and their ratio."""
    quarter = len(rows) // 4
    for name in rows[0]:
        early = [row[name] for row in rows[quarter : 2 * quarter] if row[name] is not None]
        late = [row[name] for row in rows[-quarter:] if row[name] is not None]
        if early and late and name != "minute":
            first, last = statistics.median(early), statistics.median(late)
            ratio = round(last / first, 3) if first else None
            yield {"figure": name, "second quarter": first, "last quarter": last, "ratio": ratio}


if __name__ == "__main__":
    main()
