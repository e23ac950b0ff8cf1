"""Nouns: child, telling, stop.

Atheris can be started once per process, so every measured hunt runs in a forked child, which tells
what it found line by line. A child is asked to stop by closing a pipe: a signal would also reach it
from the terminal, and two of them mean something else.
"""

import contextlib
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.workers.target.main import die_with_parent

POLL_SECONDS = 0.2
READ_SIZE = 1 << 16
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Tell = Callable[[Any], None]
Stopping = Callable[[], bool]
Work = Callable[[Tell, Stopping], None]


def in_child(work: Work, log: Path, stopping: Stopping = lambda: False) -> Iterator[Any]:
    """Run `work(tell, stopping)` in a forked child and yield each value that it tells (JSON).

    What the child prints goes to `log`. When `stopping()` turns true here, it does there. Raises
    InfraError or InputError as the child did, InfraError when it died, RuntimeError for any other
    fault.
    """
    answers, tells = os.pipe()
    asked, ask = os.pipe()
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        for unused in (answers, ask):
            os.close(unused)
        _live(work, log, parent, tells, asked)
    for unused in (tells, asked):
        os.close(unused)
    gate = [ask]
    try:
        yield from _told(answers, stopping, gate)
    finally:
        for number in (answers, *gate):
            os.close(number)
        _, status = os.waitpid(child, 0)
    if status:
        raise InfraError(f"a hunt's process ended with status {status}; see {log}")


def _told(answers: int, stopping: Stopping, gate: list[int]) -> Iterator[Any]:
    buffer = b""
    while True:
        if gate and stopping():
            os.close(gate.pop())
        if not select.select([answers], [], [], POLL_SECONDS)[0]:
            continue
        data = os.read(answers, READ_SIZE)
        if not data:
            return
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            kind, value = msgspec.json.decode(line)
            if kind != "told":
                raise FAULTS.get(kind, RuntimeError)(value)
            yield value


FAULTS: dict[str, type[Exception]] = {"InfraError": InfraError, "InputError": InputError}


def _live(work: Work, log: Path, parent: int, tells: int, asked: int) -> None:
    """Be the child: never returns."""
    status = 1
    try:
        die_with_parent(parent)
        for number in NUMBERS:
            signal.signal(number, _ignore)
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        work(partial(_tell, tells, "told"), lambda: bool(select.select([asked], [], [], 0)[0]))
        status = 0
    except BrokenPipeError:
        status = 0  # nobody listens any more
    except BaseException as error:
        known = type(error).__name__ in FAULTS
        said = str(error) if known else traceback.format_exc()
        with contextlib.suppress(OSError):
            _tell(tells, type(error).__name__, said)
            status = 0
    finally:
        os._exit(status)


def _ignore(signum: int, frame: Any) -> None:
    # Not SIG_IGN: libFuzzer replaces that by a handler of its own.
    pass


def _tell(tells: int, kind: str, value: Any) -> None:
    data = memoryview(msgspec.json.encode((kind, value)) + b"\n")
    while data:
        data = data[os.write(tells, data) :]
