"""What may die at any time, killed on a running cluster: nothing found is lost, nothing doubled.

One cluster of two nodes and one hunt goes through all of it, in this order.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from clusters import Cluster
from postgres import Server, postgres_server

from schedfuzz.db import campaigns, nodes
from schedfuzz.db.connect import open_store
from schedfuzz.workers.footprint import descendants
from schedfuzz.workers.home import Home

pytestmark = pytest.mark.vllm
OUTAGE = 30.0  # seconds


class Chaos:
    """A running cluster, its database's server, and the file that shifts the server's clock."""

    def __init__(self, cluster: Cluster, server: Server, clock: Path) -> None:
        self.cluster = cluster
        self.server = server
        self.clock = clock

    @property
    def executions(self) -> int:
        """How many executions are stored."""
        [campaign] = campaigns.listed(self.cluster.store)
        return campaigns.spent(self.cluster.store, campaign.id)[0]

    @property
    def found(self) -> dict[str, tuple[int, int]]:
        """The findings: fingerprint -> (id, count)."""
        rows = self.cluster.findings()
        found = {row.fingerprint: (row.id, row.count) for row in rows}
        assert len(found) == len(rows)
        return found

    @property
    def hunting(self) -> tuple[int, int]:
        """The node that hunts now, and its process."""
        for node in (0, 1):
            for pid in self.cluster.processes(node, "schedfuzz.service.hunting"):
                return node, pid
        raise LookupError("nobody hunts")

    def hunted(self, since: int, more: int = 20) -> bool:
        """Whether so many executions came on top, with one hunt at work."""
        running = self.cluster.jobs("hunt", "running")
        return len(running) == 1 and self.executions >= since + more

    @contextmanager
    def survived(self) -> Iterator[None]:
        """Do something bad in the context: afterwards all is as before and goes on."""
        self.cluster.until(lambda: self.hunted(0))
        before = self.found
        yield
        since = self.executions
        self.cluster.until(lambda: self.hunted(since))
        after = self.found
        assert {name: number for name, (number, _) in before.items()}.items() <= {
            name: number for name, (number, _) in after.items()
        }.items()
        assert all(after[name][1] >= count for name, (_, count) in before.items())
        assert not self.cluster.jobs("hunt", "failed")
        minimized = [job.finding_id for job in self.cluster.jobs("minimize")]
        assert len(minimized) == len(set(minimized))


@pytest.fixture(scope="module")
def chaos(
    tmp_path_factory: pytest.TempPathFactory, shared_home: Home, environment_028, environment_029
) -> Iterator[Chaos]:
    root = tmp_path_factory.mktemp("chaos")
    clock = root / "clock"
    clock.write_text("+0")
    for folder in (root, root.parent):
        folder.chmod(0o755)  # the server reads its clock as another user
    with postgres_server(clock) as server:
        url = server.new_database()
        store = open_store(url)
        cluster = Cluster(root, shared_home.targets, url, store, 26480)
        with cluster.running():
            cluster.run("campaign", "add", "0.28.0", "0.29.0", "--slice", 3600, "--name", "chaos")
            yield Chaos(cluster, server, clock)
        store.close()


def test_a_killed_target_process_is_replaced(chaos: Chaos) -> None:
    with chaos.survived():
        node, _ = chaos.hunting
        token = chaos.cluster.jobs("hunt", "running")[0].token
        [zygote, *_] = chaos.cluster.processes(node, "target/boot.py")
        os.kill(zygote, signal.SIGKILL)
    assert chaos.cluster.jobs("hunt", "running")[0].token == token  # by its own hunt


def test_a_killed_hunt_is_handed_out_anew(chaos: Chaos) -> None:
    for what in ("schedfuzz.service.hunting", "HuntActor"):
        with chaos.survived():
            token = chaos.cluster.jobs("hunt", "running")[0].token
            node, _ = chaos.hunting
            os.kill(chaos.cluster.processes(node, what)[0], signal.SIGKILL)
            chaos.cluster.until(lambda old=token: chaos.cluster.jobs("hunt")[0].token > old)


def test_a_killed_coordinator_is_followed_by_another(chaos: Chaos) -> None:
    with chaos.survived():
        [old] = chaos.cluster.processes(0, "schedfuzz.service.coordinating")
        owner = chaos.cluster.jobs("coordinate")[0].owner
        os.kill(old, signal.SIGKILL)
        chaos.cluster.until(lambda: chaos.cluster.jobs("coordinate")[0].owner not in (owner, None))
    assert len(chaos.cluster.processes(0, "schedfuzz.service.coordinating")) == 1


def test_a_lost_node_loses_no_work(chaos: Chaos) -> None:
    with chaos.survived():
        node, _ = chaos.hunting
        [raylet, *_] = chaos.cluster.processes(node, "/raylet ")
        os.kill(raylet, signal.SIGKILL)
        lost = {row.id for row in nodes.listed(chaos.cluster.store)}
        chaos.cluster.until(lambda: _alive(chaos) == 2 and _new(chaos, lost))


def test_the_database_may_be_away(chaos: Chaos) -> None:
    with chaos.survived():
        _, pid = chaos.hunting
        chaos.server.stop()
        time.sleep(OUTAGE)
        assert chaos.hunting[1] == pid  # it hunts on
        chaos.server.start()


def test_the_database_s_clock_may_jump(chaos: Chaos) -> None:
    for offset in ("+2d", "-2d", "+0"):
        with chaos.survived():
            chaos.clock.write_text(offset)
            time.sleep(3.0)  # its cache lasts one


def test_a_full_disk_costs_nothing_that_was_found(chaos: Chaos) -> None:
    node, _ = chaos.hunting
    hunts = chaos.cluster.homes[node] / "hunts"
    with _small_disk(hunts), chaos.survived():
        os.kill(chaos.hunting[1], signal.SIGKILL)
        chaos.cluster.until(lambda: chaos.hunted(0) and list(hunts.glob("*/corpus")))
        filler = hunts / "filler"
        with filler.open("wb", buffering=0) as file:
            for size in (4096, 1):
                try:
                    while file.write(b"x" * size):
                        pass
                except OSError:
                    continue
        time.sleep(20)
        filler.unlink()


def test_everything_dies_at_once(chaos: Chaos) -> None:
    cluster = chaos.cluster
    with chaos.survived():
        keepers = [cluster.keeper(node) for node in (0, 1)]
        family = [pid for keeper in keepers for pid in descendants(keeper)]
        for pid in keepers + family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        chaos.server.stop()
        cluster.until(lambda: not [pid for pid in family if _runs(pid)])
        chaos.server.start()
        cluster.start()
        cluster.join()


def _alive(chaos: Chaos) -> int:
    return sum(row.alive for row in nodes.listed(chaos.cluster.store))


def _new(chaos: Chaos, known: set[str]) -> bool:
    return any(row.id not in known for row in nodes.listed(chaos.cluster.store))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    """Let a folder stand on a disk of its own of 2 MB while the context lasts."""
    if os.geteuid():
        pytest.skip("only root may mount a small disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
