"""Nouns: Ray node, token.

One `ray start --block` that we own: to end the node is to end that process. Ray listens on all
interfaces whatever address it is given, so every connection must show a token, which stands in a
file that only we can read.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.workers.footprint import descendants
from schedfuzz.workers.home import Home, make_directory

START_SECONDS = 120.0
STOP_SECONDS = 20.0
STARTED = "Ray runtime started."
# A raylet gives its agent 15 s to start, which a loaded machine may need more than once.
OVERLOADED = "timed out during startup"
START_TRIES = 8
AGENT_PORTS = ("dashboard-agent-grpc", "dashboard-agent-listen", "metrics-export")
OBJECT_STORE_BYTES = 100 << 20  # tasks and their answers are a few hundred bytes
# A node that does not answer for two seconds or so is gone: its jobs go on elsewhere.
HEALTH = {
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
}


@dataclass(frozen=True)
class NodePlan:
    """What a node offers. `address` is where it can be reached by the others; with `head` it is
    the first of the cluster, listening on `port`, else it joins the one at `head_address`.

    None for `cpus` and `gpus` leaves the counting to Ray.
    """

    address: str
    port: int = 6379
    head: bool = True
    head_address: str = ""
    cpus: int | None = None
    gpus: int | None = None
    triage: int = 1


@dataclass
class RayNode:
    """A running node; `stop` ends it and everything it started."""

    process: subprocess.Popen[bytes]
    log: Path
    plan: NodePlan
    known: list[int] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        """Whether its main process runs."""
        return self.process.poll() is None

    def stop(self) -> None:
        """End the node: first as it wants to be ended, then for sure."""
        family = descendants(self.process.pid)
        if self.alive:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pid in {*family, *self.known} - {self.process.pid}:
            _end(pid)


def split_address(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`. Raises InputError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise InputError(f"address {text!r} is not HOST:PORT; write it like 127.0.0.1:9464")
    return host.strip("[]"), int(port)


def environment(home: Home) -> dict[str, str]:
    """Return the environment for every process that has to do with Ray."""
    return {
        **os.environ, **HEALTH,
        "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token(home)),
        "RAY_USAGE_STATS_ENABLED": "0", "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
        "RAY_DEDUP_LOGS": "0", "SCHEDFUZZ_HOME": str(home.root),
    }  # fmt: skip


def token(home: Home) -> Path:
    """Return the file with the cluster's token, $SCHEDFUZZ_TOKEN_FILE or one that it makes."""
    given = os.environ.get("SCHEDFUZZ_TOKEN_FILE")
    if given:
        return Path(given).absolute()
    path = make_directory(home.root / "cluster") / "token"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    return path


def start(plan: NodePlan, home: Home) -> RayNode:
    """Start a node and wait until it is part of its cluster. Raises InfraError with Ray's words."""
    for _ in range(START_TRIES - 1):
        try:
            return _start(plan, home)
        except InfraError as error:
            if OVERLOADED not in str(error):
                raise
    return _start(plan, home)


def _start(plan: NodePlan, home: Home) -> RayNode:
    log = home.logs / f"ray-{plan.address}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            _command(plan), env=environment(home), stdin=subprocess.DEVNULL, stdout=file,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    node = RayNode(process, log, plan)
    end = time.monotonic() + START_SECONDS
    raylet = 0
    while STARTED not in log.read_text(errors="replace"):
        raylet = raylet or _raylet(process.pid)
        given_up = raylet and not Path(f"/proc/{raylet}/exe").exists()
        if not node.alive or given_up or time.monotonic() > end:
            node.stop()
            why = f"its raylet {OVERLOADED}" if given_up else _words(log)
            raise InfraError(f"Ray did not start at {plan.address}: {why}; see {log}")
        time.sleep(0.2)
    node.known = descendants(process.pid)
    return node


def _command(plan: NodePlan) -> Sequence[str]:
    gpus = plan.gpus if plan.gpus is not None else _gpus()
    own = {
        "--node-ip-address": plan.address,
        "--resources": json.dumps({"triage": plan.triage}),
        "--labels": f"schedfuzz.kind={'gpu' if gpus else 'cpu'}",
        "--object-store-memory": str(OBJECT_STORE_BYTES),
        "--num-gpus": str(gpus),
        "--include-log-monitor": "false",  # nobody listens to it
    }
    # A raylet that must find out its agent's ports gives up, and dies, when that takes 15 s.
    own |= {f"--{name}-port": str(_free_port()) for name in AGENT_PORTS}
    if plan.cpus is not None:
        own["--num-cpus"] = str(plan.cpus)
    if plan.head:
        own |= {"--port": str(plan.port), "--include-dashboard": "false"}
    else:
        own["--address"] = plan.head_address
    ray = shutil.which("ray", path=str(Path(sys.executable).parent)) or "ray"
    options = [f"{name}={value}" for name, value in own.items()]
    return [ray, "start", "--block", "--disable-usage-stats", *options,
            *(["--head"] if plan.head else [])]  # fmt: skip


def _raylet(pid: int) -> int:
    """Return the raylet among a process's family, 0 while there is none."""
    for each in descendants(pid):
        try:
            if Path(f"/proc/{each}/comm").read_text() == "raylet\n":
                return each
        except OSError:
            continue
    return 0


def _free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("", 0))
        return int(unused.getsockname()[1])


def _gpus() -> int:
    """Return how many GPUs this machine lets us use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([one for one in visible.split(",") if one.strip() and one.strip() != "-1"])
    if shutil.which("nvidia-smi") is None:
        return 0
    said = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=30)
    return len(said.stdout.splitlines()) if said.returncode == 0 else 0


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return


def _words(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][-300:] if lines else "it said nothing"
