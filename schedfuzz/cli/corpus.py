"""Nouns: the `corpus` verbs (path, list, import, merge; coverage has its own module).

A pair's corpus is a directory of scenario files that the next hunt starts from. Merging writes the
small set first and deletes the rest last, so the directory never holds less than it should.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import click

from schedfuzz.cli.options import json_option, print_json
from schedfuzz.cli.source import start_pair
from schedfuzz.cli.targets import say
from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.fuzzer.distill import Entry, distill, lit
from schedfuzz.fuzzer.judge import judge
from schedfuzz.workers.home import Home, make_directory, write_file
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.signals import EXIT_INTERRUPTED, StopRequest, stop_on_signals
from schedfuzz.workers.targets import Target, parse_target

LINE_SECONDS = 10.0
NAME_CHARS = 16

Found = dict[str, Scenario]  # by scenario id


@click.group()
def corpus() -> None:
    """Look at, feed and distill the scenarios that a pair's hunts start from."""


@corpus.command()
@click.argument("before")
@click.argument("after")
def path(before: str, after: str) -> None:
    """Print the directory of the pair's corpus."""
    click.echo(_directory(parse_target(before), parse_target(after)))


@corpus.command("list")
@click.argument("before")
@click.argument("after")
@json_option
def list_corpus(before: str, after: str, as_json: bool) -> None:
    """Print where the pair's corpus is, its scenarios and its size in bytes."""
    directory = _directory(parse_target(before), parse_target(after))
    sizes = [file.stat().st_size for file in files_in(directory)]
    facts = {"directory": str(directory), "scenarios": len(sizes), "bytes": sum(sizes)}
    if as_json:
        print_json(facts)
    else:
        click.echo(f"{directory}\t{len(sizes)} scenarios\t{sum(sizes)} bytes")


@corpus.command("import")
@click.argument("before")
@click.argument("after")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE..."
)
def import_files(before: str, after: str, files: tuple[Path, ...]) -> None:
    """Copy scenario FILEs into the pair's corpus."""
    directory = _directory(parse_target(before), parse_target(after))
    scenarios = [codec.load(file) for file in files]
    for scenario in scenarios:
        click.echo(_write(directory, scenario))


@corpus.command()
@click.argument("before")
@click.argument("after")
@click.argument(
    "others",
    nargs=-1,
    metavar="[FROM_DIR]...",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
)
@click.option(
    "--corpus", "corpus_dir", metavar="DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Merge into this directory instead of the pair's corpus.",
)  # fmt: skip
def merge(before: str, after: str, others: tuple[Path, ...], corpus_dir: Path | None) -> int:
    """Keep few scenarios of the pair's corpus, and of each FROM_DIR, that light all features.

    Files that are no scenarios, and each FROM_DIR, stay as they are.
    """
    targets = parse_target(before), parse_target(after)
    directory = _directory(*targets) if corpus_dir is None else make_directory(corpus_dir)
    own = {
        file: scenario
        for file in files_in(directory)
        if (scenario := read_scenario(file)) is not None
    }
    found = {codec.scenario_id(scenario): scenario for scenario in own.values()}
    for other in others:
        for scenario in filter(None, map(read_scenario, files_in(other))):
            found.setdefault(codec.scenario_id(scenario), scenario)
    if not found:
        raise InputError(f"{directory}: no scenarios to merge; hunt first, or name a FROM_DIR")
    with start_pair(*targets, coverage=True) as pair, stop_on_signals() as stop:
        kept = _distilled(found, pair, stop)
    if stop.made:
        say(f"{directory}: left as it was")
        return EXIT_INTERRUPTED
    written = {_write(directory, found[name]) for name in kept}
    for file in own.keys() - written:
        file.unlink(missing_ok=True)
    click.echo(
        f"{directory}\t{len(own)} files, {len(found)} scenarios with the others\tkept {len(kept)}"
    )
    return 0


def _distilled(found: Found, pair: Pair, stop: StopRequest) -> list[str]:
    """Return the ids to keep; what could not be run stays, for nothing is known of it."""
    entries: list[Entry] = []
    kept: list[str] = []
    said = time.monotonic()
    say(f"running {len(found)} scenarios")
    for name, scenario in found.items():
        if stop.made:
            break
        traces = pair.run(scenario)
        if judge(*traces).verdict == "infra":
            kept.append(name)
        else:
            entries.append(Entry(name, len(codec.encode(scenario)), lit(scenario, *traces)))
        if time.monotonic() - said >= LINE_SECONDS:
            said = time.monotonic()
            say(f"ran {len(entries) + len(kept)} of {len(found)}")
    return kept + [entry.name for entry in distill(entries)]


def _directory(before: Target, after: Target) -> Path:
    return Home.locate().corpus(before.name, after.name)


def files_in(directory: Path) -> Iterator[Path]:
    """Return the files of a directory in the order of their names."""
    return (file for file in sorted(directory.iterdir()) if file.is_file())


def read_scenario(file: Path) -> Scenario | None:
    """Return a file's scenario, None if it holds none."""
    try:
        return codec.load(file)
    except InputError:
        return None


def _write(directory: Path, scenario: Scenario) -> Path:
    file = directory / f"{codec.scenario_id(scenario)[:NAME_CHARS]}.json"
    write_file(file, codec.pretty(scenario))
    return file
