"""Nouns: receiver, answer.

A webhook's other end, on a real socket: it answers as it is told, and remembers what it got.
"""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import msgspec


class Got(NamedTuple):
    """One request, as it came over the wire."""

    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return msgspec.json.decode(self.raw)


@dataclass
class Receiver:
    """`answers` are used up one by one, then all are 200; "hang" and "drip" are answers too."""

    url: str = ""
    answers: list[object] = field(default_factory=list)
    got: list[Got] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def deliveries(self) -> list[str]:
        return [one.headers["x-schedfuzz-delivery"] for one in self.got]


@contextmanager
def receiving(tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """Run a receiver on a free port of this machine."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.got.append(Got(self.path, headers, raw))
            answer = receiver.answers.pop(0) if receiver.answers else 200
            if answer == "hang":
                receiver.released.wait(60)
            elif answer == "drip":
                for _ in range(200):  # longer than a test waits
                    if receiver.released.wait(0.1):
                        break
                    self.wfile.write(b"H")
            else:
                self.send_response(int(str(answer)))
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 100

        def handle_error(self, *_: object) -> None:
            pass

        def get_request(self) -> tuple[socket.socket, Any]:
            connection, address = super().get_request()
            if tls is not None:
                connection = tls.wrap_socket(
                    connection, server_side=True, do_handshake_on_connect=False
                )
            return connection, address

    server = Server(("127.0.0.1", 0), Handler)
    scheme = "http" if tls is None else "https"
    receiver.url = f"{scheme}://127.0.0.1:{server.server_port}/hook/of-nobody-else"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield receiver
    finally:
        receiver.released.set()
        server.shutdown()
        server.server_close()
