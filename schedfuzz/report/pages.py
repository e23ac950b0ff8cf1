"""Nouns: issue text, offline page.

What a maintainer is given to read: an issue in Markdown, and a page in one file that needs no
network and no server.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from schedfuzz import __version__
from schedfuzz.corpus import codec
from schedfuzz.corpus.names import typed_pair
from schedfuzz.corpus.printable import plain
from schedfuzz.corpus.trace import Step, Trace
from schedfuzz.report.drawing import schedules
from schedfuzz.report.facts import Facts

STYLE = Path(__file__).parent / "style.css"
AROUND = 6  # steps before the first difference that an issue shows


def issue(facts: Facts) -> str:
    """Return an issue's text in Markdown; whatever came from a target is code, never markup."""
    sides = [] if facts.sides is None else list(_rows(*facts.sides))
    return environment(html=False).get_template("issue.md.j2").render(
        facts=facts, row=facts.row, rows=sides, code=code, plain=plain, fence=fence,
        scenario=codec.pretty(facts.scenario), pair=typed_pair(facts.row.before, facts.row.after),
        version=__version__,
    )  # fmt: skip


def page(facts: Sequence[Facts]) -> str:
    """Return an offline page with these findings."""
    cases = [_case(one) for one in facts]
    return environment(html=True).get_template("report.html.j2").render(
        cases=cases, style=Markup(STYLE.read_text()), version=__version__,
        now=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    )  # fmt: skip


def drawn(facts: Facts) -> list[tuple[str, Markup]]:
    """Return (target, picture) of both sides; none where what they did is not stored."""
    if facts.sides is None:
        return []
    pictures = schedules(facts.scenario, *facts.sides)
    names = facts.row.before, facts.row.after
    return [(name, Markup(svg)) for name, svg in zip(names, pictures, strict=True)]


def _case(facts: Facts) -> dict[str, Any]:
    return {
        "facts": facts, "row": facts.row, "drawn": drawn(facts),
        "scenario": codec.pretty(facts.scenario),
        "pair": typed_pair(facts.row.before, facts.row.after),
    }  # fmt: skip


def environment(html: bool) -> jinja2.Environment:
    """Return what fills the templates; `html` escapes all that came from data."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("schedfuzz.report"), trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, undefined=jinja2.StrictUndefined, autoescape=html,
    )  # fmt: skip


def _rows(before: Trace, after: Trace) -> list[tuple[str, str, str, str]]:
    """Return (mark, step, before, after) for the steps that lead to the difference or the fault."""
    last = max(len(before.steps), len(after.steps))
    ends = [i for i in range(last) if _share(before, i) != _share(after, i)]
    bad = [
        place
        for trace in (before, after)
        for place, step in enumerate(trace.steps)
        if trace.violations and step.index == trace.violations[0].step
    ]
    stop = max([*bad, ends[0] if ends else last - 1]) + 1 if last else 0
    start = max(0, min([*bad, *ends[:1], stop]) - AROUND)
    return [
        (
            "!!" if place in bad else "~" if place in ends else "",
            str((before.steps if place < len(before.steps) else after.steps)[place].index),
            _share(before, place), _share(after, place),
        )
        for place in range(start, min(stop + 1, last))
    ]  # fmt: skip


def _share(trace: Trace, place: int) -> str:
    if place >= len(trace.steps):
        return ""
    step: Step = trace.steps[place]
    told = [
        f"r{share.request} {share.path} {share.start}+{share.tokens}"
        + (f" ({share.drafts} drafts)" if share.drafts else "")
        for share in step.scheduled
    ] or ["nothing"]
    told += [f"preempted r{number}" for number in step.preempted]
    return ", ".join([*told, f"{step.free_blocks} free"])


def code(text: str) -> str:
    """Return text as Markdown code on one line, whatever it holds."""
    line = plain(text).replace("|", "\\|")
    ticks = "`"
    while ticks in line:
        ticks += "`"
    pad = " " if line[:1] == "`" or line[-1:] == "`" else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def fence(text: str) -> str:
    """Return a fence that the text does not hold."""
    fence = "```"
    while fence in text:
        fence += "`"
    return fence
