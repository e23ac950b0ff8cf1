"""Nouns: show command, fact.

One finding in full: what broke and who is right on top, then its history, its reproducer and the
commands to go on with.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from schedfuzz.cli.options import FindingId, db_option, json_option, open_db, print_json
from schedfuzz.cli.source import reproducer
from schedfuzz.cli.status import take_home
from schedfuzz.corpus import codec
from schedfuzz.corpus.names import holds_no_path, typed_pair
from schedfuzz.corpus.printable import plain
from schedfuzz.corpus.rules import RULES
from schedfuzz.db import decisions, muting, queries, traces, verifications
from schedfuzz.db.connect import Store
from schedfuzz.db.decision_models import Decision
from schedfuzz.db.models import Finding
from schedfuzz.fuzzer.judge import first_difference

WHO = {
    "regressed": "{before} keeps the rule and {after} breaks it",
    "fixed": "{before} breaks the rule and {after} keeps it",
    "both": "both break it",
    "changed": "neither breaks a rule: the difference may be meant",
}


@click.command()
@click.argument("finding", type=FindingId(), metavar="ID")
@json_option
@db_option
def show(finding: int, as_json: bool, db_url: str | None) -> None:
    """Show the finding ID: what broke, since when, its history and reproducer, what to run next."""
    store = open_db(db_url)
    muting.wake(store)
    row = queries.get_finding(store, finding)
    if as_json:
        print_json(_in_full(store, row))
        return
    click.echo(f"finding {row.id}: {plain(row.title)}")
    for line in on_top(store, row):
        click.echo(plain(line))
    click.echo()
    for name, value in _facts(store, row):
        click.echo(f"{name:<12}  {plain(value)}")
    click.echo(f"\n{codec.pretty(reproducer(row))}")
    for entry in decisions.history(store, row.id):
        click.echo(plain(_told(entry)))
    for command in _commands(row):
        click.echo(f"  {command}")


def _in_full(store: Store, row: Finding) -> dict[str, Any]:
    known = verifications.of(store, row.id)
    return queries.finding_in_full(row, queries.sightings(store, row)) | {
        "verifications": [
            {name: getattr(entry, name) for name in ("target", "outcome", "runs", "hits")}
            for entry in known
        ],
        "decisions": [
            {name: getattr(entry, name) for name in ("verb", "actor", "note", "at")}
            for entry in decisions.history(store, row.id)
        ],
    }


def on_top(store: Store, row: Finding) -> Iterator[str]:
    """Yield what matters most about a finding: the rule, who breaks it, where the sides part."""
    if row.rule in RULES:
        yield f"the rule: {RULES[row.rule][1]}"
    yield WHO[row.verdict].format(before=row.before, after=row.after)
    if row.detail:
        yield f"first seen with {row.detail}"
    found = traces.load(store, row.id, row.reproducer_id)
    parting = first_difference(*found) if found else None
    if parting is not None:
        yield f"first differing step: {parting.detail}"


def _facts(store: Store, row: Finding) -> Iterator[tuple[str, str]]:
    yield "verdict", f"{row.verdict}  {row.kind}  {row.rule}"
    if row.component is not None:
        yield "component", row.component
    yield "pair", f"{row.before} and {row.after}"
    yield "fingerprint", row.fingerprint
    yield "status", _status(row)
    yield "seen", f"{queries.sightings(store, row)} times"
    yield "first, last", f"{_time(row.first_seen_at)}, {_time(row.last_seen_at)}"
    yield "found", f"after {row.executions_to_find} executions, {row.seconds_to_find:.1f} s"
    yield "confirmed", f"{row.confirm_hits} of {row.confirm_runs} runs"
    for entry in verifications.of(store, row.id):
        yield f"on {entry.target}", f"{entry.outcome}, {entry.hits} of {entry.runs} runs"
    yield "minimized", f"{row.minimize_state}, {row.minimize_calls} calls"
    yield "exported", row.export_path or "no"
    requests, events = row.reproducer_requests, row.reproducer_events
    size = f"{requests} requests, {events} events, {row.reproducer_steps} engine steps"
    yield "reproducer", size


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
    return [*commands, take_home(row)]
