"""Nouns: shared options.

What several commands take is declared once: the database, machine-readable output, the pair.
"""

import io
import os
import re
import sys
from collections.abc import Callable
from typing import Any

import click
import msgspec
from rich.console import Console

from schedfuzz.db.connect import Store, open_store
from schedfuzz.workers.home import Home

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

db_option: Decorator = click.option(
    "--db", "db_url", envvar="SCHEDFUZZ_DB", metavar="URL",
    help="Database (any SQLAlchemy URL). Default: a SQLite file in SCHEDFUZZ_HOME.",
)  # fmt: skip
json_option: Decorator = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
runner_option: Decorator = click.option(
    "--runner", type=click.Choice(["simulated", "real"]),
    help="What plays the model on both targets (default simulated; a target spelled like "
    "0.28.0:real has its own).",
)  # fmt: skip


UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


class Seconds(click.ParamType):
    """A time as 90, 90s, 10m or 2h, within bounds; its value is in seconds."""

    name = "time"

    def __init__(self, least: float = 0, most: float = 10**8) -> None:
        self.least = least
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the seconds. Raises BadParameter."""
        match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,9})?)([smh]?)", str(value), re.ASCII)
        if match is None:
            self.fail(f"{value!r} is not a time; write it like 90, 90s, 10m or 2h", param, ctx)
        seconds = float(match[1]) * UNITS[match[2]]
        if not self.least <= seconds <= self.most:
            bounds = f"{self.least:,} to {self.most:,} seconds"
            self.fail(f"{value!r} is not within {bounds}; write it like 90, 10m or 2h", param, ctx)
        return seconds


class FindingId(click.ParamType):
    """The number of a finding."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number. Raises BadParameter."""
        if not re.fullmatch(r"0*[1-9]\d{0,18}", str(value), re.ASCII):
            known = "write its number; `schedfuzz findings` lists them"
            self.fail(f"{value!r} is no finding: {known}", param, ctx)
        return int(value)


def open_db(db_url: str | None) -> Store:
    """Open the given database, else the home's. Raises InputError."""
    return open_store(db_url or Home.locate().database_url)


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def console() -> Console:
    """Return a console on its own copy of standard error, which libFuzzer's noise cannot reach."""
    raw = _Lasting(os.dup(sys.stderr.fileno()), "w")
    stream = io.TextIOWrapper(
        io.BufferedWriter(raw), sys.stderr.encoding, errors="backslashreplace", line_buffering=True
    )
    return Console(file=stream, highlight=False)


class _Lasting(io.FileIO):
    """Loses what cannot be written: a hunt outlives the terminal or pipe that it reports to."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)
