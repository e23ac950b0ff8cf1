"""Nouns: the `rule` verbs (add, list, remove).

A rule mutes what matches it, now and later, for a while and for a reason that somebody answers for.
"""

from datetime import datetime
from typing import Any

import click

from schedfuzz.cli.decide import Moment, by_option
from schedfuzz.cli.options import db_option, json_option, open_db, print_json
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.printable import plain
from schedfuzz.db import muting
from schedfuzz.db.muting import RuleUse
from schedfuzz.db.rows import now


@click.group()
def rule() -> None:
    """Rules that mute what is known and not worth a look for now."""


@rule.command()
@click.argument("match", nargs=-1, required=True, metavar="COLUMN=PATTERN...")
@click.option("--owner", required=True, metavar="NAME", help="Who answers for it.")
@click.option("--reason", required=True, metavar="TEXT", help="Why it is not worth a look.")
@click.option("--until", type=Moment(), required=True, metavar="WHEN", help="30d, or 2027-01-31.")
@click.option("--pr", metavar="PR", help="The pull request that will end it.")
@by_option
@db_option
def add(
    match: tuple[str, ...], owner: str, reason: str, until: datetime, pr: str | None, by: str,
    db_url: str | None,
) -> None:  # fmt: skip
    """Mute what matches every COLUMN=PATTERN, with * and ? in a pattern. `rule remove` undoes it.

    Columns: before, after, verdict, kind, rule, component, fingerprint, title.
    """
    number, muted = muting.add(
        open_db(db_url), dict(map(_pair, match)), owner, reason, until, by, pr
    )
    click.echo(f"rule {number}\t{muted} findings muted")


@rule.command("list")
@json_option
@db_option
def list_rules(as_json: bool, db_url: str | None) -> None:
    """List the rules: what each mutes, for how long, why; and which of them mute nothing."""
    store = open_db(db_url)
    muting.wake(store)
    uses = muting.listed(store)
    if as_json:
        print_json([_facts(use) for use in uses])
        return
    for use in uses:
        facts = _facts(use)
        match = " ".join(f"{name}={value}" for name, value in facts["match"].items())
        pr = f" ({facts['pr']})" if facts["pr"] else ""
        why = plain(f"{facts['owner']}: {facts['reason']}{pr}")
        click.echo(
            f"{facts['id']}\t{plain(match)}\t{facts['state']}\t{facts['muted']} muted, "
            f"{facts['ever']} ever\tuntil {use.rule.expires_at:%Y-%m-%d %H:%M}\t{why}"
        )


@rule.command()
@click.argument("number", type=click.IntRange(1, 2**31 - 1), metavar="ID")
@click.option("--note", default="", metavar="TEXT", help="Why.")
@by_option
@db_option
def remove(number: int, note: str, by: str, db_url: str | None) -> None:
    """Take a rule out; what it muted is open again."""
    woken = muting.remove(open_db(db_url), number, by, note)
    click.echo(f"rule {number}\tremoved, {woken} findings open again")


def _pair(text: str) -> tuple[str, str]:
    column, equals, pattern = text.partition("=")
    if not equals or not pattern:
        raise InputError(f"{text!r}: is no COLUMN=PATTERN; write it like rule=token-budget")
    return column, pattern


def _facts(use: RuleUse) -> dict[str, Any]:
    names = ("id", "match", "owner", "reason", "pr", "expires_at", "created_at")
    expired = use.rule.expires_at <= now()
    state = "expired" if expired else "in use" if use.ever else "unused"
    return {name: getattr(use.rule, name) for name in names} | {
        "state": state, "muted": use.muted, "ever": use.ever,
    }  # fmt: skip
