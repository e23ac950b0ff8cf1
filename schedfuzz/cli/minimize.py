"""Nouns: minimize command.

Goes on where a hunt's minimization ended, or reduces a scenario file. The best so far is stored at
once, so Ctrl-C and SIGTERM lose nothing and the next call goes on from there.
"""

import math
import time
from pathlib import Path

import click

from schedfuzz.cli.options import Seconds, db_option, open_db, runner_option
from schedfuzz.cli.source import (
    finding_id,
    load_scenario,
    parse_on,
    refuse_beyond,
    refuse_unplayable,
    reproducer,
    start_pair,
    stored_pair,
)
from schedfuzz.cli.targets import say
from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.db import queries
from schedfuzz.fuzzer.judge import judge, shorter
from schedfuzz.fuzzer.reduction import Budget, Reduction, RunPair, State
from schedfuzz.service.recorder import DatabaseRecorder
from schedfuzz.workers.home import make_directory, write_file
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.signals import EXIT_INTERRUPTED, StopRequest, stop_on_signals
from schedfuzz.workers.targets import Target

UNLIMITED = Budget(math.inf, math.inf)  # what bounds this verb are its own options

LINE_SECONDS = 10.0


class Limits:
    """How long to go on: seconds, calls (executions of candidates), a stop request."""

    def __init__(self, seconds: float | None, calls: int | None, stop: StopRequest) -> None:
        self.end = None if seconds is None else time.monotonic() + seconds
        self.calls = calls
        self.stop = stop

    def reached(self, calls: int) -> bool:
        """Return whether any of them is reached."""
        late = self.end is not None and time.monotonic() >= self.end
        return self.stop.made or late or (self.calls is not None and calls >= self.calls)


@click.command()
@click.argument("source", metavar="ID|SCENARIO")
@click.argument("before", required=False)
@click.argument("after", required=False)
@click.option(
    "--time",
    "seconds",
    type=Seconds(),
    metavar="TIME",
    help="Stop after this long: 90, 90s, 10m, 2h. Without a limit it ends when nothing can be "
    "left out.",
)
@click.option(
    "--calls", type=click.IntRange(0, 10**9), metavar="N", help="Try at most N candidates."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="With a SCENARIO file: write the result here instead of printing it.",
)
@runner_option
@db_option
def minimize(
    source: str, before: str | None, after: str | None, seconds: float | None, calls: int | None,
    out: Path | None, runner: str | None, db_url: str | None,
) -> int:  # fmt: skip
    """Make a reproducer smaller: that of the finding ID, or a SCENARIO file on BEFORE and AFTER.

    A finding brings its own targets; give BEFORE and AFTER for one with a transform.
    """
    if before is not None and after is None:
        raise click.UsageError("give both BEFORE and AFTER")
    number = finding_id(source)
    if number is not None:
        if out is not None:
            raise click.UsageError("--out is for a SCENARIO file; a finding keeps its result")
        return _finding(number, before, after, runner, seconds, calls, db_url)
    if before is None or after is None:
        raise click.UsageError("a SCENARIO file needs BEFORE and AFTER")
    targets = parse_on(before, runner), parse_on(after, runner)
    return _file(source, targets, seconds, calls, out)


# -- a stored finding ----------------------------------------------------------------------------


