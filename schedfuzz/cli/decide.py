"""Nouns: the verbs that decide about findings, actor.

Each says what it did in one line per finding, and names its inverse in its help. Who decided is
stored with the decision.
"""

import getpass
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from schedfuzz.cli.options import Decorator, FindingId, db_option, open_db
from schedfuzz.db import decisions, queries, splitting
from schedfuzz.db.connect import Store

_DAY = 86400


class Moment(click.ParamType):
    """A moment to come, as a date, a date and a time (UTC), or a number of days like 30d."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the moment. Raises BadParameter."""
        if isinstance(value, datetime):
            return value
        days = value.removesuffix("d")
        if days != value and days.isascii() and days.isdigit() and len(days) < 5:
            return datetime.now(UTC) + timedelta(days=int(days))
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is no moment; write it like 30d or 2027-01-31", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def actor() -> str:
    """Return who is at the keyboard."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no name for the user's number
        return "unknown"


ids: Decorator = click.argument(
    "findings", type=FindingId(), nargs=-1, required=True, metavar="ID..."
)
one: Decorator = click.argument("finding", type=FindingId(), metavar="ID")
by_option: Decorator = click.option(
    "--by", default=actor, envvar="SCHEDFUZZ_USER", metavar="NAME",
    help="Who decides (default: SCHEDFUZZ_USER, else the login name).",
)  # fmt: skip
note_option: Decorator = click.option(
    "--note", default="", metavar="TEXT", help="Why, for whoever reads it later."
)


def shared(*decorators: Decorator) -> Decorator:
    """Return one decorator that puts these and the options of every decision on a verb."""

    def put(verb: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed((*decorators, note_option, by_option, db_option)):
            verb = decorator(verb)
        return verb

    return put


def _each(store: Store, findings: tuple[int, ...], decide: Callable[[int], None]) -> None:
    for finding in findings:
        decide(finding)
        row = queries.get_finding(store, finding)
        click.echo(f"finding {finding}\t{row.status}")


@click.command()
@shared(ids)
def report(findings: tuple[int, ...], note: str, by: str, db_url: str | None) -> None:
    """Say that findings were told upstream; --note says where. `reopen` takes it back."""
    store = open_db(db_url)
    _each(store, findings, lambda finding: decisions.report(store, finding, by, note))


@click.command()
@shared(
    ids,
    click.option("--in", "target", required=True, metavar="TARGET", help="Where it is fixed."),
)
def resolve(findings: tuple[int, ...], target: str, note: str, by: str, db_url: str | None) -> None:
    """Say that findings are fixed in a target; `verify` tries it. `reopen` takes it back."""
    store = open_db(db_url)
    _each(store, findings, lambda finding: decisions.resolve(store, finding, target, by, note))


@click.command()
@shared(ids)
def reopen(findings: tuple[int, ...], note: str, by: str, db_url: str | None) -> None:
    """Take back what was decided about findings, whatever it was."""
    store = open_db(db_url)
    _each(store, findings, lambda finding: decisions.reopen(store, finding, by, note))


@click.command()
@shared(
    ids,
    click.option("--of", type=FindingId(), required=True, metavar="ID", help="What they repeat."),
)
def dup(findings: tuple[int, ...], of: int, note: str, by: str, db_url: str | None) -> None:
    """Say that findings have the cause of another, of any pair. `undup` takes it back."""
    store = open_db(db_url)
    _each(store, findings, lambda finding: decisions.duplicate(store, finding, of, by, note))


@click.command()
@shared(ids)
def undup(findings: tuple[int, ...], note: str, by: str, db_url: str | None) -> None:
    """Take `dup` or `merge` back."""
    store = open_db(db_url)
    _each(
        store, findings,
        lambda finding: decisions.reopen(store, finding, by, note, "undup", {"dup"}),
    )  # fmt: skip


@click.command()
@shared(
    ids,
    click.option(
        "--into", type=FindingId(), required=True, metavar="ID", help="Which takes them in."
    ),
)
def merge(findings: tuple[int, ...], into: int, note: str, by: str, db_url: str | None) -> None:
    """Count findings' sightings with another's of the same pair. `undup` takes it back."""
    store = open_db(db_url)
    _each(store, findings, lambda finding: decisions.merge(store, finding, into, by, note))


@click.command()
@shared(
    one,
    click.option(
        "--scenario",
        metavar="SCENARIO",
        default="",
        help="Which sightings: how their scenario's id begins.",
    ),
)
def split(finding: int, scenario: str, note: str, by: str, db_url: str | None) -> None:
    """Give sightings of a finding one of their own. `merge` takes it back.

    Without --scenario the refusal lists the scenarios of its kept sightings.
    """
    store = open_db(db_url)
    created = splitting.split(store, finding, scenario, by, note)
    click.echo(f"finding {created}\tsplit off {finding}")


@click.command()
@shared(
    ids,
    click.option(
        "--until", type=Moment(), required=True, metavar="WHEN", help="30d, or 2027-01-31."
    ),
)
def mute(
    findings: tuple[int, ...], until: datetime, note: str, by: str, db_url: str | None
) -> None:
    """Have findings rest until then. `unmute` takes it back; `rule add` mutes a whole kind."""
    store = open_db(db_url)
    _each(store, findings, lambda finding: decisions.mute(store, finding, until, by, note))


@click.command()
@shared(ids)
def unmute(findings: tuple[int, ...], note: str, by: str, db_url: str | None) -> None:
    """Take `mute` back, or what a rule did."""
    store = open_db(db_url)
    _each(
        store, findings,
        lambda finding: decisions.reopen(store, finding, by, note, "unmute", {"muted"}),
    )  # fmt: skip


@click.command()
@shared(ids)
def invalid(findings: tuple[int, ...], note: str, by: str, db_url: str | None) -> None:
    """Say that findings are none: meant, or judged wrongly. `reopen` takes it back."""
    store = open_db(db_url)
    _each(store, findings, lambda finding: decisions.invalidate(store, finding, by, note))


@click.command()
@one
@click.argument("text")
@by_option
@db_option
def note(finding: int, text: str, by: str, db_url: str | None) -> None:
    """Add a note to a finding; `show` prints it. It stays: another can correct it."""
    decisions.remark(open_db(db_url), finding, text, by)
    click.echo(f"finding {finding}\tnoted")


VERBS = (report, resolve, reopen, dup, undup, merge, split, mute, unmute, invalid, note)
