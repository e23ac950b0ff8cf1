"""Nouns: account of a run.

The verdict on top, each broken rule below it, then both sides step by step.
"""

import click

from schedfuzz.cli.screen import print_table
from schedfuzz.cli.sides import sides_table
from schedfuzz.corpus.printable import plain
from schedfuzz.corpus.rules import RULES
from schedfuzz.corpus.trace import Trace, Verdict
from schedfuzz.fuzzer.judge import first_difference, title


def print_account(
    verdict: Verdict, names: tuple[str, str], traces: tuple[Trace, Trace], around: int | None = None
) -> None:
    """Print what a pair did with a scenario; `around`: only so many steps around where it parts."""
    facts = verdict.verdict, verdict.kind, verdict.rule, verdict.fingerprint
    click.echo("  ".join(str(fact) for fact in facts if fact))
    if verdict.verdict == "changed":
        click.echo(plain(f"{verdict.title}: {verdict.detail}"))
    for name, trace in zip(names, traces, strict=True):
        for line in _story(trace):
            click.echo(plain(f"{name}: {line}"))
    parting = first_difference(*traces)
    if parting is not None:
        click.echo(plain(f"first differing step: {parting.detail}"))
    shown = None
    if around is not None and parting is not None:
        shown = range(max(parting.position - around, 0), parting.position + around + 1)
    if any(trace.steps for trace in traces):
        print_table(sides_table(*names, *traces, shown))


def _story(trace: Trace) -> list[str]:
    """Return a side's outcome, and each rule it broke, a line each."""
    why = f": {trace.reason}" if trace.reason else ""
    lines = [f"{trace.outcome} after {len(trace.steps)} steps{why}"]
    for item in trace.violations:
        who = "" if item.request is None else f", r{item.request}"
        rule = f": {RULES[item.rule][1]}" if item.rule in RULES else ""
        lines.append(f"step {item.step}{who}: {item.kind}: {title(item)}{rule}: {item.detail}")
    return lines
