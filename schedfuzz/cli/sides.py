"""Nouns: side, row, mark.

Two traces side by side, a row per engine step. Rows pair steps as the judge does, by position, so
the first marked row is where the sides part.
"""

from itertools import zip_longest
from typing import Literal

from rich import box
from rich.table import Table

from schedfuzz.corpus.trace import Scheduled, Step, Trace

VIOLATED = "!!"
DIFFERENT = "~"


def sides_table(
    before: str, after: str, one: Trace, two: Trace, shown: range | None = None
) -> Table:
    """Return both sides step by step; `before` and `after` are the targets' names.

    `shown` are the positions of the rows to return, all by default.

    A share reads `r1 new 48+2 (1 draft) ->2`: computed before the step, scheduled in it, drafts
    among those, tokens sampled. Marks: `!!` a rule broke in this step, `~` the sides differ.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("", "step", "events", before, "free", after, "free"):
        justify: Literal["left", "right"] = "right" if heading in ("step", "free") else "left"
        table.add_column(heading, justify=justify, overflow="fold")
    for position, (left, right) in enumerate(zip_longest(one.steps, two.steps)):
        if shown is None or position in shown:
            table.add_row(*_row((left, one), (right, two)))
    return table


def _row(*sides: tuple[Step | None, Trace]) -> list[str]:
    steps = [step for step, _ in sides]
    marks = [_broken(step, trace) for step, trace in sides]
    delivery = len({step.delivered if step else None for step in steps}) > 1
    cells = [
        "\n".join([*_happened(step, delivery), *broken]) if step else ""
        for step, broken in zip(steps, marks, strict=True)
    ]
    free = [str(step.free_blocks) if step else "" for step in steps]
    same = cells[0] == cells[1] and free[0] == free[1]
    mark = VIOLATED if any(marks) else "" if same else DIFFERENT
    index = _joined([str(step.index) for step in steps if step])
    events = _joined([", ".join(step.events) or "-" for step in steps if step])
    events = "" if events == "-" else events
    return [mark, index, events, cells[0], free[0], cells[1], free[1]]


def _joined(texts: list[str]) -> str:
    return " / ".join(dict.fromkeys(texts))


def _broken(step: Step | None, trace: Trace) -> list[str]:
    if step is None:
        return []
    return [f"{VIOLATED} {item.rule}" for item in trace.violations if item.step == step.index]


def _happened(step: Step, delivery: bool) -> list[str]:
    """Return what a step did, a line per share; deliveries only where the sides differ in them."""
    lines = [_share(share) for share in step.scheduled] or ["nothing scheduled"]
    for what, requests in (("preempted", step.preempted), ("finished", step.finished)):
        if requests:
            lines.append(f"{what} " + " ".join(f"r{request}" for request in requests))
    if delivery and step.delivered:
        lines.append("delivered " + " ".join(f"r{who}:{count}" for who, count in step.delivered))
    return lines


def _share(share: Scheduled) -> str:
    drafts = f" ({share.drafts} draft{'s' * (share.drafts > 1)})" if share.drafts else ""
    sampled = f" ->{share.sampled}" if share.sampled else ""
    return f"r{share.request} {share.path} {share.start}+{share.tokens}{drafts}{sampled}"
