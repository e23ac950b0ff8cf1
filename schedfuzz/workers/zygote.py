"""Nouns: zygote, pipes.

The supervisor's end of a target's own process: how it is started and ended, and the two pipes to
it. What the messages mean is not known here.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
from pathlib import Path
from typing import Any

from schedfuzz.corpus.errors import InfraError
from schedfuzz.workers.environment import Environment
from schedfuzz.workers.target import wire
from schedfuzz.workers.targets import Target

BOOT = Path(__file__).parent / "target" / "boot.py"
READ_SIZE = 1 << 18


class Zygote:
    """The process that forks a target's workers, and the pipes that it shares with them."""

    def __init__(self, target: Target, environment: Environment, log: Path) -> None:
        self.target = target
        self.environment = environment
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = bytearray()

    def start(self, settings: dict[str, Any]) -> None:
        """Start the process without waiting for it. Raises InfraError."""
        options = {"parent": os.getpid(), "runner": self.target.runner, **settings}
        if self.target.transform is not None:
            path, function = self.target.transform
            options["transform"] = [str(path), function]
        if self.target.scheduler is not None:
            root, name = self.target.scheduler
            options["scheduler"] = [str(root), name]
        self._buffer = bytearray()
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    [str(self.environment.python), str(BOOT), json.dumps(options)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                    env=self.environment.variables(), start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            raise InfraError(f"{self.target.name}: cannot start its process ({error})") from None

    def stop(self) -> None:
        """End the process and its worker and wait for them."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)  # its worker is of the same group
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def send(self, job: wire.Job) -> None:
        """Write a job to the pipe that whichever worker is up reads."""
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(OSError):  # a dead zygote shows at the other pipe
            wire.send(self._process.stdin.fileno(), job)

    def take(self) -> wire.Message | None:
        """Return the next message that is read in full, None for none; raises as `wire.take`."""
        return wire.take(self._buffer)

    def readable(self, timeout: float) -> bool:
        """Wait for something to read, at most `timeout` seconds; return whether there is."""
        assert self._process is not None and self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, timeout))
        return bool(ready)

    def read(self) -> bool:
        """Read what is there; False at end of file."""
        assert self._process is not None and self._process.stdout is not None
        data = os.read(self._process.stdout.fileno(), READ_SIZE)
        self._buffer += data
        return bool(data)
