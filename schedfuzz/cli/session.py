"""Nouns: session.

One hunt from the command line: pair, database, status display and what is left behind at its end.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from schedfuzz.cli.export import export_findings
from schedfuzz.cli.recorder import DatabaseRecorder
from schedfuzz.cli.signals import StopRequest, stop_on_signals
from schedfuzz.cli.status import Status, closing_block
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.db import queries, writes
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding
from schedfuzz.fuzzer.hunt import Hunt, Plan, Totals
from schedfuzz.workers.home import Home, trim_log
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.targets import Target


@dataclass
class Session:
    """A hunt's surroundings; `run` starts the pair, hunts and ends it."""

    home: Home
    store: Store
    before: Target
    after: Target
    plan: Plan
    console: Console

    def run(self, json_file: Path | None, export_dir: Path | None) -> list[Finding]:
        """Return the findings sighted by this hunt, written to `json_file` and exported."""
        pair = Pair(self.before, self.after, self.home, self.say)
        with self._stored() as recorder:
            pair.on_incident(recorder.incident)
            self.say(f"starting {recorder.before} and {recorder.after}, seed {self.plan.seed} …")
            with pair:
                with stop_on_signals() as stop:
                    rows = self._hunt(pair, recorder, json_file, stop)
                if export_dir is not None and not stop.made:
                    self._export(rows, pair, export_dir)
        return rows

    def say(self, line: str) -> None:
        """Print one plain line."""
        self.console.print(line, markup=False, soft_wrap=True)

    @contextlib.contextmanager
    def _stored(self) -> Iterator[DatabaseRecorder]:
        """Store the hunt as running; whatever ends it early leaves it interrupted."""
        names = self.before.name, self.after.name
        options = {"time": self.plan.seconds, "runs": self.plan.runs}
        number = writes.start_hunt(self.store, *names, self.plan.seed, options)
        recorder = DatabaseRecorder(self.store, number, *names)
        try:
            yield recorder
        except BaseException:
            if not recorder.finished:
                with contextlib.suppress(InfraError):
                    recorder.finish("interrupted")
            raise

    def _hunt(
        self, pair: Pair, recorder: DatabaseRecorder, json_file: Path | None, stop: StopRequest
    ) -> list[Finding]:
        """Hunt, then store, show and write the result."""
        names = f"{recorder.before} {recorder.after}"
        status = Status(self.console, names, self.plan.corpus[0], self.plan.seed)

        def tick(totals: Totals) -> None:
            status.restarts = pair.restarts
            recorder.progress(totals.executions, totals.seconds)
            status.show(totals)

        with status, _quiet(self.home.logs / "libfuzzer.log"):
            totals = Hunt(pair, recorder, self.plan, tick, lambda: stop.made).run()
        recorder.finish("interrupted" if stop.made else "done")
        rows = [queries.get_finding(self.store, finding) for finding in sorted(totals.findings)]
        closing_block(self.console, status, totals, rows, self._spelling())
        if json_file is not None:
            result = self._result(totals, rows, recorder) | {"restarts": pair.restarts}
            _write(json_file, msgspec.json.encode(result))
        return rows

    def _spelling(self) -> str:
        alone = self.before == self.after and not self.plan.self_check
        return self.before.spelling + ("" if alone else f" {self.after.spelling}")

    def _result(
        self, totals: Totals, rows: Sequence[Finding], recorder: DatabaseRecorder
    ) -> dict[str, Any]:
        found = []
        for row in rows:
            executions, seconds = recorder.first[row.id]
            # This hunt's own figures: the finding may be older than it.
            own = {"executions_to_find": executions, "seconds_to_find": seconds}
            found.append(queries.finding_as_json(row) | own)
        rate = totals.executions / totals.seconds if totals.seconds else 0.0
        return {
            "executions": totals.executions, "seconds": totals.seconds,
            "executions_per_second": rate, "findings": found, "infra": totals.infra,
            "left_out": totals.left_out,
            "seed": self.plan.seed,
        }  # fmt: skip

    def _export(self, rows: Sequence[Finding], pair: Pair, folder: Path) -> None:
        broken = [row for row in rows if row.verdict != "changed"]
        for _, result in export_findings(self.store, pair, broken, folder, self.console):
            failed = isinstance(result, Exception)
            self.say(f"not exported: {result}" if failed else f"exported {result}")


def _write(path: Path, data: bytes) -> None:
    # In place and not by a rename: it may be a pipe or a device.
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InputError(f"{path}: cannot write it ({error.strerror}); name another file") from None


@contextlib.contextmanager
def _quiet(log: Path) -> Iterator[None]:
    """Send what libFuzzer and Atheris print on both standard streams to a log file."""
    sys.stdout.flush()
    trim_log(log)
    saved = {number: os.dup(number) for number in (1, 2)}
    with log.open("ab") as file:
        for number in saved:
            os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        sys.stdout.flush()
        for number, copy in saved.items():
            os.dup2(copy, number)
            os.close(copy)
