"""Nouns: the `cluster` verbs (start, join, coordinate, status, stop).

Each runs one keeper on this machine, in the background or, for a container, in the foreground. All
state is in the database: stopping loses nothing, and starting goes on from there.
"""

import os
import subprocess
import sys
import time
from typing import Any

import click

from schedfuzz.cli.options import db_option, json_option, open_db, print_json
from schedfuzz.cli.targets import say
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.service.ray_node import NodePlan, split_address
from schedfuzz.service.residence import Residence
from schedfuzz.workers.home import Home
from schedfuzz.workers.signals import stop_on_signals

READY_SECONDS = 900.0
LOOPBACK = "127.0.0.2"  # Ray takes 127.0.0.1 for "find out"

address_option = click.option(
    "--address", default=LOOPBACK, show_default=True,
    help="This machine's address for the other nodes.",
)  # fmt: skip
foreground_option = click.option(
    "--foreground", is_flag=True, help="Stay, and log to standard error."
)
metrics_option = click.option(
    "--metrics", metavar="HOST:PORT", default="", help="Serve /metrics there."
)
_node_options = (
    address_option,
    click.option("--cpus", type=click.IntRange(0, 4096), help="CPUs to offer (default: all)."),
    click.option("--gpus", type=click.IntRange(0, 64), help="GPUs to offer (default: all)."),
    click.option(
        "--triage", type=click.IntRange(0, 64), default=1, show_default=True,
        help="Findings to work on at once, beside the hunts.",
    ),
    foreground_option,
)  # fmt: skip


def node_options(command: Any) -> Any:
    """Add the options that every node takes."""
    for option in reversed(_node_options):
        command = option(command)
    return command


@click.group()
def cluster() -> None:
    """Run campaigns on this machine, or on many."""


@cluster.command()
@node_options
@click.option("--port", type=click.IntRange(1024, 65535), default=6379, show_default=True,
              help="Where the cluster's first node listens.")  # fmt: skip
@metrics_option
@click.option("--coordinator/--no-coordinator", "coordinator", default=True, show_default=True,
              help="Coordinate here, or leave that to `cluster coordinate`.")  # fmt: skip
@db_option
def start(
    address: str, cpus: int | None, gpus: int | None, triage: int, foreground: bool, port: int,
    metrics: str, coordinator: bool, db_url: str | None,
) -> None:  # fmt: skip
    """Start the cluster's first node, with the coordinator."""
    if metrics and not coordinator:
        raise InputError("--metrics is the coordinator's: give it to `cluster coordinate`")
    _use_database(db_url)
    plan = NodePlan(address, port=port, cpus=cpus, gpus=gpus, triage=triage)
    head = f"{address}:{port}"
    coordinate = _coordinate(head, address, metrics) if coordinator else None
    if not foreground:
        _in_background("start", address, head)
        return
    _keep(plan, head, coordinate)


@cluster.command()
@click.argument("head", metavar="HOST:PORT")
@node_options
@db_option
def join(
    head: str, address: str, cpus: int | None, gpus: int | None, triage: int, foreground: bool,
    db_url: str | None,
) -> None:  # fmt: skip
    """Start a node that joins the cluster at HOST:PORT.

    It needs the cluster's token (SCHEDFUZZ_TOKEN_FILE) and its database (a PostgreSQL URL).
    """
    split_address(head)
    _use_database(db_url)
    plan = NodePlan(
        address, head=False, head_address=head, cpus=cpus, gpus=gpus, triage=triage
    )  # fmt: skip
    if not foreground:
        _in_background("join", address, head)
        return
    _keep(plan, head, None)


@cluster.command()
@click.argument("head", metavar="HOST:PORT")
@address_option
@foreground_option
@metrics_option
@db_option
def coordinate(
    head: str, address: str, foreground: bool, metrics: str, db_url: str | None
) -> None:  # fmt: skip
    """Coordinate the cluster at HOST:PORT from a node that does nothing else.

    It needs the cluster's token and its database, as `join` does. Of several, one leads.
    """
    split_address(head)
    _use_database(db_url)
    plan = NodePlan(address, head=False, head_address=head, cpus=0, gpus=0, triage=0)
    words = _coordinate(head, address, metrics)
    if not foreground:
        _in_background("coordinate", address, head)
        return
    _keep(plan, head, words)


def _coordinate(head: str, address: str, metrics: str) -> list[str]:
    """Return the arguments of the coordinator's process. Raises InputError."""
    if metrics:
        split_address(metrics)
    return [f"--address={head}", f"--node-address={address}", f"--metrics={metrics}"]


@cluster.command()
def stop() -> None:
    """End this machine's node, and the coordinator if it is here."""
    there = Residence(Home.locate()).stop()
    click.echo("stopped" if there else "nothing runs here")


@cluster.command()
@json_option
@db_option
def status(as_json: bool, db_url: str | None) -> None:
    """Say what runs here, and which nodes the cluster has."""
    from schedfuzz.db import nodes

    resident = Residence(Home.locate()).resident()
    rows = nodes.listed(open_db(db_url))
    if as_json:
        here = None if resident is None else {"pid": resident.pid, "head": resident.head}
        print_json(
            {
                "here": here,
                "nodes": [
                    {"id": row.id, "address": row.address, "alive": row.alive,
                     "resources": row.resources, "heartbeat_at": row.heartbeat_at.isoformat()}
                    for row in rows
                ],
            }
        )  # fmt: skip
        return
    click.echo(
        "nothing runs here" if resident is None
        else f"running here\tprocess {resident.pid}\tcluster {resident.head}"
    )  # fmt: skip
    for row in rows:
        state = "alive" if row.alive else "gone"
        offers = ", ".join(
            f"{name} {row.resources[name]:g}" for name in ("CPU", "GPU", "triage")
            if name in row.resources
        )  # fmt: skip
        click.echo(f"{row.address}\t{state}\t{offers}\t{row.id[:12]}")


def _use_database(db_url: str | None) -> None:
    """Check the database, bring it to head, and name it to every process that is started."""
    if db_url is not None:
        os.environ["SCHEDFUZZ_DB"] = db_url
    open_db(os.environ.get("SCHEDFUZZ_DB")).close()


def _in_background(verb: str, address: str, head: str) -> None:
    """Run this same command again in the foreground of a process of its own."""
    home = Home.locate()
    residence = Residence(home)
    if residence.resident() is not None:
        raise InputError("a cluster node runs here already; `schedfuzz cluster stop` ends it")
    log = home.logs / "cluster.log"
    arguments = [*sys.argv[1:], "--foreground"]
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "schedfuzz", *arguments], stdin=subprocess.DEVNULL,
            stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip
    say(f"starting a node of {head} …")
    end = time.monotonic() + READY_SECONDS
    while (here := residence.resident()) is None or not here.ready:
        if process.poll() is not None or time.monotonic() > end:
            process.terminate()
            lines = log.read_text(errors="replace").strip().splitlines()
            raise InfraError(f"the node did not start: {lines[-1] if lines else ''}; see {log}")
        time.sleep(0.2)
    click.echo(f"running\tprocess {here.pid}\tcluster {head}\tlog {log}")


def _keep(plan: NodePlan, head: str, coordinate: list[str] | None) -> None:
    from schedfuzz.service.keeper import Keeper
    from schedfuzz.service.logs import set_up

    home = Home.locate()
    set_up(sys.stderr)
    residence = Residence(home)
    with residence.occupied(plan.address, head) as me, stop_on_signals() as asked:

        def ready() -> None:
            me.ready = True
            residence.write(me)

        Keeper(home, plan, coordinate).run(lambda: asked.made, ready)
