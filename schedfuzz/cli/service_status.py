"""Nouns: the `status` verb.

How the service is, from the database alone: it answers the same on every machine, and also while no
part of the cluster runs.
"""

import time
from typing import Any

import click

from schedfuzz.cli.options import db_option, json_option, open_db, print_json
from schedfuzz.corpus.printable import plain
from schedfuzz.db.service_summary import gather

WATCH_SECONDS = 5.0
CANARY_ILL_SECONDS = 2 * 3600.0


@click.command()
@click.option("--watch", is_flag=True, help="Show it again every five seconds, until Ctrl-C.")
@json_option
@db_option
def status(watch: bool, as_json: bool, db_url: str | None) -> None:
    """Show campaigns, nodes, jobs, and what needs a look."""
    store = open_db(db_url)
    while True:
        facts = gather(store)
        if as_json:
            print_json(facts)
        else:
            if watch:
                click.clear()
            click.echo("\n".join(lines(facts)))
        if not watch:
            return
        time.sleep(WATCH_SECONDS)


def lines(facts: dict[str, Any]) -> list[str]:
    """Return the same as lines of text."""
    found = ["campaigns"]
    for row in facts["campaigns"]:
        findings = ", ".join(f"{count} {what}" for what, count in sorted(row["findings"].items()))
        rate = f"{row['executions_per_second']:.0f}/s of hunting"
        why = f"  ({plain(row['reason'])})" if row["reason"] else ""
        found.append(
            f"  {plain(row['name'])}  {row['state']}{why}  {row['executions']} executions, {rate}"
            f"  findings: {findings or 'none'}"
        )
    found += ["  none; `schedfuzz campaign add BEFORE AFTER`"] if len(found) == 1 else []
    found += [_canary(name, age) for name, age in facts["canaries"].items()]
    count = facts["nodes"]
    found.append(f"nodes  {count['alive']} alive, {count['gone']} gone")
    found += [
        f"  {row['node'][:12]} is left out for {row['release']}: {plain(row['why'] or '')}"
        for row in facts["unfit"]
    ]
    jobs = ", ".join(f"{one['jobs']} {one['kind']} {one['state']}" for one in facts["jobs"])
    found.append(f"jobs  {jobs or 'none'}")
    found += [
        f"corpus  {plain(one['before'])} {plain(one['after'])}  {one['kept']} scenarios"
        for one in facts["corpora"]
    ]
    found += [
        f"quarantined  {one['scenario'][:16]} after {one['deaths']} deaths: {plain(one['detail'])}"
        for one in facts["quarantined"]
    ]
    found += [
        f"held back  {one['findings']} more of {one['kind']} in {plain(one['campaign'])}"
        for one in facts["held"]
    ]
    return found


def _canary(name: str, age: float | None) -> str:
    if age is None:
        return f"canary  {plain(name)} has not diverged yet"
    ill = "  the service is ill: it should have by now" if age > CANARY_ILL_SECONDS else ""
    return f"canary  {plain(name)} diverged {age / 60:.0f} minutes ago{ill}"
