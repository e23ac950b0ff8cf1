"""The service on two real Ray nodes of this machine and a real PostgreSQL."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import Cluster

from schedfuzz.db import verifications
from schedfuzz.db.connect import open_store
from schedfuzz.workers.home import Home

pytest_plugins = ["postgres"]
pytestmark = pytest.mark.vllm
PORTS = iter(range(26379, 26479))
PAIR = ("0.28.0", "0.29.0")
SEED_BUG = "past-max-model-len"


@pytest.fixture
def cluster(
    tmp_path: Path, postgres_url: str, shared_home: Home, environment_028, environment_029
) -> Iterator[Cluster]:
    store = open_store(postgres_url)
    yield Cluster(tmp_path, shared_home.targets, postgres_url, store, next(PORTS))
    store.close()


def test_a_campaign_finds_minimizes_and_verifies_the_seed_bug(cluster: Cluster) -> None:
    cluster.run("campaign", "add", *PAIR, "--hunts", 2, "--slice", 60, "--name", "seed")
    with cluster.running():
        found = cluster.until(
            lambda: [
                row
                for row in cluster.findings(SEED_BUG)
                if row.verdict == "fixed" and row.status == "minimized" and row.export_path
            ]
        )
        [row] = found[:1]
        assert (row.confirm_runs, row.confirm_hits) == (3, 3)
        assert row.reproducer_requests <= 3
        said = cluster.until(
            lambda: (
                len(verifications.of(cluster.store, row.id)) == 2
                and verifications.of(cluster.store, row.id)
            )
        )
        assert {one.target: one.outcome for one in said} == {"0.28.0": "breaks", "0.29.0": "keeps"}
        nodes = cluster.run("cluster", "status")
        assert nodes.count("alive") == 2
        hunts = {job.node for job in cluster.jobs("hunt")} - {None}
        assert len(hunts) == 2  # both nodes hunt


def test_a_killed_hunt_goes_on(cluster: Cluster) -> None:
    cluster.run("campaign", "add", *PAIR, "--slice", 600, "--name", "seed")
    with cluster.running():
        for what in ("schedfuzz.service.hunting", "HuntActor"):
            [victim, *_] = cluster.until(
                lambda text=what: [pid for node in (0, 1) for pid in cluster.processes(node, text)]
            )
            before = cluster.jobs("hunt")[0].token
            os.kill(victim, signal.SIGKILL)
            cluster.until(lambda old=before: cluster.jobs("hunt", "running")[0:1]
                          and cluster.jobs("hunt", "running")[0].token > old)  # fmt: skip