def _finding(
    number: int, before: str | None, after: str | None, runner: str | None,
    seconds: float | None, calls: int | None, db_url: str | None,
) -> int:  # fmt: skip
    store = open_db(db_url)
    row = queries.get_finding(store, number)
    targets = stored_pair(row, "minimize", before, after, runner)
    refuse_beyond(targets, reproducer(row))
    recorder = DatabaseRecorder(store, row.hunt_id, row.before, row.after)
    reduction = Reduction(
        row.id, row.verdict, row.verdict_fingerprint, reproducer(row), row.reproducer_steps,
        recorder, row.minimize_calls, budget=UNLIMITED,
    )  # fmt: skip
    with start_pair(*targets) as pair, stop_on_signals() as stop:
        _reduce(reduction, recorder.watched(pair.run), Limits(seconds, calls, stop))
    if reduction.done and not reduction.hits:
        raise InfraError(
            f"finding {row.id}: its reproducer did not repeat in {reduction.runs} runs"
        )
    row = queries.get_finding(store, number)
    size = f"{row.reproducer_requests} requests, {row.reproducer_events} events"
    click.echo(
        f"finding {row.id}: {row.minimize_state} after {row.minimize_calls} calls: {size}, "
        f"{row.reproducer_steps} steps\n  schedfuzz show {row.id}"
    )
    return EXIT_INTERRUPTED if stop.made else 0


# -- a scenario file -----------------------------------------------------------------------------


class FileNotebook:
    """Keeps the best so far in a file, if there is one."""

    def __init__(self, out: Path | None) -> None:
        self.out = out

    def confirmed(self, finding: int, runs: int, hits: int) -> None:
        """Nothing to keep."""

    def reproducer(
        self, finding: int, scenario: Scenario, steps: int, calls: int, state: State
    ) -> None:
        """Write the best so far."""
        if self.out is not None:
            write_file(self.out, codec.pretty(scenario))


def _file(
    source: str, targets: tuple[Target, Target], seconds: float | None, calls: int | None,
    out: Path | None,
) -> int:  # fmt: skip
    scenario = load_scenario(source, None)
    refuse_beyond(targets, scenario)
    if out is not None:
        make_directory(out.absolute().parent)
    with start_pair(*targets) as pair, stop_on_signals() as stop:
        reduction = _from_file(source, scenario, pair, targets, FileNotebook(out))
        _reduce(reduction, pair.run, Limits(seconds, calls, stop))
    if reduction.done and not reduction.hits:
        raise InfraError(f"{source}: its verdict did not repeat in {reduction.runs} runs")
    if out is None:
        click.echo(codec.pretty(reduction.minimizer.best), nl=False)
    else:
        click.echo(f"{out}: {_size(reduction)}")
    return EXIT_INTERRUPTED if stop.made else 0


def _from_file(
    source: str, scenario: Scenario, pair: Pair, targets: tuple[Target, Target],
    notebook: FileNotebook,
) -> Reduction:  # fmt: skip
    traces = pair.run(scenario)
    refuse_unplayable(targets, traces)
    verdict = judge(*traces)
    if verdict.verdict == "infra":
        raise InfraError(f"{source}: the scenario could not be run: {verdict.detail}")
    if not verdict.fingerprint:
        raise InputError(f"{source}: this pair says {verdict.verdict}, so nothing can be minimized")
    say(f"{verdict.verdict}  {verdict.kind}  {verdict.title}")
    steps = shorter(*traces)
    notebook.reproducer(0, scenario, steps, 0, "running")
    return Reduction(
        0, verdict.verdict, verdict.fingerprint, scenario, steps, notebook, budget=UNLIMITED
    )


# -- both ----------------------------------------------------------------------------------------


def _reduce(reduction: Reduction, run: RunPair, limits: Limits) -> None:
    """Go on until done or a limit; a line for each improvement and every ten seconds."""
    machine = reduction.minimizer
    best, said = machine.best, time.monotonic()
    say(f"from {_size(reduction)}")
    while not reduction.done and not limits.reached(machine.calls):
        reduction.advance(run)
        if machine.best is not best or time.monotonic() - said >= LINE_SECONDS:
            best, said = machine.best, time.monotonic()
            say(f"call {machine.calls}: {_size(reduction)}")
    if not reduction.done:
        reduction.pause()


def _size(reduction: Reduction) -> str:
    best = reduction.minimizer.best
    counts = f"{len(best.requests)} requests, {len(best.events)} events"
    return f"{counts}, {reduction.minimizer.steps} steps, {len(codec.encode(best))} bytes"
