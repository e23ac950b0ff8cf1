"""Nouns: triage command, key.

One open finding after the other, one key for each decision. Every key is a verb of the command
line, so nothing can be decided here that cannot be scripted, and the last decision can be undone.
"""

import sys
from collections.abc import Callable
from typing import Any

import click

from schedfuzz.cli.decide import Moment, by_option
from schedfuzz.cli.options import FindingId, db_option, open_db
from schedfuzz.cli.show import on_top
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.printable import plain
from schedfuzz.db import decisions, finding_lists, muting, queries
from schedfuzz.db.connect import Store
from schedfuzz.report.facts import gather

KEYS = {
    "n": "next", "b": "back", "s": "show all", "v": "schedules", "r": "reported",
    "f": "fixed in", "d": "dup of", "m": "mute", "i": "invalid", "t": "note", "u": "undo",
    "q": "quit",
}  # fmt: skip


@click.command()
@by_option
@db_option
def triage(by: str, db_url: str | None) -> None:
    """Go through the open findings, news first, with one key for each decision."""
    if not sys.stdin.isatty():
        raise InputError(
            "triage: standard input is no terminal; decide by the verbs (`schedfuzz --help`)"
        )
    store = open_db(db_url)
    muting.wake(store)
    found = finding_lists.find(store, finding_lists.Wanted(aside=False))
    if not found.page:
        click.echo("no open finding", err=True)
        return
    click.echo("  ".join(f"[{key}] {meaning}" for key, meaning in KEYS.items()))
    _Loop(store, [row.id for row, _ in found.page], by).run()


class _Loop:
    def __init__(self, store: Store, numbers: list[int], by: str) -> None:
        self.store = store
        self.numbers = numbers
        self.by = by
        self.at = 0
        self.decided: list[int] = []
        self.deciding: dict[str, Callable[[int], Any]] = {
            "r": lambda number: decisions.report(store, number, by, _ask("where")),
            "f": lambda number: decisions.resolve(store, number, _ask("fixed in target"), by),
            "d": lambda number: decisions.duplicate(store, number, _finding(), by),
            "m": lambda number: decisions.mute(store, number, _moment(), by, _ask("why")),
            "i": lambda number: decisions.invalidate(store, number, by, _ask("why")),
        }

    def run(self) -> None:
        """Show and ask until the last finding or `q`."""
        self._show()
        while True:
            click.echo(f"[{self.at + 1} of {len(self.numbers)}] > ", nl=False)
            key = click.getchar()
            click.echo(f"{key if key in KEYS else ''}")
            if key in ("q", "\x04"):
                return
            try:
                if not self._press(key):
                    return
            except (InputError, click.BadParameter) as error:
                click.echo(plain(str(error)))

    def _press(self, key: str) -> bool:
        """Do what the key says; return whether there is more to do."""
        number = self.numbers[self.at]
        if key in self.deciding:
            self.deciding[key](number)
            self.decided.append(number)
            click.echo(f"finding {number}\t{queries.get_finding(self.store, number).status}")
            return self._move(1)
        match key:
            case "n" | " " | "\r":
                return self._move(1)
            case "b":
                return self._move(-1)
            case "t":
                decisions.remark(self.store, number, _ask("note"), self.by)
            case "u":
                self._undo()
            case "s" | "v":
                self._verb("show" if key == "s" else "diff", number)
            case _:
                click.echo("  ".join(f"[{key}] {meaning}" for key, meaning in KEYS.items()))
        return True

    def _move(self, by: int) -> bool:
        if self.at + by >= len(self.numbers):
            click.echo("that was the last one")
            return False
        self.at = max(self.at + by, 0)
        self._show()
        return True

    def _undo(self) -> None:
        if not self.decided:
            raise InputError("nothing was decided here yet")
        number = self.decided.pop()
        decisions.reopen(self.store, number, self.by, verb="undo")
        self.at = self.numbers.index(number)
        self._show()

    def _show(self) -> None:
        facts = gather(self.store, self.numbers[self.at])
        row = facts.row
        click.echo(f"\nfinding {row.id}  {row.verdict}  {row.kind}  {plain(row.title)}")
        for line in on_top(facts):
            click.echo(f"  {plain(line)}")
        click.echo(
            f"  {row.status}, seen {facts.sightings} times, repeats {row.confirm_hits} of "
            f"{row.confirm_runs}, {row.reproducer_requests} requests, "
            f"{row.reproducer_steps} steps, on {row.before} and {row.after}"
        )

    def _verb(self, name: str, number: int) -> None:
        context = click.get_current_context()
        assert isinstance(context.find_root().command, click.Group)
        command = context.find_root().command.commands[name]  # type: ignore[attr-defined]
        context.invoke(
            command, finding=number, as_json=False, db_url=context.params["db_url"],
            **({"around": 6} if name == "diff" else {}),
        )  # fmt: skip


def _ask(what: str) -> str:
    return str(click.prompt(what, default="", show_default=False))


def _finding() -> int:
    return int(FindingId().convert(_ask("dup of finding"), None, None))


def _moment() -> Any:
    return Moment().convert(_ask("until (30d, or a date)"), None, None)
