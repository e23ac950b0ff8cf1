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

from schedfuzz.cli.export import export_finding
from schedfuzz.cli.recorder import DatabaseRecorder
from schedfuzz.cli.signals import stop_on_signals
from schedfuzz.cli.status import Status, closing_block
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.db import queries
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding, HuntState
from schedfuzz.fuzzer.hunt import Hunt, Plan, Totals
from schedfuzz.workers.home import Home
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
        names = self.before.name, self.after.name
        options = {"time": self.plan.seconds, "runs": self.plan.runs}
        pair = Pair(self.before, self.after, self.home, self.say)
        number = queries.start_hunt(self.store, *names, self.plan.seed, options)
        recorder = DatabaseRecorder(self.store, number, *names)
        pair.on_incident(recorder.incident)
        self.say(f"starting {names[0]} and {names[1]} …")
        status = Status(self.console, " ".join(names), self.plan.corpus[0], self.plan.seed)
        with pair:
            totals, interrupted = self._hunt(pair, recorder, status)
            state: HuntState = "interrupted" if interrupted else "done"
            queries.finish_hunt(self.store, number, state, totals.executions, totals.seconds)
            rows = [queries.get_finding(self.store, finding) for finding in sorted(totals.findings)]
            closing_block(self.console, status, totals, rows, self._spelling())
            if json_file is not None:
                json_file.write_bytes(msgspec.json.encode(self._result(totals, rows, recorder)))
            if export_dir is not None and not interrupted:
                self._export(rows, pair, export_dir)
        return rows

    def say(self, line: str) -> None:
        """Print one plain line."""
        self.console.print(line, markup=False, soft_wrap=True)

    def _hunt(self, pair: Pair, recorder: DatabaseRecorder, status: Status) -> tuple[Totals, bool]:
        def tick(totals: Totals) -> None:
            status.restarts = pair.restarts
            recorder.progress(totals.executions, totals.seconds)
            status.show(totals)

        log = self.home.logs / "libfuzzer.log"
        with status, stop_on_signals() as stop, _quiet(log):
            hunt = Hunt(pair, recorder, self.plan, tick, lambda: stop.made)
            return hunt.run(), stop.made

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
            "seed": self.plan.seed,
        }  # fmt: skip

    def _export(self, rows: Sequence[Finding], pair: Pair, folder: Path) -> None:
        for row in rows:
            if row.verdict == "changed":
                continue
            try:
                path = export_finding(self.store, pair, row, folder, self.console)
                self.say(f"exported {path}")
            except (InputError, InfraError) as error:
                self.say(f"not exported: {error}")


@contextlib.contextmanager
def _quiet(log: Path) -> Iterator[None]:
    """Send what libFuzzer and Atheris print on both standard streams to a log file."""
    sys.stdout.flush()
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
