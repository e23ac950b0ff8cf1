"""The service on two real Ray nodes of this machine and a real PostgreSQL."""

import os
import subprocess
import sys
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
    with cluster.running():
        # Few dimensions, for every other finding would have to be minimized too, perhaps before.
        cluster.run(
            "campaign", "add", *PAIR, "--hunts", 2, "--slice", 60, "--name", "seed",
            "--dimensions", "priority rivals,draft method",
        )  # fmt: skip
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
        cluster.until(lambda: len(cluster.hunted()) == 2)  # both nodes hunt
        for token in ("", "0" * 64):
            said = a_stranger(cluster, token)
            assert said.returncode != 0 and "let in" not in said.stdout
            assert "token" in said.stderr.lower()
        assert (
            "let in" in a_stranger(cluster, (cluster.homes[0] / "cluster/token").read_text()).stdout
        )


def a_stranger(cluster: Cluster, token: str) -> subprocess.CompletedProcess[str]:
    """Try to run a task on the cluster with a token, "" for none."""
    program = (
        "import ray, sys\n"
        "ray.init(address=sys.argv[1], _node_ip_address='127.0.0.2', log_to_driver=False)\n"
        "print(ray.get(ray.remote(num_cpus=0)(lambda: 'let in').remote(), timeout=120))\n"
    )
    mode = "token" if token else "disabled"
    return subprocess.run(
        [sys.executable, "-c", program, cluster.head], text=True, capture_output=True, timeout=300,
        env={**os.environ, "RAY_AUTH_MODE": mode, "RAY_AUTH_TOKEN": token}, check=False,
    )  # fmt: skip
