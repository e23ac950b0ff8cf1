"""Nouns: screen.

What look verbs print on standard output. A terminal gets tables of its own width; anything else
gets each row unwrapped and uncut, so that a line stays a line for grep. Data is never markup.
"""

import sys

import click
from rich.console import Console
from rich.table import Table

UNLIMITED = 100_000


def print_table(table: Table) -> None:
    """Print a table; not on a terminal, without wrapping and without trailing blanks."""
    terminal = sys.stdout.isatty()
    console = Console(
        markup=False, emoji=False, highlight=False, width=None if terminal else UNLIMITED
    )
    if terminal:
        console.print(table)
        return
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        click.echo(line.rstrip())
