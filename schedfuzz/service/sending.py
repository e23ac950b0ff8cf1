"""Nouns: message, signature, deadline.

How a message leaves the house: an HTTP POST or a program's standard input. Both end within TIMEOUT
seconds, whatever the other side does: a timeout of a socket is for one read only, and a receiver
that sends a byte now and then would hold us for ever, so the connection is cut from outside.
"""

import contextlib
import hashlib
import hmac
import http.client
import os
import signal
import socket
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from functools import partial
from typing import IO, Any, NamedTuple

from schedfuzz.service.channels import PRIVATE

TIMEOUT = 10.0  # seconds
_SHOWN = 300  # characters of a program's last words


class Message(NamedTuple):
    """What is told: JSON, and the same in short as variables of an environment.

    `delivery` identifies it, over all attempts.
    """

    delivery: str
    event: str
    body: bytes
    environment: dict[str, str]


class NotDelivered(Exception):
    """Why a message was not taken: one line without anything secret."""


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """Return what X-Schedfuzz-Signature must say: an HMAC-SHA256 of `TIMESTAMP.BODY`."""
    key = secret.encode("utf-8", "surrogateescape")
    signed = f"{timestamp}.".encode() + body
    return f"sha256={hmac.new(key, signed, hashlib.sha256).hexdigest()}"


def post(url: str, secret: str | None, message: Message, timestamp: int) -> None:
    """POST the message, signed at `timestamp` (Unix seconds) if there is a secret.

    Only an answer of 2xx is success: redirects are not followed. Raises NotDelivered.
    """
    headers = {
        "Content-Type": "application/json", "User-Agent": "schedfuzz",
        "X-Schedfuzz-Event": message.event, "X-Schedfuzz-Delivery": message.delivery,
        "X-Schedfuzz-Timestamp": str(timestamp),
    }  # fmt: skip
    if secret:
        headers["X-Schedfuzz-Signature"] = signature(secret, timestamp, message.body)
    request = urllib.request.Request(url, message.body, headers, method="POST")
    with _Deadline(TIMEOUT) as deadline:
        opener = urllib.request.build_opener(_Plain(deadline), _Secure(deadline), _NoRedirect)
        try:
            opener.open(request, timeout=TIMEOUT).close()
        except urllib.error.HTTPError as error:
            error.close()
            hint = "; redirects are not followed" if 300 <= error.code < 400 else ""
            raise NotDelivered(f"webhook: answered {error.code}{hint}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = f"no answer within {TIMEOUT:g} s" if deadline.over else _reason(error)
            raise NotDelivered(f"webhook: {why}") from None


def _reason(error: Exception) -> str:
    """Return what failed; only the texts of system errors are sure not to quote the address."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return f"no answer within {TIMEOUT:g} s"
    said = getattr(cause, "verify_message", None) or getattr(cause, "strerror", None)
    return f"{type(cause).__name__}: {said}" if said else type(cause).__name__


class _Deadline:
    """Cuts the connections that it watches when its time is up."""

    def __init__(self, seconds: float) -> None:
        self.over = False
        self._handles: list[socket.socket] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> "_Deadline":
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            for handle in self._handles:
                handle.close()
            self._handles.clear()

    def watch(self, connection: socket.socket) -> None:
        """Watch a connection, through a handle that TLS cannot take over."""
        with self._lock:
            self._handles.append(connection.dup())
            if self.over:
                self._shut()

    def _cut(self) -> None:
        with self._lock:
            self.over = True
            self._shut()

    def _shut(self) -> None:
        for handle in self._handles:
            with contextlib.suppress(OSError):
                handle.shutdown(socket.SHUT_RDWR)


class _Watched(http.client.HTTPConnection):
    deadline: _Deadline

    def connect(self) -> None:
        super().connect()
        self.deadline.watch(self.sock)


class _WatchedTls(http.client.HTTPSConnection, _Watched):
    """HTTPSConnection connects by its next class, here _Watched, before it talks TLS."""


class _Plain(urllib.request.HTTPHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_connection, _Watched, self._deadline), req)


class _Secure(urllib.request.HTTPSHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_connection, _WatchedTls, self._deadline), req)


def _connection(
    kind: type[_Watched], deadline: _Deadline, *arguments: Any, **options: Any
) -> _Watched:
    connection = kind(*arguments, **options)
    connection.deadline = deadline
    return connection


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def run(command: Sequence[str], message: Message) -> None:
    """Run the command (no shell) with the message on its standard input.

    It has TIMEOUT seconds, then its process group is killed; exit code 0 is success. Its output is
    thrown away. Raises NotDelivered.
    """
    public = {name: value for name, value in os.environ.items() if name not in PRIVATE}
    with tempfile.TemporaryFile() as words:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=words,
                env=public | message.environment, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            raise NotDelivered(f"command: {command[0]!r} cannot be started: {why}") from None
        try:
            process.communicate(message.body, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            raise NotDelivered(f"command: did not end within {TIMEOUT:g} s") from None
        finally:
            _end(process)
        if process.returncode:
            raise NotDelivered(f"command: ended with {process.returncode}{_last_words(words)}")


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last_words(words: IO[bytes]) -> str:
    words.seek(max(words.seek(0, os.SEEK_END) - 4 * _SHOWN, 0))
    lines = words.read().decode(errors="backslashreplace").strip().splitlines()
    return f": {lines[-1][-_SHOWN:]}" if lines else ""
