"""Nouns: status, closing block.

A live panel on a terminal, one plain line per ten seconds elsewhere, and at the end the commands
that a reader would type next.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from schedfuzz.corpus.trace import ORDER
from schedfuzz.db.models import Finding
from schedfuzz.fuzzer.hunt import Totals
from schedfuzz.fuzzer.replays import Replays
from schedfuzz.service.exporting import refusal

PLAIN_SECONDS = 10.0


class Status:
    """Shows a hunt's totals, and those of its replays; a context manager around the hunt."""

    def __init__(
        self, console: Console, pair: str, corpus: Path, seed: int, replays: Replays | None = None
    ) -> None:
        self.console = console
        self.pair = pair
        self.corpus = corpus
        self.seed = seed
        self.replays = replays
        self.restarts = 0
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._plain = -PLAIN_SECONDS  # the first line is due at once

    def __enter__(self) -> "Status":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, totals: Totals) -> None:
        """Show the totals, as often as the output deserves."""
        if self._live is not None:
            self._live.update(self._panel(totals), refresh=True)
        elif time.monotonic() - self._plain >= PLAIN_SECONDS:
            self._plain = time.monotonic()
            self.console.print(self.line(totals), soft_wrap=True, markup=False)

    def line(self, totals: Totals) -> str:
        """Return the totals as one line."""
        return "  ".join(f"{name} {value}" for name, value in self._facts(totals))

    def _facts(self, totals: Totals) -> list[tuple[str, str]]:
        if totals.state == "minimizing":
            return self._closing(totals)
        rate = totals.executions / totals.seconds if totals.seconds else 0.0
        last = "none" if totals.last_new is None else f"at {totals.last_new:.0f} s"
        return [
            (totals.state, f"{totals.seconds:.0f} s"),
            ("executions", f"{totals.executions} ({rate:.0f}/s)"),
            ("corpus", str(_entries(self.corpus))),
            ("coverage", f"{totals.sites[0]}+{totals.sites[1]} sites, {totals.features} features"),
            ("findings", verdict_counts(totals.verdicts)),
            *self._real(),
            ("minimizing", str(totals.open_reductions)),
            ("last new", last),
            ("restarts", str(self.restarts)),
            ("infra", str(totals.infra)),
        ]

    def _closing(self, totals: Totals) -> list[tuple[str, str]]:
        """Return what still moves once the hunt's time is up."""
        left, now = totals.open_reductions, totals.next_reduction
        if self.replays is not None:
            left += len(self.replays.cases.open)
            now = now or self.replays.cases.next
        at = "" if now is None else f", finding {now.finding}: {now.calls} calls"
        return [
            (totals.state, f"{totals.closing_seconds:.0f} s  {left} left{at}"),
            ("findings", verdict_counts(totals.verdicts)),
            *self._real(),
            ("restarts", str(self.restarts)),
        ]

    def _real(self) -> list[tuple[str, str]]:
        if self.replays is None:
            return []
        real = self.replays
        found = verdict_counts(real.cases.verdicts)
        return [
            ("real", f"{real.executions} executions in {real.seconds:.0f} s, "
                     f"{real.waiting} waiting, findings {found}")
        ]  # fmt: skip

    def _panel(self, totals: Totals) -> Table:
        table = Table(
            title=f"{self.pair}  seed {self.seed}", show_header=False, title_justify="left"
        )
        for name, value in self._facts(totals):
            table.add_row(name, value)
        return table


def _entries(folder: Path) -> int:
    try:
        return sum(1 for _ in folder.iterdir())
    except OSError:  # removed, or no longer readable: the hunt itself can do without it
        return 0


def verdict_counts(verdicts: Mapping[str, int]) -> str:
    """Return the number of findings per verdict, the pair's news first."""
    counts = [f"{verdicts[name]} {name}" for name in ORDER if verdicts.get(name)]
    return ", ".join(counts) or "0"


def closing_block(
    console: Console, status: Status, totals: Totals, findings: Sequence[Finding], pair: str
) -> None:
    """Print what was found and the commands to go on with."""

    def say(text: str = "") -> None:
        console.print(text, markup=False, soft_wrap=True)

    say(status.line(totals))
    for line in _lacking(totals.left_out):
        say(line)
    news_first = sorted(findings, key=lambda row: (ORDER.index(row.verdict), row.id))
    if status.replays is not None and status.replays.skipped:
        say(f"not replayed on the real runner, for too many waited: {status.replays.skipped}")
    for row in news_first:
        size = f"{row.reproducer_requests} requests, {row.reproducer_steps} steps"
        if status.replays is not None and row.id in status.replays.cases.findings:
            size = f"real runner; {size}"
        say(f"  {row.id:>4}  {row.verdict:<9} {row.kind:<10} {row.title}  [{size}; {row.status}]")
    if news_first:
        say(f"look closer:  schedfuzz show {news_first[0].id}")
        say(f"take it home: {take_home(_exportable(news_first))}")
    say(f"hunt on:      schedfuzz hunt {pair} --seed {status.seed + 1}")


def take_home(row: Finding) -> str:
    """Return the command that takes a finding out of the house, in the form that it has."""
    if refusal(row):
        return f"schedfuzz show {row.id} --json > finding-{row.id}.json"
    return f"schedfuzz export {row.id} --out findings"


def _exportable(rows: Sequence[Finding]) -> Finding:
    """Return the first that has a pytest form, else the first."""
    return next((row for row in rows if not refusal(row)), rows[0])


def _lacking(left_out: Sequence[str]) -> Iterator[str]:
    """Yield what the hunt says of the dimensions that it went without, or with one value only."""
    kept = [name.replace(" ", " = ", 1) for name in left_out if " " in name]
    gone = [name for name in left_out if " " not in name]
    if gone:
        yield f"left out, for one of the targets lacks it: {', '.join(gone)}"
    if kept:
        yield f"kept to {', '.join(kept)}, for one of the targets plays nothing else"
