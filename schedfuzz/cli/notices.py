"""Nouns: the `notices` verbs (list, retry).

What the coordinator tells, or gave up telling, about findings; it sends, these only look and ask.
"""

from typing import Any, get_args

import click

from schedfuzz.cli.options import db_option, json_option, open_db, print_json
from schedfuzz.corpus.printable import plain
from schedfuzz.db import notices as outbox
from schedfuzz.db.service_models import Notice, NoticeState

COLUMNS = ("id", "finding_id", "channel", "state", "attempts", "created_at", "sent_at", "error")


@click.group()
def notices() -> None:
    """Messages about findings, by webhook or command."""


@notices.command("list")
@click.option("--state", type=click.Choice(get_args(NoticeState)), help="Only those.")
@json_option
@db_option
def list_notices(state: NoticeState | None, as_json: bool, db_url: str | None) -> None:
    """List the notices, newest first: of which finding, to which channel, how it went."""
    rows = [_facts(row) for row in outbox.listed(open_db(db_url), state)]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        error = f"\t{plain(row['error'])}" if row["error"] else ""
        click.echo(
            f"{row['id']}\tfinding {row['finding_id']}\t{plain(row['channel'])}\t{row['state']}"
            f"\t{row['attempts']} attempts{error}"
        )


@notices.command()
@click.argument("ids", nargs=-1, type=click.IntRange(1, 2**31 - 1), metavar="[ID]...")
@db_option
def retry(ids: tuple[int, ...], db_url: str | None) -> None:
    """Have the notices with these IDs tried again, or all that failed; the coordinator sends them.

    One that waits for its next attempt has it at once. What was sent stays sent.
    """
    count = outbox.retry(open_db(db_url), ids)
    click.echo(f"{count} notices\twaiting")


def _facts(row: Notice) -> dict[str, Any]:
    facts = {name: getattr(row, name) for name in COLUMNS}
    return {
        name: value.isoformat() if name.endswith("_at") and value else value
        for name, value in facts.items()
    }
