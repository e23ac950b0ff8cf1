"""Nouns: the coordinator's process.

Connects to a Ray cluster as a driver and coordinates until it is told to stop. When it dies, Ray
ends what it had handed out, and the next one goes on from the database.
"""

import os
import secrets
import signal
import sys

import click

from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.db.connect import open_store
from schedfuzz.service import ray_node
from schedfuzz.service.logs import get, set_up
from schedfuzz.workers.home import Home
from schedfuzz.workers.signals import stop_on_signals
from schedfuzz.workers.target.main import PR_SET_PDEATHSIG


@click.command()
@click.option("--address", required=True, help="HOST:PORT of the cluster's first node.")
@click.option("--node-address", required=True, help="This machine's address in the cluster.")
@click.option("--metrics", default="", help="HOST:PORT to serve /metrics on.")
def main(address: str, node_address: str, metrics: str) -> None:
    """Coordinate the campaigns of the database on a Ray cluster."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    set_up(sys.stderr)
    try:
        _coordinate(address, node_address, metrics)
    except (InfraError, InputError) as error:
        get().error("coordinator cannot run", error=str(error))
        sys.exit(2 if isinstance(error, InputError) else 1)


def _coordinate(address: str, node_address: str, metrics: str) -> None:
    home = Home.locate()
    os.environ.update(ray_node.environment(home))
    # Imported late: Ray reads its environment when it is imported.
    import ray

    from schedfuzz.service.coordinator import Coordinator
    from schedfuzz.service.latest import Releases
    from schedfuzz.service.places import RayPlaces
    from schedfuzz.service.side_work import SideWork

    store = open_store(os.environ.get("SCHEDFUZZ_DB") or home.database_url)
    with stop_on_signals() as stop:
        try:
            ray.init(
                address=address, _node_ip_address=node_address, log_to_driver=False,
                namespace="schedfuzz", configure_logging=False,
            )  # fmt: skip
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise InfraError(f"no Ray cluster at {address}: {error}") from error
        side = SideWork(store, metrics)
        side.start()
        try:
            name = f"{node_address}:{os.getpid()}:{secrets.token_hex(4)}"
            Coordinator(store, RayPlaces(), name, Releases().resolve).run(lambda: stop.made)
        finally:
            side.stop()
            ray.shutdown()


if __name__ == "__main__":
    main()
