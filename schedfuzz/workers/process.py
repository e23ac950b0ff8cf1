"""Nouns: target process, loss.

Supervises one target: starts its zygote, hands a worker one job at a time, and answers for a worker
that hung, crashed or was killed, so that a caller always gets a trace.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from schedfuzz.corpus.errors import InfraError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace, Violation
from schedfuzz.workers.environment import Environment
from schedfuzz.workers.target import wire
from schedfuzz.workers.targets import Target

BOOT = Path(__file__).parent / "target" / "boot.py"
START_SECONDS = 600.0
# Far beyond the worker's own CPU limit: only what that limit cannot reach runs into this one.
WALL_SECONDS = 90.0
STOP_SECONDS = 2.0
READ_SIZE = 1 << 18

OnIncident = Callable[[str, str, Scenario | None], None]


class TargetProcess:
    """One target, ready to run scenarios; `restarts` counts replaced workers and zygotes.

    `on_incident(what, detail, scenario)` hears of every worker lost to the machine.
    """

    def __init__(
        self,
        target: Target,
        environment: Environment,
        log: Path,
        on_incident: OnIncident | None = None,
        coverage: bool = True,
        wall_seconds: float = WALL_SECONDS,
        **settings: Any,
    ) -> None:
        self.target = target
        self.environment = environment
        self.log = log
        self.on_incident = on_incident
        self.coverage = coverage
        self.wall_seconds = wall_seconds
        self.settings = settings
        self.restarts = 0
        self.sites = 0
        self.worker: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = bytearray()
        self._job: Scenario | None = None
        self._deadline = 0.0
        self._killed = False
        self._losses = 0

    # -- life ------------------------------------------------------------------------------------

    def spawn(self) -> None:
        """Start the zygote without waiting for it. Raises InfraError."""
        options = {"parent": os.getpid(), "coverage": self.coverage, **self.settings}
        if self.target.transform is not None:
            path, function = self.target.transform
            options["transform"] = [str(path), function]
        self._buffer = bytearray()
        self.worker = None
        self.log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    [str(self.environment.python), str(BOOT), json.dumps(options)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                    env=self.environment.variables(), start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            raise InfraError(f"{self.target.name}: cannot start its process ({error})") from None

    def wait_ready(self) -> None:
        """Wait until a worker takes jobs. Raises InfraError when the target cannot start."""
        deadline = time.monotonic() + START_SECONDS
        while self.worker is None:
            if not self._readable(deadline - time.monotonic()):
                self.stop()
                raise InfraError(f"{self.target.name}: not ready after {START_SECONDS:.0f} s")
            if not self._read():
                self.stop()
                raise InfraError(f"{self.target.name}: ended while starting; see {self.log}")

    def stop(self) -> None:
        """End worker and zygote and wait for them."""
        process, self._process = self._process, None
        if process is None:
            return
        self._kill_worker()
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    # -- jobs ------------------------------------------------------------------------------------

    def submit(self, scenario: Scenario) -> None:
        """Hand over one job; `collect` brings its trace."""
        self._job = scenario
        self._losses = 0
        self._send()

    def collect(self) -> Trace:
        """Return the trace of the submitted job, whatever happened to its worker."""
        while True:
            trace = self._next_trace()
            if trace is not None:
                self._job = None
                return trace

    def _send(self) -> None:
        assert self._process is not None and self._process.stdin is not None
        assert self._job is not None
        self._killed = False
        self._deadline = time.monotonic() + self.wall_seconds
        with contextlib.suppress(OSError):  # a dead zygote shows at the other pipe
            wire.send(self._process.stdin.fileno(), wire.Job(self._job, self.coverage))

    def _next_trace(self) -> Trace | None:
        try:
            message = wire.take(self._buffer)
        except (ValueError, msgspec.MsgspecError):
            return self._lost_zygote("broken frame")
        if isinstance(message, wire.Ran):
            return message.trace
        if isinstance(message, wire.WorkerGone):
            return self._lost_worker(message.status)
        if message is not None:
            self._note(message)
            return None
        if not self._readable(self._deadline - time.monotonic()):
            return self._overdue()
        return None if self._read() else self._lost_zygote("its process ended")

    def _overdue(self) -> Trace | None:
        if self._killed or self.worker is None:
            return self._lost_zygote("no answer")
        self._killed = True
        self._kill_worker()
        self._deadline = time.monotonic() + 30
        return None

    def _lost_worker(self, status: int) -> Trace | None:
        """Answer for a worker that ended; None when the job was sent to the next one."""
        self.worker = None
        code = os.waitstatus_to_exitcode(status)
        if code == 10:  # recycled between two jobs: this job is still in the pipe
            return None
        self.restarts += 1
        if self._killed:
            return _violated("hang", "wall-limit", f"no answer within {self.wall_seconds:.0f} s")
        if code == -signal.SIGKILL or code == -signal.SIGTERM:
            return self._retry(f"worker ended by {signal.Signals(-code).name}")
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return _violated("crash", "process-died", f"the engine's process died: {name}")

    def _lost_zygote(self, reason: str) -> Trace | None:
        self.restarts += 1
        self.stop()
        self.spawn()
        self.wait_ready()
        return self._retry(reason)

    def _retry(self, reason: str) -> Trace | None:
        """Give a job that the machine lost one more chance, then call it infra."""
        self._losses += 1
        if self.on_incident is not None:
            self.on_incident("worker-lost", f"{self.target.name}: {reason}", self._job)
        if self._losses > 1:
            return Trace("infra", reason=reason)
        self._send()
        return None

    # -- pipes -----------------------------------------------------------------------------------

    def _readable(self, timeout: float) -> bool:
        assert self._process is not None and self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, timeout))
        return bool(ready)

    def _read(self) -> bool:
        """Read what is there, noting messages while no job runs; False at end of file."""
        assert self._process is not None and self._process.stdout is not None
        data = os.read(self._process.stdout.fileno(), READ_SIZE)
        self._buffer += data
        while self._job is None and (message := wire.take(self._buffer)) is not None:
            self._note(message)
        return bool(data)

    def _note(self, message: wire.Message) -> None:
        if isinstance(message, wire.WorkerUp):
            self.worker = message.pid
        elif isinstance(message, wire.Hello):
            self.sites = message.sites
        elif isinstance(message, wire.Failed):
            self.stop()
            raise InfraError(f"{self.target.name}: cannot run its engine: {message.reason}")

    def _kill_worker(self) -> None:
        if self.worker is not None:
            with contextlib.suppress(OSError):
                os.kill(self.worker, signal.SIGKILL)


def _violated(kind: Any, rule: str, detail: str) -> Trace:
    return Trace("violated", violations=(Violation(kind, rule, detail, 0),))
