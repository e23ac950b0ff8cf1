"""Nouns: the `campaign` verbs (add, list, pause, resume, remove).

They change rows of the database only; a running cluster notices within seconds, and one that is
started later finds them there.
"""

from typing import Any

import click

from schedfuzz.cli.options import Seconds, db_option, json_option, open_db, print_json
from schedfuzz.cli.source import parse_on
from schedfuzz.corpus.errors import InputError
from schedfuzz.db import campaigns
from schedfuzz.db.connect import Store
from schedfuzz.db.service_models import Campaign
from schedfuzz.fuzzer.focus import focused
from schedfuzz.service.latest import LATEST

REAL = ":real"


@click.group()
def campaign() -> None:
    """Long hunts, run by the cluster."""


@campaign.command()
@click.argument("before")
@click.argument("after", required=False)
@click.option("--name", help="What to call it (default: BEFORE..AFTER).")
@click.option("--runner", type=click.Choice(["simulated", "real"]), default="simulated",
              show_default=True, help="What plays the model.")  # fmt: skip
@click.option("--hunts", type=click.IntRange(1, 10_000), default=1, show_default=True,
              help="How many hunts to run at once.")  # fmt: skip
@click.option("--priority", type=click.IntRange(-1000, 1000), default=0, show_default=True,
              help="Campaigns of a higher one go first.")  # fmt: skip
@click.option("--runs", type=click.IntRange(1, 10**12), help="End after this many executions.")
@click.option("--time", "seconds", type=Seconds(1, 10**9), metavar="TIME",
              help="End after this much hunting, over all hunts.")  # fmt: skip
@click.option("--slice", "time_slice", type=Seconds(5, 86_400), default=600.0,
              show_default=True, metavar="TIME", help="How long one hunt lasts before the next "
              "one takes its place.")  # fmt: skip
@click.option("--dimensions", metavar="NAME,NAME…", help="Keep to these dimensions.")
@click.option("--daily-cap", type=click.IntRange(1, 10_000), default=20, show_default=True,
              help="New findings of one kind a day to work on; more are held back.")  # fmt: skip
@click.option("--canary", is_flag=True, help="A pair that must diverge: shows that all is well.")
@db_option
def add(
    before: str, after: str | None, name: str | None, runner: str, hunts: int, priority: int,
    runs: int | None, seconds: float | None, time_slice: float, dimensions: str | None,
    daily_cap: int, canary: bool, db_url: str | None,
) -> None:  # fmt: skip
    """Hunt BEFORE against AFTER until told otherwise; `latest` is the newest release each day.

    Without AFTER, BEFORE is hunted alone: every rule it breaks is a finding.
    """
    one, two = _on(before, runner), _on(after or before, runner)
    options: dict[str, Any] = {"time_slice": time_slice, "self_check": after == before}
    if dimensions:
        options["dimensions"] = [part.strip() for part in dimensions.split(",")]
        focused(options["dimensions"])
    if canary and one == two:
        raise InputError(f"canary {one}: one target cannot diverge; name a pair that must")
    added = campaigns.add(
        open_db(db_url), name=name or f"{one}..{two}", before=one, after=two, runner=runner,
        hunts=1 if canary else hunts, priority=priority, budget_executions=runs,
        budget_seconds=seconds, daily_cap=daily_cap, canary=canary, options=options,
    )  # fmt: skip
    click.echo(
        f"{added.name}\tactive\t`schedfuzz cluster start` runs it, `schedfuzz status` shows it"
    )


@campaign.command("list")
@json_option
@db_option
def list_campaigns(as_json: bool, db_url: str | None) -> None:
    """List the campaigns, those of higher priority first."""
    store = open_db(db_url)
    rows = [_facts(store, row) for row in campaigns.listed(store)]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        figures = f"{row['executions']} executions\t{row['seconds']:.0f} s"
        why = f"\t{row['reason']}" if row["reason"] else ""
        click.echo(f"{row['name']}\t{row['before']} {row['after']}\t{row['state']}\t{figures}{why}")


@campaign.command()
@click.argument("name")
@db_option
def pause(name: str, db_url: str | None) -> None:
    """Let the campaign NAME rest; its hunts end within seconds, with all they have."""
    _set(name, "paused", db_url)


@campaign.command()
@click.argument("name")
@db_option
def resume(name: str, db_url: str | None) -> None:
    """Let the campaign NAME go on."""
    _set(name, "active", db_url)


@campaign.command()
@click.argument("name")
@db_option
def remove(name: str, db_url: str | None) -> None:
    """Take the campaign NAME out; its findings and its corpus stay."""
    _set(name, "removed", db_url)


def _set(name: str, state: Any, db_url: str | None) -> None:
    row = campaigns.set_state(open_db(db_url), name, state)
    click.echo(f"{row.name}\t{row.state}")


def _on(text: str, runner: str) -> str:
    """Return a target's spelling with its runner. Raises InputError for what is none."""
    first, _, rest = text.partition(":")
    if first == LATEST and rest in ("", "real"):
        return LATEST + REAL if runner == "real" or rest else LATEST
    return parse_on(text, "real" if runner == "real" else None).spelling


def _facts(store: Store, row: Campaign) -> dict[str, Any]:
    names = (
        "name", "before", "after", "runner", "state", "reason", "hunts", "priority",
        "budget_executions", "budget_seconds", "daily_cap", "canary", "options",
    )  # fmt: skip
    executions, seconds = campaigns.spent(store, row.id)
    facts = {name: getattr(row, name) for name in names}
    return facts | {"executions": executions, "seconds": seconds}
