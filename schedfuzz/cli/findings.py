"""Nouns: findings command, show command.

What hunts left in the database: the list, the pair's news first, and one finding in full with the
commands to go on with.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, get_args

import click
from rich import box
from rich.table import Table

from schedfuzz.cli.options import FindingId, db_option, json_option, open_db, print_json
from schedfuzz.cli.screen import print_table
from schedfuzz.cli.source import reproducer, typed_name
from schedfuzz.cli.status import take_home
from schedfuzz.corpus import codec
from schedfuzz.corpus.printable import plain
from schedfuzz.corpus.rules import RULES
from schedfuzz.corpus.trace import KINDS
from schedfuzz.db import queries
from schedfuzz.db.models import Finding, FindingStatus
from schedfuzz.fuzzer.judge import ORDER

COLUMNS = ("id", "verdict", "kind", "status", "count", "before", "after", "size", "title")


@click.command()
@click.option("--before", metavar="TARGET", help="Only findings with this target before.")
@click.option("--after", metavar="TARGET", help="Only findings with this target after.")
@click.option("--verdict", type=click.Choice(ORDER), help="Only findings with this verdict.")
@click.option("--kind", type=click.Choice(KINDS), help="Only findings of this kind.")
@click.option(
    "--status", type=click.Choice(get_args(FindingStatus)), help="Only findings in this status."
)
@json_option
@db_option
def findings(as_json: bool, db_url: str | None, **filters: Any) -> None:
    """List the stored findings, news first: what after breaks or mends, then what both break."""
    rows = sorted(queries.list_findings(open_db(db_url), **filters), key=_urgency)
    if as_json:
        print_json([queries.finding_as_json(row) for row in rows])
        return
    if not rows:
        wanted = "matches" if any(filters.values()) else "is stored yet"
        click.echo(f"no finding {wanted}; `schedfuzz hunt BEFORE AFTER` looks for some", err=True)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in COLUMNS:
        table.add_column(name, no_wrap=name != "title", overflow="fold")
    for row in rows:
        size = f"{row.reproducer_requests}r {row.reproducer_events}e {row.reproducer_steps}s"
        cells = {"size": size, "title": plain(row.title)}
        table.add_row(*(cells.get(name) or str(getattr(row, name)) for name in COLUMNS))
    print_table(table)


def _urgency(row: Finding) -> tuple[int, int, int]:
    """Return the sort key: verdict, then kind, then age."""
    return ORDER.index(row.verdict), KINDS.index(row.kind), row.id


@click.command()
@click.argument("finding", type=FindingId(), metavar="ID")
@json_option
@db_option
def show(finding: int, as_json: bool, db_url: str | None) -> None:
    """Show the finding ID: what broke, its history, its reproducer, what to run next."""
    row = queries.get_finding(open_db(db_url), finding)
    if as_json:
        print_json(queries.finding_in_full(row))
        return
    click.echo(f"finding {row.id}: {plain(row.title)}")
    if row.rule in RULES:
        click.echo(f"the rule: {RULES[row.rule][1]}")
    if row.detail:
        click.echo(f"first seen with {plain(row.detail)}")
    click.echo()
    for name, value in _facts(row):
        click.echo(f"{name:<12}  {plain(value)}")
    click.echo(f"\n{codec.pretty(reproducer(row))}")
    for command in _commands(row):
        click.echo(f"  {command}")


def _facts(row: Finding) -> Iterator[tuple[str, str]]:
    yield "verdict", f"{row.verdict}  {row.kind}  {row.rule}"
    if row.component is not None:
        yield "component", row.component
    yield "pair", f"{row.before} and {row.after}"
    yield "fingerprint", row.fingerprint
    yield "status", row.status
    yield "seen", f"{row.count} times"
    yield "first, last", f"{_time(row.first_seen_at)}, {_time(row.last_seen_at)}"
    yield "found", f"after {row.executions_to_find} executions, {row.seconds_to_find:.1f} s"
    yield "confirmed", f"{row.confirm_hits} of {row.confirm_runs} runs"
    yield "minimized", f"{row.minimize_state}, {row.minimize_calls} calls"
    yield "exported", row.export_path or "no"
    requests, events = row.reproducer_requests, row.reproducer_events
    size = f"{requests} requests, {events} events, {row.reproducer_steps} engine steps"
    yield "reproducer", size


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _commands(row: Finding) -> list[str]:
    pair = f"{typed_name(row.before)} {typed_name(row.after)}"
    explicit = f" {pair}" if "+" in row.before + row.after else ""
    commands = [f"schedfuzz replay {row.id} {pair}"]
    if row.minimize_state != "done":
        commands.append(f"schedfuzz minimize {row.id}{explicit}")
    return [*commands, take_home(row)]
