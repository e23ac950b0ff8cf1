"""Nouns: slice, current scenario.

One slice of a campaign's hunt, in a process of its own: Atheris guides once per process, and what
becomes of that process takes nothing else along. Findings go to the database at once; confirming
and minimizing them is left to triage. The order comes on standard input, reports go out on standard
output.
"""

import ctypes
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from schedfuzz.corpus.brought import seed_corpus
from schedfuzz.corpus.codec import encode
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace
from schedfuzz.db import poison, writes
from schedfuzz.db.connect import Store, open_store
from schedfuzz.fuzzer.guide import MAX_SCENARIO_BYTES
from schedfuzz.fuzzer.hunt import Hunt, Plan, Totals
from schedfuzz.fuzzer.reduction import RunPair
from schedfuzz.service.orders import Order, Report
from schedfuzz.service.recorder import DatabaseRecorder, LastingRecorder
from schedfuzz.service.unsaved import Unsaved
from schedfuzz.workers.footprint import footprint
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair, limit_of
from schedfuzz.workers.signals import StopRequest, stop_on_signals
from schedfuzz.workers.target.main import PR_SET_PDEATHSIG
from schedfuzz.workers.targets import parse_target

REPORT_SECONDS = 5.0
SIZE = 2 * MAX_SCENARIO_BYTES  # repair may make a scenario longer than its input
EXIT_INFRA, EXIT_INPUT = 1, 2


class Current:
    """The scenario at hand, in a file that outlives this process."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b")
        try:
            # A map of what the disk has no room for would kill this process where it is written.
            os.posix_fallocate(self._file.fileno(), 0, SIZE)
        except OSError as error:
            raise InfraError(f"{path}: {error.strerror}") from error
        self._map = mmap.mmap(self._file.fileno(), SIZE)

    def around(self, run: RunPair) -> RunPair:
        """Return what shows each scenario before it runs it."""

        def watched(scenario: Scenario) -> tuple[Trace, Trace]:
            data = encode(scenario)
            # Whoever reads it stops at the first zero byte.
            self._map[: len(data) + 1] = data + b"\0"
            return run(scenario)

        return watched

    def clear(self) -> None:
        """Say that no scenario is at hand."""
        self._map[:1] = b"\0"


def main() -> int:
    """Hunt for one slice; return 0, 1 for a fault of the machine, 2 for a bad order."""
    _leave_with_parent()
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # libFuzzer prints there; standard error is the log
    try:
        with stop_on_signals() as stop:
            hunt(order, stop, lambda report: _tell(out, report))
    except (InfraError, InputError) as error:
        print(error, file=sys.stderr, flush=True)
        return EXIT_INPUT if isinstance(error, InputError) else EXIT_INFRA
    return 0


def hunt(order: Order, stop: StopRequest, told: Callable[[Report], None]) -> None:
    """Carry out an order; `told` hears now and then how far it is.

    Raises InfraError and InputError as a hunt from the command line does.
    """
    store = open_store(order.database)
    home = Home.locate()
    before, after = parse_target(order.before), parse_target(order.after)
    plan = Plan(
        [Path(order.corpus), *([seed_corpus()] if order.seeds else [])], order.seed,
        order.seconds, order.executions, self_check=order.self_check, artifacts=home.logs,
        limit=limit_of(before, after), dimensions=order.dimensions, reduce=False, reload=True,
        quarantined=frozenset(poison.quarantined(store, before.name, after.name)),
    )  # fmt: skip
    with Pair(before, after, home, lambda line: None) as pair:
        _hunt(order, store, pair, plan, stop, told)


def _hunt(
    order: Order, store: Store, pair: Pair, plan: Plan, stop: StopRequest,
    told: Callable[[Report], None],
) -> None:  # fmt: skip
    names = pair.before.target.name, pair.after.target.name
    options = {"time": order.seconds, "runs": order.executions} | order.options
    number = writes.start_hunt(
        store, *names, order.seed, options, campaign_id=order.campaign, node=order.node
    )
    unsaved = Unsaved(Home.locate(), order.database)
    recorder = LastingRecorder(store, number, *names, order.campaign, unsaved)
    pair.on_incident(recorder.incident)
    reports = _Reports(number, pair, recorder, told)
    current = Current(Path(order.current))
    ended = False
    try:
        run = current.around(recorder.watched(pair.run))
        Hunt(run, recorder, plan, reports.tick, lambda: stop.made).run()
        ended = not stop.made
    finally:
        current.clear()
        recorder.finish("done" if ended else "interrupted")
    reports.tell("done")


class _Reports:
    """Tells the actor and the database how far the hunt is."""

    def __init__(
        self, number: int, pair: Pair, recorder: DatabaseRecorder,
        told: Callable[[Report], None],
    ) -> None:  # fmt: skip
        self.number = number
        self.pair = pair
        self.recorder = recorder
        self.told = told
        self.totals = Totals()
        self._said = 0.0

    def tick(self, totals: Totals) -> None:
        """Hear of the hunt's totals."""
        self.totals = totals
        self.recorder.progress(totals.executions, totals.seconds)
        if time.monotonic() - self._said >= REPORT_SECONDS:
            self._said = time.monotonic()
            self.tell(totals.state)

    def tell(self, state: str) -> None:
        """Report at once."""
        totals = self.totals
        self.told(
            Report(
                hunt=self.number, state=state, executions=totals.executions,
                seconds=totals.seconds, sites=totals.sites, features=totals.features,
                findings=len(totals.findings), infra=totals.infra, restarts=self.pair.restarts,
                memory=footprint(os.getpid()),
            )
        )  # fmt: skip


def _tell(out: object, report: Report) -> None:
    out.write(msgspec.json.encode(report) + b"\n")  # type: ignore[attr-defined]


def _leave_with_parent() -> None:
    """Have the kernel ask this process to stop, in good order, when the actor dies."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(EXIT_INFRA)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # libFuzzer's exit handler would change the code.
    os._exit(code)
