"""Nouns: the tables that the bench verbs print."""

from collections.abc import Mapping
from typing import Any

import click
from rich import box
from rich.table import Table

from schedfuzz.cli.screen import print_table
from schedfuzz.corpus.printable import plain


def print_bugs(summary: Mapping[str, Any]) -> None:
    """Print a row per bug, then the shares."""
    table = _table("bug", "pair", "found", "executions", "seconds", "verdict", "precise")
    for row in summary["rows"]:
        table.add_row(
            row["bug"], f"{row['before']} {row['after']}", f"{row['found']}/{row['seeds']}",
            _spread(row["executions"], "{:.0f}"), _spread(row["seconds"], "{:.1f}"),
            plain("; ".join(row["verdicts"])), _precise(row),
        )  # fmt: skip
    print_table(table)
    of = summary["bugs"]
    click.echo(
        f"found {summary['found']} of {of} bugs with any seed, "
        f"{summary['precise']} of {of} with a reproducer that proves to be the bug"
    )


def _precise(row: Mapping[str, Any]) -> str:
    if not row["found"]:
        return ""
    word = {0: "no", row["found"]: "yes"}.get(row["precise"], "partly")
    return f"{word} ({row['precise']}/{row['found']})"


def _spread(values: tuple[float, float, float] | None, form: str) -> str:
    if values is None:
        return ""
    median, least, most = (form.format(value) for value in values)
    return f"{median} ({least}-{most})"


def print_mutants(summary: Mapping[str, Any]) -> None:
    """Print the counts of all mutants and of each operator, every survivor, what was left out."""
    ways = ("violation", "divergence", "start")
    table = _table("operator", "mutants", "killed", *(f"by {way}" for way in ways), "survived",
                   "not reached", "not run", "share", "of reached")  # fmt: skip
    for name, row in [*summary["operators"].items(), ("all", summary)]:
        counts = [row["mutants"], row["killed"], *(row["killed_by"][way] for way in ways),
                  row["survived"], row["not_reached"], row["not_run"]]  # fmt: skip
        shares = _percent(row["share"]), _percent(row["share_of_reached"])
        table.add_row(name, *map(str, counts), *shares)
    print_table(table)
    for survivor in summary["survivors"]:
        place = f"{survivor['module']}:{survivor['function']}, line {survivor['line']}"
        change = f"{survivor['operator']}, {survivor['what']}"
        click.echo(f"{survivor['status']}: {place}: {change}")
    for reason, count in summary.get("left_out", {}).items():
        click.echo(f"left out: {count} mutants, for {reason}")


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
