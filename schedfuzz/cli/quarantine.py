"""Nouns: the `corpus` verbs of quarantined scenarios (quarantine, forgive).

A campaign's scenario that cost workers again and again runs no more on its pair. Someone has to be
able to see which those are, and to say that it was the machine's fault after all.
"""

import click

from schedfuzz.cli.options import db_option, json_option, open_db, print_json
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.printable import plain
from schedfuzz.db import poison
from schedfuzz.db.connect import Store


@click.command()
@json_option
@db_option
def quarantine(as_json: bool, db_url: str | None) -> None:
    """List the scenarios that cost campaigns their workers, the latest death first."""
    found = poison.listed(open_db(db_url))
    if as_json:
        print_json(
            [
                {"scenario": row.scenario_id, "before": row.before, "after": row.after,
                 "deaths": row.deaths, "quarantined": row.quarantined,
                 "last": row.last_at.isoformat(), "detail": row.detail}
                for row in found
            ]
        )  # fmt: skip
        return
    for row in found:
        state = "quarantined" if row.quarantined else "watched"
        pair = plain(f"{row.before} {row.after}")
        click.echo(
            f"{row.scenario_id[:16]}\t{state}\t{row.deaths} deaths\t{pair}\t{plain(row.detail)}"
        )


@click.command()
@click.argument("scenario")
@db_option
def forgive(scenario: str, db_url: str | None) -> None:
    """Let SCENARIO run again on all pairs; its deaths are forgotten.

    SCENARIO is an id of `corpus quarantine`, or how it begins.
    """
    store = open_db(db_url)
    name = _named(store, scenario)
    pairs = poison.forgive(store, name)
    click.echo(f"{name[:16]}\tmay run again\t{pairs} pairs")


def _named(store: Store, start: str) -> str:
    """Return the full id that begins so. Raises InputError for none, and for several."""
    names = {row.scenario_id for row in poison.listed(store)}
    fitting = sorted(name for name in names if start and name.startswith(start))
    if len(fitting) != 1:
        many = "stands for several" if fitting else "cost no campaign a worker"
        raise InputError(f"scenario {start!r}: {many}; `schedfuzz corpus quarantine` lists them")
    return fitting[0]
