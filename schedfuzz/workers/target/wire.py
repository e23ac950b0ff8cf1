"""Nouns: frame, job, messages between a target process and its supervisor.

A frame is a four-byte big-endian length and a msgpack message; the messages are a tagged union, so
nothing that crosses the pipe can be anything but data.
"""

import os
import struct

import msgspec

from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace

MAX_FRAME = 64 << 20
# A worker's exit codes that say nothing of vLLM; 0 means that its jobs ended.
EXIT_END_OF_JOBS, EXIT_RECYCLE, EXIT_BROKEN_FRAME = 0, 10, 11
_LENGTH = struct.Struct(">I")


class Job(msgspec.Struct, tag="job"):
    """Supervisor to worker: run this scenario; `number` is above 0 and comes back."""

    number: int
    scenario: Scenario
    coverage: bool = True


class Hello(msgspec.Struct, tag="hello"):
    """Target to supervisor: vLLM is imported and warm; `where` names each coverage site."""

    version: str
    sites: int
    where: list[str] = []


class WorkerUp(msgspec.Struct, tag="up"):
    """A fresh worker reads jobs from now on."""

    pid: int


class WorkerGone(msgspec.Struct, tag="gone"):
    """The worker ended with this wait status while it ran this job (0: between two jobs)."""

    pid: int
    status: int
    job: int


class Failed(msgspec.Struct, tag="failed"):
    """The target could not start: our fault or the machine's, never a finding."""

    reason: str


class Ran(msgspec.Struct, tag="ran"):
    """Worker to supervisor: the trace of a job."""

    number: int
    trace: Trace


Message = Job | Hello | WorkerUp | WorkerGone | Failed | Ran
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def send(descriptor: int, message: Message) -> None:
    """Write one frame. Raises OSError when the other end is gone."""
    body = _encoder.encode(message)
    data = memoryview(_LENGTH.pack(len(body)) + body)
    while data:
        data = data[os.write(descriptor, data) :]


def receive(descriptor: int) -> Message | None:
    """Read one frame, blocking; None at end of file. Raises ValueError on a broken frame."""
    head = _read(descriptor, _LENGTH.size)
    if head is None:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > MAX_FRAME:
        raise ValueError(f"frame of {length} bytes")
    body = _read(descriptor, length)
    return None if body is None else _decoder.decode(body)


def take(buffer: bytearray) -> Message | None:
    """Remove and return the first complete frame of a buffer, or None if there is none yet."""
    if len(buffer) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(buffer[: _LENGTH.size])
    if length > MAX_FRAME:
        raise ValueError(f"frame of {length} bytes")
    end = _LENGTH.size + length
    if len(buffer) < end:
        return None
    body = bytes(buffer[_LENGTH.size : end])
    del buffer[:end]
    return _decoder.decode(body)


def _read(descriptor: int, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        chunk = os.read(descriptor, count - len(data))
        if not chunk:
            return None
        data += chunk
    return data
