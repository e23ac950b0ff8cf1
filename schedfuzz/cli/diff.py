"""Nouns: diff command."""

import click

from schedfuzz.cli.account import print_account
from schedfuzz.cli.options import FindingId, db_option, json_option, open_db, print_json
from schedfuzz.cli.replay import as_object
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.names import typed_pair
from schedfuzz.db import queries, traces
from schedfuzz.fuzzer.judge import judge


@click.command()
@click.argument("finding", type=FindingId(), metavar="ID")
@click.option(
    "--around",
    type=click.IntRange(0, 10**6),
    metavar="N",
    help="Only N steps on each side of the first difference.",
)
@json_option
@db_option
def diff(finding: int, around: int | None, as_json: bool, db_url: str | None) -> None:
    """Show the two schedules of finding ID side by side, as stored: no target is started."""
    store = open_db(db_url)
    row = queries.get_finding(store, finding)
    found = traces.load(store, row.id, row.reproducer_id)
    if found is None:
        raise InputError(
            f"finding {row.id}: its schedules are not stored; run "
            f"`schedfuzz replay {row.id} {typed_pair(row.before, row.after)}`"
        )
    verdict = judge(*found)
    if as_json:
        print_json(as_object(verdict, *found))
        return
    print_account(verdict, (row.before, row.after), found, around)
