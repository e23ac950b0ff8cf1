"""Nouns: show command, fact.

One finding in full: what broke and who is right on top, then its history, its reproducer and the
commands to go on with.
"""

from collections.abc import Iterator
from datetime import datetime

import click

from schedfuzz.cli.options import FindingId, db_option, json_option, open_db, print_json
from schedfuzz.cli.status import take_home
from schedfuzz.corpus import codec
from schedfuzz.corpus.names import holds_no_path, typed_pair
from schedfuzz.corpus.printable import plain
from schedfuzz.db import muting
from schedfuzz.db.decision_models import Decision
from schedfuzz.db.models import Finding
from schedfuzz.report.facts import Facts, gather


@click.command()
@click.argument("finding", type=FindingId(), metavar="ID")
@json_option
@db_option
def show(finding: int, as_json: bool, db_url: str | None) -> None:
    """Show the finding ID: what broke, since when, its history and reproducer, what to run next."""
    store = open_db(db_url)
    muting.wake(store)
    facts = gather(store, finding)
    if as_json:
        print_json(facts.as_json())
        return
    click.echo(f"finding {facts.row.id}: {plain(facts.row.title)}")
    for line in on_top(facts):
        click.echo(plain(line))
    click.echo()
    for name, value in _facts(facts):
        click.echo(f"{name:<12}  {plain(value)}")
    click.echo(f"\n{codec.pretty(facts.scenario)}")
    for entry in facts.decisions:
        click.echo(plain(_told(entry)))
    for command in _commands(facts.row):
        click.echo(f"  {command}")


def on_top(facts: Facts) -> Iterator[str]:
    """Yield what matters most about a finding: the rule, who breaks it, where the sides part."""
    if facts.rule:
        yield f"the rule: {facts.rule}"
    yield facts.who
    if facts.row.detail:
        yield f"first seen with {facts.row.detail}"
    if facts.difference:
        yield f"first differing step: {facts.difference}"


def _facts(facts: Facts) -> Iterator[tuple[str, str]]:
    row = facts.row
    yield "verdict", f"{row.verdict}  {row.kind}  {row.rule}"
    if row.component is not None:
        yield "component", row.component
    yield "pair", f"{row.before} and {row.after}"
    yield "fingerprint", row.fingerprint
    yield "status", _status(row)
    yield "seen", f"{facts.sightings} times"
    yield "first, last", f"{_time(row.first_seen_at)}, {_time(row.last_seen_at)}"
    yield "found", f"after {row.executions_to_find} executions, {row.seconds_to_find:.1f} s"
    yield "confirmed", f"{row.confirm_hits} of {row.confirm_runs} runs"
    for entry in facts.verifications:
        yield f"on {entry.target}", f"{entry.outcome}, {entry.hits} of {entry.runs} runs"
    if facts.since:
        yield "since", facts.since
    yield "minimized", f"{row.minimize_state}, {row.minimize_calls} calls"
    yield "exported", row.export_path or "no"
    requests, events = row.reproducer_requests, row.reproducer_events
    yield "reproducer", f"{requests} requests, {events} events, {row.reproducer_steps} engine steps"


def _status(row: Finding) -> str:
    more = {
        "fixed-in": f" {row.fixed_in}",
        "verified": f" to be fixed in {row.fixed_in}",
        "dup": f" of {row.dup_of}" + (", counted with it" if row.merged_into else ""),
    }
    if row.muted_until is not None:
        by = f" by rule {row.muted_by}" if row.muted_by else ""
        more["muted"] = f" until {_time(row.muted_until)}{by}"
    return row.status + more.get(row.status, "")


def _told(entry: Decision) -> str:
    moved = "".join(
        f", {name} {entry.was.get(name)} -> {value}" for name, value in entry.became.items()
    )
    note = f": {entry.note}" if entry.note else ""
    return f"{_time(entry.at)}  {entry.verb} by {entry.actor}{moved}{note}"


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _commands(row: Finding) -> list[str]:
    pair = typed_pair(row.before, row.after)
    explicit = f" {pair}" if holds_no_path(row.before, row.after) else ""
    commands = [f"schedfuzz diff {row.id}", f"schedfuzz replay {row.id} {pair}"]
    if row.minimize_state != "done":
        commands.append(f"schedfuzz minimize {row.id}{explicit}")
    return [*commands, f"schedfuzz matrix {row.id}", take_home(row)]
