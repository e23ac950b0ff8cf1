"""Nouns: dimensions command, column, own words.

One example a dimension, run on one release after the other: a release's process holds a gigabyte,
and most of the time is its start. What the real runner does not play is tried all the same, for
what the release itself says to it.
"""

import os
import time
from pathlib import Path
from typing import Any

import click

from schedfuzz.cli.corpus import LINE_SECONDS
from schedfuzz.cli.dimension_page import PARTS, Cell, Column, cell, page, table
from schedfuzz.cli.hunt import OTHER_PLACE
from schedfuzz.cli.targets import say
from schedfuzz.corpus import codec
from schedfuzz.corpus.brought import seed_corpus
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace
from schedfuzz.fuzzer.supported import Supported
from schedfuzz.workers.build import ensure
from schedfuzz.workers.environment import Environment, list_environments
from schedfuzz.workers.home import Home, make_directory, write_file
from schedfuzz.workers.process import TargetProcess
from schedfuzz.workers.target.real import limits
from schedfuzz.workers.targets import Runner, Target, parse_release


@click.command()
@click.argument("releases", nargs=-1, metavar="[RELEASE]...")
@click.option(
    "--write", "file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Write the page to FILE instead; only what is between its markers is replaced.",
)  # fmt: skip
@click.option(
    "--runner", type=click.Choice(list(PARTS)), default="simulated", show_default=True,
    help="What plays the model.",
)  # fmt: skip
def dimensions(releases: tuple[str, ...], file: Path | None, runner: Runner) -> None:
    """Run the example of every dimension on each RELEASE and show what works, as Markdown.

    Without RELEASE, on every ready target.
    """
    home = Home.locate()
    wanted = [parse_release(release) for release in releases] or ready(home)
    if file is not None:
        make_directory(file.absolute().parent, OTHER_PLACE)
        _page({}, "", file, runner)  # a file of somebody else's is no place for it: say so now
    seeds = {path.stem: codec.load(path) for path in sorted(seed_corpus().glob("*.json"))}
    columns: dict[str, Column] = {}
    for env in [ensure(release, home, say) for release in dict.fromkeys(wanted)]:
        of = _real_column if runner == "real" else _column
        columns[env.release] = of(env, seeds, home)
    if file is None:
        click.echo(table(columns), nl=False)
        return
    place = os.path.relpath(file) if file.is_relative_to(Path.cwd()) else str(file)
    asked = ["--runner", "real"] if runner == "real" else []
    command = " ".join(["schedfuzz targets dimensions", *columns, *asked, "--write", place])
    write_file(file, _page(columns, command, file, runner))
    click.echo(file)


def ready(home: Home) -> list[str]:
    """Return the releases whose environments are ready, oldest first. Raises InputError."""
    found = [env.release for env in list_environments(home) if not env.problem()]
    if not found:
        raise InputError("no target is ready; name a RELEASE, or `schedfuzz targets add 0.28.0`")
    return sorted(found, key=lambda name: [int(n) for n in name.split("rc")[0].split(".")[:3]])


def _column(env: Environment, seeds: dict[str, Scenario], home: Home) -> Column:
    traces = _traces(Target(env.release), env, seeds, home)
    return {stem: cell(trace, str(home.root)) for stem, trace in traces.items()}


def _real_column(env: Environment, seeds: dict[str, Scenario], home: Home) -> Column:
    """Return the column of the real runner; what it does not play has the release's own words."""
    supported = Supported()
    supported.learn(limits.block_size(env.build))
    fitted = {stem: supported.fit(seed) for stem, seed in seeds.items()}
    target = Target(env.release, runner="real")
    try:
        traces = _traces(target, env, fitted, home)
    except InfraError as error:
        return {stem: Cell("not run", str(error).partition("; see ")[0]) for stem in seeds}
    left = {stem: seed for stem, seed in fitted.items() if traces[stem].outcome == "unsupported"}
    tried = _traces(target, env, left, home, limits=False) if left else {}
    return {
        stem: _with_own_words(cell(trace, str(home.root)), tried.get(stem), home)
        for stem, trace in traces.items()
    }


def _with_own_words(known: Cell, tried: Trace | None, home: Home) -> Cell:
    """Return a cell with what the release says to a scenario that was tried beyond the limits."""
    if tried is None or not (tried.outcome == "rejected" or _crashed(tried)):
        return known
    return Cell(known.word, f"{known.message}: {cell(tried, str(home.root)).message}")


def _crashed(trace: Trace) -> bool:
    return any(found.kind == "crash" for found in trace.violations)


def _traces(
    target: Target, env: Environment, seeds: dict[str, Scenario], home: Home, **settings: Any
) -> dict[str, Trace]:
    """Return the trace of each example. Raises InfraError when the target cannot start."""
    traces: dict[str, Trace] = {}
    log = home.logs / f"dimensions-{env.release}.log"
    process = TargetProcess(target, env, log, coverage=False, **settings)
    say(f"starting {target.name}")
    said = time.monotonic()
    try:
        process.spawn()
        process.wait_ready()
        for stem, scenario in seeds.items():
            process.submit(scenario)
            traces[stem] = process.collect()
            if time.monotonic() - said >= LINE_SECONDS:
                said = time.monotonic()
                say(f"{target.name}: ran {len(traces)} of {len(seeds)} examples")
    finally:
        process.stop()
    say(f"{target.name}: ran {len(traces)} of {len(seeds)} examples")
    return traces


def _page(columns: dict[str, Column], command: str, file: Path, runner: Runner) -> str:
    try:
        around = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        around = ""
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{file}: cannot read what it holds; name another file") from None
    try:
        return page(columns, command, around, runner)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
