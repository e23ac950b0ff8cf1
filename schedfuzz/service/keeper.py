"""Nouns: keeper, part.

Keeps the parts of a machine running: its Ray node and, on the first machine, the coordinator. A
part that ends is started again, after a pause that grows while it keeps ending; told to stop, the
keeper ends them all and leaves nothing behind.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from schedfuzz.corpus.errors import InfraError
from schedfuzz.service import ray_logs, ray_node
from schedfuzz.service.logs import get
from schedfuzz.service.ray_node import NodePlan, RayNode
from schedfuzz.workers.home import Home

PAUSE_SECONDS = 1.0
PAUSE_CAP = 60.0
CALM_SECONDS = 120.0  # after which a part counts as running well
STOP_SECONDS = 30.0
LOGS_SECONDS = 3600.0  # between two looks at Ray's old logs


@dataclass
class Pause:
    """How long to wait before a part is started again."""

    seconds: float = 0.0
    until: float = 0.0
    started: float = field(default_factory=time.monotonic)

    def ended(self) -> None:
        """Count an end: the pause doubles, or is short again after a calm time."""
        now = time.monotonic()
        calm = now - self.started > CALM_SECONDS
        self.seconds = PAUSE_SECONDS if calm else min(PAUSE_CAP, max(1.0, 2 * self.seconds))
        self.until = now + self.seconds

    @property
    def over(self) -> bool:
        """Whether the part may be started."""
        return time.monotonic() >= self.until


class Keeper:
    """Keeps a Ray node, and with `database` a coordinator on it, until `stopping` says so."""

    def __init__(self, home: Home, plan: NodePlan, coordinate: list[str] | None) -> None:
        self.home = home
        self.plan = plan
        self.coordinate = coordinate
        self.log = get().bind(part="keeper")
        self._node: RayNode | None = None
        self._coordinator: subprocess.Popen[bytes] | None = None
        self._pauses = {"node": Pause(), "coordinator": Pause()}
        self._logs_due = time.monotonic()

    def run(self, stopping: Callable[[], bool], ready: Callable[[], None] = lambda: None) -> None:
        """Start the parts, call `ready`, and keep them.

        Raises InfraError when the node cannot be started the first time.
        """
        try:
            self._start_node()
            self._keep_coordinator()
            ready()
            while not stopping():
                self._keep_node()
                self._keep_coordinator()
                self._keep_logs()
                time.sleep(0.5)
        finally:
            self._stop()

    def _start_node(self) -> None:
        self._pauses["node"].started = time.monotonic()
        self._node = ray_node.start(self.plan, self.home)
        self.log.info("node started", address=self.plan.address)

    def _keep_node(self) -> None:
        if self._node is not None and self._node.alive:
            return
        pause = self._pauses["node"]
        if self._node is not None:
            self._node.stop()
            self._node = None
            pause.ended()
            self.log.warning("node ended", again_in=pause.seconds)
        if pause.over:
            try:
                self._start_node()
            except InfraError as error:
                pause.ended()
                self.log.error("node not started", error=str(error), again_in=pause.seconds)

    def _keep_coordinator(self) -> None:
        if self.coordinate is None or self._node is None:
            return
        pause, process = self._pauses["coordinator"], self._coordinator
        if process is not None:
            if process.poll() is None:
                return
            self._coordinator = None
            pause.ended()
            self.log.warning("coordinator ended", code=process.returncode, again_in=pause.seconds)
        if pause.over:
            pause.started = time.monotonic()
            self._coordinator = subprocess.Popen(
                [sys.executable, "-m", "schedfuzz.service.coordinating", *self.coordinate],
                env=ray_node.environment(self.home), stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def _keep_logs(self) -> None:
        if time.monotonic() >= self._logs_due:
            self._logs_due = time.monotonic() + LOGS_SECONDS
            ray_logs.age_out()

    def _stop(self) -> None:
        if self._coordinator is not None and self._coordinator.poll() is None:
            self._coordinator.terminate()
            try:
                self._coordinator.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._coordinator.kill()
                self._coordinator.wait()
        if self._node is not None:
            self._node.stop()
