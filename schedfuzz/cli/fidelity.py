"""Nouns: fidelity command.

Compares the two runners of one release and leaves, for each way in which they part, the smallest
scenario that shows it.
"""

import time
from pathlib import Path

import click
import msgspec

from schedfuzz.bench.fidelity import Fidelity, measure
from schedfuzz.cli.hunt import EXIT_FINDINGS, OTHER_PLACE
from schedfuzz.cli.source import start_pair
from schedfuzz.cli.targets import say
from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InfraError
from schedfuzz.corpus.printable import plain
from schedfuzz.workers.home import make_directory, write_file
from schedfuzz.workers.signals import EXIT_INTERRUPTED, stop_on_signals
from schedfuzz.workers.targets import Target, parse_release

LINE_SECONDS = 10.0
A_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("release")
@click.option("--scenarios", type=click.IntRange(1, 10**7), default=1000, metavar="N",
              help="How many scenarios to compare (1000).")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=1, help="Which scenarios (1).")
@click.option("--out", type=A_PATH, metavar="DIR",
              help="Write the smallest example of each difference there.")  # fmt: skip
@click.option("--control", is_flag=True,
              help="Check an ordinary tiny model beside the real runner's own too.")  # fmt: skip
@click.option("--json", "json_file", type=A_PATH, metavar="FILE",
              help="Write the result as one JSON object.")  # fmt: skip
def fidelity(
    release: str, scenarios: int, seed: int, out: Path | None, control: bool,
    json_file: Path | None,
) -> int:  # fmt: skip
    """Run the same random scenarios on both runners of RELEASE and compare every step.

    Exits with 3 when any differ. The n-gram drafter is left out: the real one looks up real tokens.
    """
    target = Target(parse_release(release))
    for folder in (out, json_file and json_file.absolute().parent):
        if folder is not None:
            make_directory(folder, OTHER_PLACE)
    started = start_pair(target, target.on("real"), control=control)
    with started as pair, stop_on_signals() as stop:
        result = measure(pair, scenarios, seed, Told(scenarios).hear, lambda: stop.made)
    if json_file is not None:
        write_file(json_file, msgspec.json.format(msgspec.json.encode(result.as_json())).decode())
    _report(result, out)
    if stop.made:
        click.echo(f"cut short: {result.compared} of {scenarios} scenarios were compared")
        return EXIT_INTERRUPTED
    if not result.compared:
        raise InfraError(f"{release}: no scenario could be played on both of its runners")
    return EXIT_FINDINGS if result.differences else 0


class Told:
    """Prints a line every few seconds."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self._said = 0.0  # the first line is due at once

    def hear(self, result: Fidelity) -> None:
        """Say how far it is when it is time."""
        if time.monotonic() - self._said >= LINE_SECONDS:
            self._said = time.monotonic()
            say(f"compared {result.compared} of {self.wanted}, {result.equal} equal")


def _report(result: Fidelity, out: Path | None) -> None:
    share = f"{result.equal} of {result.compared} scenarios equal on both runners"
    click.echo(f"{result.release}\t{share}\t{result.seconds:.0f} s")
    others = {"refused by the release": result.refused, "could not be run": result.infra}
    for what, count in others.items():
        if count:
            click.echo(f"{count} more {what}")
    for name, count in sorted(result.left_out.items()):
        click.echo(f"{count} without {name}, which one of the runners lacks there")
    for item in result.sorted():
        click.echo(plain(f"{item.count:>6}  {item.what}: {item.detail}"))
        if out is not None:
            file = out / f"{item.name}.json"
            write_file(file, codec.pretty(item.example))
            click.echo(f"        schedfuzz replay {file} {result.release} {result.release}:real")
