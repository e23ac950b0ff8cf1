"""Nouns: hunt command.

Builds what is missing, hunts, and leaves with the findings stored. Ctrl-C and SIGTERM end it as its
time limit would: what is open is stored and the next hunt of the pair goes on from there.
"""

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import click
import msgspec

from schedfuzz.cli.export import export_finding
from schedfuzz.cli.options import console as make_console
from schedfuzz.cli.options import db_option
from schedfuzz.cli.recorder import DatabaseRecorder
from schedfuzz.cli.signals import stop_on_signals
from schedfuzz.cli.status import Status, closing_block
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.db import queries
from schedfuzz.db.connect import Store, open_store
from schedfuzz.db.models import Finding, HuntState
from schedfuzz.fuzzer import guide
from schedfuzz.fuzzer.hunt import Hunt, Totals
from schedfuzz.workers.home import Home, make_directory
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.targets import parse_target

DEFAULT_SECONDS = 300.0
EXIT_FINDINGS = 3


@click.command()
@click.argument("before")
@click.argument("after")
@click.option(
    "--time",
    "seconds",
    type=click.FloatRange(0, 10**8),
    metavar="SECONDS",
    help="Hunt for this long (default 300, or unlimited with --runs).",
)
@click.option("--runs", type=click.IntRange(0, 10**12), help="Stop after this many executions.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 2), help="Repeat a hunt exactly.")
@click.option(
    "--corpus",
    "corpus_dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Start from this directory instead of the kept corpus.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the result as one JSON object.",
)
@click.option(
    "--export",
    "export_dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Export every violation found as a pytest file.",
)
@click.option("--strict", is_flag=True, help="Divergences alone also exit with 3.")
@db_option
def hunt(
    before: str, after: str, seconds: float | None, runs: int | None, seed: int | None,
    corpus_dir: Path | None, json_file: Path | None, export_dir: Path | None, strict: bool,
    db_url: str | None,
) -> int:  # fmt: skip
    """Fuzz BEFORE against AFTER (releases such as 0.28.0 0.29.0) and store what differs."""
    if not guide.available():
        raise InputError("hunt needs Atheris, which this machine has not; x86_64 Linux has it")
    if seconds is None and runs is None:
        seconds = DEFAULT_SECONDS
    seed = secrets.randbelow(2**31 - 2) if seed is None else seed
    home = Home.locate()
    if json_file is not None:
        _check_writable(json_file)
    if export_dir is not None:
        make_directory(export_dir)
    store = open_store(db_url or home.database_url)
    return _Session(home, store, before, after, seed, corpus_dir).run(
        seconds, runs, json_file, export_dir, strict
    )


class _Session:
    def __init__(
        self, home: Home, store: Store, before: str, after: str, seed: int, corpus: Path | None
    ) -> None:
        self.home = home
        self.store = store
        self.before = parse_target(before)
        self.after = parse_target(after)
        self.seed = seed
        self.console = make_console()
        if corpus is None:
            self.corpus = [home.corpus(self.before.name, self.after.name), seed_corpus()]
        else:
            self.corpus = [make_directory(corpus)]

    def run(
        self, seconds: float | None, runs: int | None, json_file: Path | None,
        export_dir: Path | None, strict: bool,
    ) -> int:  # fmt: skip
        names = self.before.name, self.after.name
        options = {"time": seconds, "runs": runs, "corpus": str(self.corpus[0])}
        status = Status(self.console, " ".join(names), self.corpus[0], self.seed)
        say = self.console.print
        pair = Pair(self.before, self.after, self.home, say)
        hunt_id = queries.start_hunt(self.store, *names, self.seed, options)
        recorder = DatabaseRecorder(self.store, hunt_id, *names)
        for process in (pair.before, pair.after):
            process.on_incident = recorder.incident
        say(f"starting {names[0]} and {names[1]} …")
        with pair:
            totals, interrupted = self._hunt(pair, recorder, status, seconds, runs)
            state: HuntState = "interrupted" if interrupted else "done"
            queries.finish_hunt(self.store, hunt_id, state, totals.executions, totals.seconds)
            rows = [queries.get_finding(self.store, number) for number in sorted(totals.findings)]
            pair_spelling = f"{self.before.spelling} {self.after.spelling}"
            closing_block(self.console, status, totals, rows, pair_spelling)
            if json_file is not None:
                json_file.write_bytes(msgspec.json.encode(self._result(totals, rows, recorder)))
            if export_dir is not None and not interrupted:
                self._export(rows, pair, export_dir)
        return EXIT_FINDINGS if _alarms(rows, strict) else 0

    def _hunt(
        self, pair: Pair, recorder: DatabaseRecorder, status: Status, seconds: float | None,
        runs: int | None,
    ) -> tuple[Totals, bool]:  # fmt: skip
        def tick(totals: Totals) -> None:
            status.restarts = pair.restarts
            recorder.progress(totals.executions, totals.seconds)
            status.show(totals)

        log = self.home.logs / "libfuzzer.log"
        with status, stop_on_signals() as stop, _quiet(log):
            hunt = Hunt(
                pair, recorder, self.corpus, self.seed, seconds, runs, tick, lambda: stop.made
            )
            return hunt.run(), stop.made

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
            "seed": self.seed,
        }  # fmt: skip

    def _export(self, rows: Sequence[Finding], pair: Pair, folder: Path) -> None:
        for row in rows:
            if row.verdict == "changed":
                continue
            try:
                path = export_finding(self.store, pair, row, folder, self.console)
                self.console.print(f"exported {path}", markup=False, soft_wrap=True)
            except (InputError, InfraError) as error:
                self.console.print(f"not exported: {error}", markup=False, soft_wrap=True)


def seed_corpus() -> Path:
    """Return the directory of the scenarios that schedfuzz brings along."""
    return Path(str(resources.files("schedfuzz.corpus") / "seeds"))


def _alarms(rows: Sequence[Finding], strict: bool) -> bool:
    return any(strict or row.verdict != "changed" for row in rows)


def _check_writable(path: Path) -> None:
    make_directory(path.absolute().parent)
    try:
        path.touch()
    except OSError as error:
        raise InputError(f"{path}: cannot write it ({error.strerror}); name another file") from None


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
