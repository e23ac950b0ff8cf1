"""Nouns: prune command.

Deletes what the retention policy no longer keeps. The policy is the database's own, so a pruning by
hand and one by the service delete the same rows.
"""

import click
from rich import box
from rich.table import Table

from schedfuzz.cli.options import db_option, json_option, open_db, print_json
from schedfuzz.cli.screen import print_table
from schedfuzz.db.retention import policy
from schedfuzz.db.retention import prune as prune_store


@click.command()
@click.option("--dry-run", is_flag=True, help="Count the rows and delete nothing.")
@json_option
@db_option
def prune(dry_run: bool, as_json: bool, db_url: str | None) -> None:
    """Delete what the retention policy no longer keeps; print the rows of each rule."""
    counts = prune_store(open_db(db_url), dry_run)
    rules = [rule for rule in policy() if rule.name in counts]
    if as_json:
        rows = [{**rule._asdict(), "rows": counts[rule.name]} for rule in rules]
        print_json({"dry_run": dry_run, "rules": rows})
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("rule", no_wrap=True)
    table.add_column("to delete" if dry_run else "deleted", justify="right")
    table.add_column("days", justify="right")
    table.add_column("what", overflow="fold")
    for rule in rules:
        table.add_row(rule.name, str(counts[rule.name]), str(rule.days), rule.what)
    print_table(table)
