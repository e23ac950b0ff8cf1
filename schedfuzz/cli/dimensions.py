"""Nouns: dimensions command.

One example a dimension, run on one release after the other: a release's process holds a gigabyte,
and most of the time is its start.
"""

import os
import time
from pathlib import Path

import click

from schedfuzz.cli.corpus import LINE_SECONDS
from schedfuzz.cli.dimension_page import Column, cell, page, table
from schedfuzz.cli.hunt import OTHER_PLACE, seed_corpus
from schedfuzz.cli.source import write_file
from schedfuzz.cli.targets import say
from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.workers.build import ensure
from schedfuzz.workers.environment import Environment, list_environments
from schedfuzz.workers.home import Home, make_directory
from schedfuzz.workers.process import TargetProcess
from schedfuzz.workers.targets import Target, parse_release


@click.command()
@click.argument("releases", nargs=-1, metavar="[RELEASE]...")
@click.option(
    "--write", "file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Write the page to FILE instead; only what is between its markers is replaced.",
)  # fmt: skip
def dimensions(releases: tuple[str, ...], file: Path | None) -> None:
    """Run the example of every dimension on each RELEASE and show what works, as Markdown.

    Without RELEASE, on every ready target.
    """
    home = Home.locate()
    wanted = [parse_release(release) for release in releases] or ready(home)
    if file is not None:
        make_directory(file.absolute().parent, OTHER_PLACE)
        _page({}, "", file)  # a file of somebody else's is no place for it: say so now
    seeds = {path.stem: codec.load(path) for path in sorted(seed_corpus().glob("*.json"))}
    columns: dict[str, Column] = {}
    for env in [ensure(release, home, say) for release in dict.fromkeys(wanted)]:
        columns[env.release] = _column(env, seeds, home)
    if file is None:
        click.echo(table(columns), nl=False)
        return
    place = os.path.relpath(file) if file.is_relative_to(Path.cwd()) else str(file)
    command = " ".join(["schedfuzz targets dimensions", *columns, "--write", place])
    write_file(file, _page(columns, command, file))
    click.echo(file)


def ready(home: Home) -> list[str]:
    """Return the releases whose environments are ready, oldest first. Raises InputError."""
    found = [env.release for env in list_environments(home) if not env.problem()]
    if not found:
        raise InputError("no target is ready; name a RELEASE, or `schedfuzz targets add 0.28.0`")
    return sorted(found, key=lambda name: [int(n) for n in name.split("rc")[0].split(".")[:3]])


def _column(env: Environment, seeds: dict[str, Scenario], home: Home) -> Column:
    column: Column = {}
    log = home.logs / f"dimensions-{env.release}.log"
    process = TargetProcess(Target(env.release), env, log, coverage=False)
    say(f"starting {env.release}")
    said = time.monotonic()
    try:
        process.spawn()
        process.wait_ready()
        for stem, scenario in seeds.items():
            process.submit(scenario)
            column[stem] = cell(process.collect(), str(home.root))
            if time.monotonic() - said >= LINE_SECONDS:
                said = time.monotonic()
                say(f"{env.release}: ran {len(column)} of {len(seeds)} examples")
    finally:
        process.stop()
    say(f"{env.release}: ran {len(column)} of {len(seeds)} examples")
    return column


def _page(columns: dict[str, Column], command: str, file: Path) -> str:
    try:
        around = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        around = ""
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{file}: cannot read what it holds; name another file") from None
    try:
        return page(columns, command, around)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
