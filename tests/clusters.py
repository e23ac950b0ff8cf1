"""Nouns: a cluster of two nodes on one machine, for tests.

Each node has an address of the loopback network and a home of its own; both share the ready
environments of the session's home, one database and one token.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from command import SCHEDFUZZ
from found import list_findings
from running import until
from sqlalchemy import select

from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding, Hunt
from schedfuzz.db.service_models import Job
from schedfuzz.workers.footprint import descendants

ADDRESSES = ("127.0.0.2", "127.0.0.3")
LONG = 1200.0  # seconds; a loaded machine hunts slowly


class Cluster:
    """Two nodes; `store` is their database, for looking at."""

    def __init__(self, root: Path, targets: Path, url: str, store: Store, port: int) -> None:
        self.url = url
        self.store = store
        self.head = f"{ADDRESSES[0]}:{port}"
        self.port = port
        self.homes = [root / f"home{number}" for number in (0, 1)]
        for home in self.homes:
            home.mkdir(parents=True)
            (home / "targets").symlink_to(targets)

    def run(self, *arguments: object, node: int = 0) -> str:
        """Run a command on a node and return what it says; it must end with 0."""
        done = subprocess.run(
            [SCHEDFUZZ, *map(str, arguments)], env=self.environment(node), text=True,
            capture_output=True, timeout=LONG, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def environment(self, node: int) -> dict[str, str]:
        """Return a node's environment."""
        token = self.homes[0] / "cluster" / "token"
        return os.environ | {
            "SCHEDFUZZ_HOME": str(self.homes[node]), "SCHEDFUZZ_DB": self.url,
            "SCHEDFUZZ_TOKEN_FILE": str(token) if node else "",
        }  # fmt: skip

    def start(self, cpus: int = 2) -> None:
        """Start the first node, with the coordinator."""
        self.run("cluster", "start", "--port", self.port, "--cpus", cpus)

    def join(self, cpus: int = 2) -> None:
        """Start the second node."""
        self.run("cluster", "join", self.head, "--address", ADDRESSES[1], "--cpus", cpus, node=1)

    def stop(self) -> None:
        """End both nodes."""
        for node in (1, 0):
            self.run("cluster", "stop", node=node)

    def processes(self, node: int, text: str) -> list[int]:
        """Return the processes of a node whose command line holds a text, oldest first."""
        keeper = self.keeper(node)
        return [pid for pid in descendants(keeper) if text in command_line(pid)]

    def keeper(self, node: int) -> int:
        """Return the process that keeps a node."""
        import msgspec

        card = self.homes[node] / "cluster" / "keeper.json"
        return int(msgspec.json.decode(card.read_bytes())["pid"])

    def findings(self, rule: str = "") -> list[Finding]:
        """Return the findings (of a rule)."""
        return [row for row in list_findings(self.store) if rule in row.rule]

    def jobs(self, kind: str, state: str = "") -> list[Job]:
        """Return the jobs of a kind (in a state)."""
        query = select(Job).filter_by(kind=kind).order_by(Job.id)
        with self.store.read() as session:
            rows = list(session.scalars(query))
        return [row for row in rows if not state or row.state == state]

    def hunted(self) -> set[str | None]:
        """Return the nodes that have hunted: a slice need not follow another on its node."""
        with self.store.read() as session:
            return set(session.scalars(select(Hunt.node).distinct()))

    def until(self, condition: Callable[[], object]) -> object:
        """Wait until a condition holds; return what it said."""
        return until(condition, LONG)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Both nodes run while the context lasts; nobody is left afterwards."""
        families = []
        try:
            self.start()
            self.join()
            families += [descendants(self.keeper(node)) for node in (0, 1)]
            yield
        finally:
            families += [self._family(node) for node in (0, 1)]
            self.stop()
            for pid in {pid for family in families for pid in family}:
                if "schedfuzz" in command_line(pid) or "ray" in command_line(pid):
                    os.kill(pid, signal.SIGKILL)
                    raise AssertionError(f"left over: {command_line(pid)}")

    def _family(self, node: int) -> list[int]:
        try:
            return descendants(self.keeper(node))
        except OSError:
            return []


def command_line(pid: int) -> str:
    """Return a process's command line, "" for one that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
