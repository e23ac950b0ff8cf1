"""Nouns: findings command, column.

What hunts left in the database, the pair's news first, without what somebody has put aside.
"""

from typing import Any, get_args

import click
from rich import box
from rich.table import Table

from schedfuzz.cli.options import db_option, json_option, open_db, print_json
from schedfuzz.cli.screen import print_table
from schedfuzz.corpus.printable import plain
from schedfuzz.corpus.trace import KINDS, ORDER
from schedfuzz.db import finding_lists, muting, queries
from schedfuzz.db.finding_lists import SORTS, Wanted
from schedfuzz.db.models import Finding, FindingStatus

DEFAULT = ("id", "verdict", "kind", "status", "count", "before", "after", "size", "title")
COLUMNS = (
    *DEFAULT, "rule", "component", "fingerprint", "confirmed", "minimized", "first", "last",
    "fixed_in", "dup_of", "export",
)  # fmt: skip


class Columns(click.ParamType):
    """Names of columns, separated by commas."""

    name = "columns"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the names. Raises BadParameter."""
        if isinstance(value, tuple):
            return value
        names = tuple(part.strip() for part in value.split(","))
        for name in names:
            if name not in COLUMNS:
                self.fail(f"{name!r} is no column; there are {', '.join(COLUMNS)}", param, ctx)
        return names


@click.command()
@click.option("--before", metavar="TARGET", help="Only findings with this target before.")
@click.option("--after", metavar="TARGET", help="Only findings with this target after.")
@click.option("--verdict", type=click.Choice(ORDER), help="Only findings with this verdict.")
@click.option("--kind", type=click.Choice(KINDS), help="Only findings of this kind.")
@click.option("--rule", metavar="NAME", help="Only findings of this rule or exception type.")
@click.option(
    "--component", type=click.Choice(["scheduler", "runner"]), help="Only this one's faults."
)
@click.option(
    "--status",
    type=click.Choice(get_args(FindingStatus)),
    multiple=True,
    help="Only findings in this status (may be repeated).",
)
@click.option("--text", metavar="TEXT", help="Only findings with this in title or detail.")
@click.option("--all", "aside", is_flag=True, help="Also verified, muted, dup and invalid ones.")
@click.option("--sort", type=click.Choice(SORTS), default="news", show_default=True)
@click.option("--reverse", is_flag=True, help="The other way round.")
@click.option("--limit", type=click.IntRange(1, 10**6), metavar="N", help="At most so many.")
@click.option(
    "--columns",
    type=Columns(),
    default=DEFAULT,
    metavar="NAMES",
    help="Which to show, separated by commas.",
)
@json_option
@db_option
def findings(
    sort: finding_lists.Sort, reverse: bool, limit: int | None, columns: tuple[str, ...],
    as_json: bool, db_url: str | None, **filters: Any,
) -> None:  # fmt: skip
    """List the stored findings, news first: what after breaks or mends, then what both break."""
    store = open_db(db_url)
    muting.wake(store)
    wanted = Wanted(**filters)
    found = finding_lists.find(store, wanted, sort, reverse, limit, scenarios=as_json)
    if as_json:
        print_json([queries.finding_as_json(*entry) for entry in found.page])
        return
    hidden = "" if wanted.aside or wanted.status else _hidden(store, filters, found.total)
    if not found.page:
        click.echo(_nothing(filters, hidden), err=True)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in columns:
        table.add_column(name, no_wrap=name != "title", overflow="fold")
    for row, sightings in found.page:
        table.add_row(*(plain(_cell(name, row, sightings)) for name in columns))
    print_table(table)
    if len(found.page) < found.total:
        click.echo(f"{len(found.page)} of {found.total} findings", err=True)
    if hidden:
        click.echo(hidden, err=True)


def _hidden(store: Any, filters: dict[str, Any], shown: int) -> str:
    more = finding_lists.find(store, Wanted(**(filters | {"aside": True})), size=1).total - shown
    return f"{more} more are verified, muted, dup or invalid; --all lists them" if more else ""


def _nothing(filters: dict[str, Any], hidden: str) -> str:
    if hidden:
        return f"no open finding; {hidden}"
    wanted = "matches" if any(filters.values()) else "is stored yet"
    return f"no finding {wanted}; `schedfuzz hunt BEFORE AFTER` looks for some"


def _cell(name: str, row: Finding, sightings: int) -> str:
    match name:
        case "count":
            return str(sightings)
        case "size":
            return f"{row.reproducer_requests}r {row.reproducer_events}e {row.reproducer_steps}s"
        case "confirmed":
            return f"{row.confirm_hits}/{row.confirm_runs}"
        case "minimized":
            return row.minimize_state
        case "first" | "last":
            return f"{getattr(row, name + '_seen_at'):%Y-%m-%d %H:%M}"
        case "export":
            return row.export_path or ""
    value = getattr(row, name)
    return "" if value is None else str(value)
