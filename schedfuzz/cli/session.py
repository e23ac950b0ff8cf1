"""Nouns: session, lane.

One hunt from the command line: pairs, database, status display and what is left behind at its end.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rich.console import Console

from schedfuzz.cli.status import Status, closing_block
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.db import queries, writes
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding
from schedfuzz.fuzzer.hunt import Hunt, Plan, Totals
from schedfuzz.fuzzer.replays import Replays
from schedfuzz.service.exporting import export_findings
from schedfuzz.service.recorder import DatabaseRecorder
from schedfuzz.workers.home import Home, trim_log
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.signals import StopRequest, stop_on_signals
from schedfuzz.workers.targets import Target


class Lane(NamedTuple):
    """One pair of a hunt and the recorder of what it says."""

    pair: Pair
    recorder: DatabaseRecorder

    @property
    def names(self) -> str:
        """Return the names of both targets."""
        return f"{self.recorder.before} {self.recorder.after}"


@dataclass
class Session:
    """A hunt's surroundings; `run` starts the pairs, hunts and ends them.

    With `both` the same targets on the real runner replay what is new.
    """

    home: Home
    store: Store
    before: Target
    after: Target
    plan: Plan
    console: Console
    both: bool = False

    def run(self, json_file: Path | None, export_dir: Path | None) -> list[Finding]:
        """Return the findings sighted by this hunt, written to `json_file` and exported."""
        with contextlib.ExitStack() as stack:
            lanes = [stack.enter_context(self._lane(self.before, self.after))]
            if self.both:
                real = self.before.on("real"), self.after.on("real")
                lanes.append(stack.enter_context(self._lane(*real, coverage=False)))
            with stop_on_signals() as stop:
                rows = self._hunt(lanes, json_file, stop)
            if export_dir is not None and not stop.made:
                for lane in lanes:
                    self._export([row for row in rows if row.id in lane.recorder.first],
                                 lane.pair, export_dir)  # fmt: skip
        return rows

    def say(self, line: str) -> None:
        """Print one plain line."""
        self.console.print(line, markup=False, soft_wrap=True)

    @contextlib.contextmanager
    def _lane(self, before: Target, after: Target, **options: Any) -> Iterator[Lane]:
        pair = Pair(before, after, self.home, self.say, **options)
        with self._stored(before, after) as recorder:
            pair.on_incident(recorder.incident)
            self.say(f"starting {recorder.before} and {recorder.after}, seed {self.plan.seed} …")
            with pair:
                yield Lane(pair, recorder)

    @contextlib.contextmanager
    def _stored(self, before: Target, after: Target) -> Iterator[DatabaseRecorder]:
        """Store the hunt as running; whatever ends it early leaves it interrupted."""
        names = before.name, after.name
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
        self, lanes: Sequence[Lane], json_file: Path | None, stop: StopRequest
    ) -> list[Finding]:
        """Hunt, then store, show and write the result."""
        pair, recorder = lanes[0]
        replays = self._replays(lanes)
        status = Status(self.console, lanes[0].names, self.plan.corpus[0], self.plan.seed, replays)

        def tick(totals: Totals) -> None:
            status.restarts = sum(lane.pair.restarts for lane in lanes)
            recorder.progress(totals.executions, totals.seconds)
            if replays is not None:
                lanes[1].recorder.progress(replays.executions, totals.seconds)
            status.show(totals)

        with status, quiet(self.home.logs / "libfuzzer.log"):
            hunt = Hunt(
                recorder.watched(pair.run), recorder, self.plan, tick, lambda: stop.made, replays
            )
            totals = hunt.run()
        for lane in lanes:
            lane.recorder.finish("interrupted" if stop.made else "done")
        first = {number: when for lane in lanes for number, when in lane.recorder.first.items()}
        rows = [queries.get_finding(self.store, finding) for finding in sorted(first)]
        closing_block(self.console, status, totals, rows, self._spelling())
        if json_file is not None:
            result = self._result(totals, rows, first) | {"restarts": status.restarts}
            _write(json_file, msgspec.json.encode(result | _replayed(replays)))
        return rows

    def _replays(self, lanes: Sequence[Lane]) -> Replays | None:
        if not self.both:
            return None
        pair, recorder = lanes[1]
        return Replays(recorder.watched(pair.run), recorder, self.plan.self_check)

    def _spelling(self) -> str:
        """Return the arguments that hunt on."""
        alone = self.before == self.after and not self.plan.self_check
        pair = self.before.spelling + ("" if alone else f" {self.after.spelling}")
        return pair + (" --runner both" if self.both else "")

    def _result(
        self, totals: Totals, rows: Sequence[Finding], first: dict[int, tuple[int, float]]
    ) -> dict[str, Any]:
        found = []
        for row in rows:
            executions, seconds = first[row.id]
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
        kept: dict[str, list[str]] = {}
        for row, result in export_findings(self.store, pair, broken, folder, self.say):
            if isinstance(result, Path):
                self.say(f"exported {result}")
            else:
                reason = str(result).removeprefix(f"finding {row.id}: ")
                kept.setdefault(reason, []).append(str(row.id))
        for reason, ids in kept.items():
            which = "finding" if len(ids) == 1 else "findings"
            self.say(f"not exported ({which} {', '.join(ids)}): {reason}")


def _replayed(replays: Replays | None) -> dict[str, float]:
    """Return the figures of the real pair that `--json` adds."""
    if replays is None:
        return {}
    return {
        "real_executions": replays.executions, "real_seconds": replays.seconds,
        "real_waiting": replays.waiting, "real_skipped": replays.skipped,
        "real_infra": replays.infra,
    }  # fmt: skip


def _write(path: Path, data: bytes) -> None:
    # In place and not by a rename: it may be a pipe or a device.
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InputError(f"{path}: cannot write it ({error.strerror}); name another file") from None


@contextlib.contextmanager
def quiet(log: Path) -> Iterator[None]:
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
