"""Nouns: metric, scrape, server.

What Prometheus may ask: figures that are read from the database at each scrape, one scrape at a
time, and never written. A scrape always answers: a database that is away is a figure too.
"""

import math
import socket
import socketserver
import threading
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from schedfuzz.corpus.errors import InputError
from schedfuzz.db import figures, notices, shared_corpus
from schedfuzz.db.connect import Store
from schedfuzz.service.logs import get

DEFAULT_PORT = 9464
_CLIENT_SECONDS = 10.0  # for a client to send its request or take its answer
_TURN_SECONDS = 5.0
_Row = tuple[tuple[str, ...], float]


class Figures(Collector):
    """The figures of a database; one that fails gives `schedfuzz_up 0` alone."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._turn = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, read now. Raises nothing."""
        found = self._found()
        yield _gauge("up", "Whether the database could be read.", (), [((), bool(found))])
        yield from found

    def _found(self) -> list[Metric]:
        # Not for ever: behind a database that hangs the scrapes would pile up.
        if not self._turn.acquire(timeout=_TURN_SECONDS):
            return []
        try:
            return list(_read(self.store))
        except Exception as error:
            get().warning("metrics not read", error=str(error) or repr(error))
            return []
        finally:
            self._turn.release()


def _read(store: Store) -> Iterator[Metric]:
    yield from _of_campaigns(store)
    counts = figures.finding_counts(store)
    yield _gauge(
        "findings", "Findings; those of hunts without a campaign have an empty one.",
        ("campaign", "verdict", "status"), [(row[:3], row.findings) for row in counts],
    )  # fmt: skip
    jobs = figures.job_counts(store)
    yield _gauge("jobs", "Jobs by kind and state.", ("kind", "state"), jobs.items())
    alive, dead = figures.node_counts(store)
    states = [(("alive",), alive), (("dead",), dead)]
    yield _gauge("nodes", "Machines of the cluster.", ("state",), states)
    unfit = figures.unfit_targets(store)
    yield _gauge("unfit_targets", "Releases that a live node leaves out.", (), [((), unfit)])
    corpora = sorted(shared_corpus.sizes(store), key=lambda size: -size.kept)[: figures.SHOWN]
    kept = [((size.before, size.after), size.kept) for size in corpora]
    yield _gauge("corpus_scenarios", "Scenarios of a pair's corpus.", ("before", "after"), kept)
    poisons = figures.quarantined_scenarios(store)
    yield _gauge("poisons_quarantined", "Scenarios that nobody runs.", (), [((), poisons)])
    told = [((state,), count) for state, count in notices.counts(store).items()]
    yield _gauge("notices", "Notices by state.", ("state",), told)
    canaries = figures.canary_age(store).items()
    yield _gauge(
        "canary_age_seconds", "Time since an active canary broke a rule; +Inf: never.",
        ("campaign",), [((name,), math.inf if age is None else age) for name, age in canaries],
    )  # fmt: skip


def _of_campaigns(store: Store) -> Iterator[Metric]:
    found = figures.campaign_figures(store)
    label = ("campaign",)
    executions = CounterMetricFamily(
        "schedfuzz_executions", "Scenarios run on the campaign's pair.", labels=label
    )
    seconds = CounterMetricFamily(
        "schedfuzz_hunting_seconds", "Time that its hunts took, together.", labels=label
    )
    for row in found:
        executions.add_metric((row.campaign,), row.executions)
        seconds.add_metric((row.campaign,), row.seconds)
    yield executions
    yield seconds
    yield _gauge(
        "sample_age_seconds", "Time since a hunt of the campaign last reported.", label,
        [((row.campaign,), row.sample_age) for row in found if row.sample_age is not None],
    )  # fmt: skip


def _gauge(name: str, says: str, labels: tuple[str, ...], rows: Iterable[_Row]) -> Metric:
    gauge = GaugeMetricFamily(f"schedfuzz_{name}", says, labels=labels)
    for values, figure in rows:
        gauge.add_metric(values, figure)
    return gauge


def registry(store: Store) -> CollectorRegistry:
    """Return a registry of its own with the store's figures."""
    own = CollectorRegistry()
    own.register(Figures(store))
    return own


class Server(socketserver.ThreadingTCPServer):
    """A running server of metrics; `port` is where it listens."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], family: socket.AddressFamily, store: Store):
        self.address_family = family
        self.registry = registry(store)
        super().__init__(address, _Handler)
        self.port: int = self.server_address[1]
        self._thread = threading.Thread(target=self.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the port; may be called more than once."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _CLIENT_SECONDS
    server_version = "schedfuzz"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            encode, kind = choose_encoder(self.headers.get("Accept", ""))
            self._answer(HTTPStatus.OK, encode(self.server.registry), kind)
        elif path == "/healthz":
            self._answer(HTTPStatus.OK, b"ok\n")
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"see /metrics and /healthz\n")

    def __getattr__(self, name: str) -> Any:
        # The base class calls do_METHOD, whatever the client says METHOD is.
        if name.startswith("do_"):
            return self._refuse
        raise AttributeError(name)

    def _refuse(self) -> None:
        body = b"" if self.command == "HEAD" else b"only GET\n"
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, body)

    def _answer(self, status: HTTPStatus, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_: Any) -> None:
        """A scrape is no news."""


def serve(store: Store, host: str = "127.0.0.1", port: int = DEFAULT_PORT) -> Server:
    """Answer GET /metrics and /healthz (`ok` while the process lives) there; return the server.

    Port 0 takes a free one. Raises InputError for an address that cannot be listened on.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
        return Server((str(address[0]), port), family, store)
    except (OSError, OverflowError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"metrics address {host}:{port}: {why}; choose another with --metrics"
        ) from None
