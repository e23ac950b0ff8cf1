"""Nouns: export command."""

from pathlib import Path

import click

from schedfuzz.cli.options import FindingId, db_option, open_db
from schedfuzz.cli.options import console as make_console
from schedfuzz.cli.source import stored_pair
from schedfuzz.corpus.errors import InputError
from schedfuzz.db import queries
from schedfuzz.service.exporting import export_findings, refusal
from schedfuzz.workers.home import Home, make_directory
from schedfuzz.workers.pair import Pair


@click.command()
@click.argument("finding", type=FindingId(), metavar="ID")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Where to write the pytest file.",
)
@db_option
def export(finding: int, out: Path, db_url: str | None) -> None:
    """Write finding ID as a self-contained pytest file, verified on both of its targets."""
    store = open_db(db_url)
    row = queries.get_finding(store, finding)
    if reason := refusal(row):
        raise InputError(f"finding {row.id}: {reason}")
    console = make_console()

    def say(line: str) -> None:
        console.print(line, markup=False)

    folder = make_directory(out)
    before, after = stored_pair(row, "export", None, None)
    with Pair(before, after, Home.locate(), say) as pair:
        for _, result in export_findings(store, pair, [row], folder, say):
            if isinstance(result, Exception):
                raise result
            click.echo(result)
