"""Nouns: target process, loss.

Supervises one target: keeps its zygote alive, hands a worker one job at a time, and answers for a
worker that hung, crashed or was killed, so that a caller always gets a trace.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Component, Trace
from schedfuzz.workers.ending import ending, violated
from schedfuzz.workers.environment import Environment
from schedfuzz.workers.home import trim_log
from schedfuzz.workers.target import wire
from schedfuzz.workers.targets import Target
from schedfuzz.workers.zygote import Zygote

START_SECONDS = 600.0
# Far beyond the worker's own CPU limit: only what that limit cannot reach runs into this one.
WALL_SECONDS = 90.0
# One kill can cost two: the worker, and the next one that finds half a job in the pipe.
MAX_LOSSES = 2

OnIncident = Callable[[str, str, Scenario | None], None]


class TargetProcess:
    """One target, ready to run scenarios; `restarts` counts replaced workers and zygotes.

    `where` names each site of its traces' coverage as `module:qualname:line`.

    `on_incident(what, detail, scenario)` hears of every worker lost to the machine and of every
    scenario that could not be run.
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
        self.where: list[str] = []
        self.worker: int | None = None
        self._zygote = Zygote(target, environment, log)
        self._job: Scenario | None = None
        self._number = 0
        self._deadline = 0.0
        self._killed = False
        self._losses = 0

    # -- life ------------------------------------------------------------------------------------

    def spawn(self) -> None:
        """Start the zygote without waiting for it. Raises InfraError.

        The kernel ends it with the thread that called this: call it from one that lasts.
        """
        self.worker = None
        self._zygote.start({"coverage": self.coverage, **self.settings})

    def wait_ready(self) -> None:
        """Wait until a worker takes jobs.

        Raises InfraError when the target cannot start, InputError when it has code of
        the user's.
        """
        deadline = time.monotonic() + START_SECONDS
        while self.worker is None:
            try:
                message = self._zygote.take()
            except (ValueError, msgspec.MsgspecError):
                raise self._unusable("wrote to its standard output while starting") from None
            if message is not None:
                self._note(message)
            elif not self._zygote.readable(deadline - time.monotonic()):
                raise self._unusable(f"was not ready after {START_SECONDS:.0f} s")
            elif not self._zygote.read():
                raise self._unusable("ended while starting")

    def stop(self) -> None:
        """End worker and zygote and wait for them."""
        self._zygote.stop()

    # -- jobs ------------------------------------------------------------------------------------

    def submit(self, scenario: Scenario) -> None:
        """Hand over one job; `collect` brings its trace."""
        trim_log(self.log)
        self._job = scenario
        self._number += 1
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
        assert self._job is not None
        self._killed = False
        self._deadline = time.monotonic() + self.wall_seconds
        self._zygote.send(wire.Job(self._number, self._job, self.coverage))

    def _next_trace(self) -> Trace | None:
        try:
            message = self._zygote.take()
        except (ValueError, msgspec.MsgspecError):
            return self._lost_zygote("broken frame")
        if isinstance(message, wire.Ran):
            return self._answered(message)
        if isinstance(message, wire.WorkerGone):
            return self._lost_worker(message)
        if message is not None:
            self._note(message)
            return None
        if not self._zygote.readable(self._deadline - time.monotonic()):
            return self._overdue()
        return None if self._zygote.read() else self._lost_zygote("its process ended")

    def _overdue(self) -> Trace | None:
        if self._killed or self.worker is None:
            return self._lost_zygote("no answer")
        self._killed = True
        self._kill_worker()
        self._deadline = time.monotonic() + 30
        return None

    def _answered(self, ran: wire.Ran) -> Trace | None:
        """Return the trace; None for a job that was sent twice and answered before."""
        if ran.number != self._number:
            return None
        if ran.trace.outcome == "infra":
            self._tell("not-run", ran.trace.reason)
        return ran.trace

    def _lost_worker(self, gone: wire.WorkerGone) -> Trace | None:
        """Answer for a worker that ended; None when the job was sent to the next one."""
        self.worker = None
        why, name = ending(gone.status)
        if why == "recycled":  # between two jobs: this one is still in the pipe
            return None
        if why == "broken frame":
            return self._lost_zygote(why)
        self.restarts += 1
        guilty = gone.job == self._number
        if guilty and self._killed:
            return violated("hang", "wall-limit", f"no answer within {self.wall_seconds:.0f} s")
        if guilty and why == "died":
            # A scheduler is Python code, which ends no process; kernels are the real runner's.
            component: Component = "runner" if self.target.runner == "real" else "scheduler"
            detail = f"the engine's process died: {name}"
            return violated("crash", "process-died", detail, component)
        return self._retry(f"worker ended by {name}")

    def _lost_zygote(self, reason: str) -> Trace | None:
        self.restarts += 1
        self.stop()
        self.spawn()
        self.wait_ready()
        return self._retry(reason)

    def _retry(self, reason: str) -> Trace | None:
        """Give a job that the machine lost another chance, in the end call it infra."""
        self._losses += 1
        self._tell("worker-lost", reason)
        if self._losses > MAX_LOSSES:
            return Trace("infra", reason=reason)
        self._send()
        return None

    def _tell(self, what: str, reason: str) -> None:
        if self.on_incident is not None:
            self.on_incident(what, f"{self.target.name}: {reason}", self._job)

    # -- messages --------------------------------------------------------------------------------

    def _note(self, message: wire.Message) -> None:
        if isinstance(message, wire.WorkerUp):
            self.worker = message.pid
        elif isinstance(message, wire.Hello):
            self.sites, self.where = message.sites, message.where
        elif isinstance(message, wire.Failed):
            raise self._unusable(f"cannot run its engine: {message.reason}")

    def _unusable(self, why: str) -> Exception:
        """Stop and return the error to raise: a transform is the user's, all else the machine's."""
        self.stop()
        if self.target.clone is not None:
            return InputError(
                f"target {self.target.name}: its process {why}; name a release whose compiled "
                f"parts it can run on, or another commit (see {self.log})"
            )
        if self.target.transform is None and self.target.scheduler is None:
            return InfraError(f"{self.target.name}: its process {why}; see {self.log}")
        return InputError(
            f"target {self.target.spelling}: its process {why}; mend that file (see {self.log})"
        )

    def _kill_worker(self) -> None:
        if self.worker is not None:
            with contextlib.suppress(OSError):
                os.kill(self.worker, signal.SIGKILL)
