"""Nouns: drawing, panel, cell, mark.

A schedule as a picture: requests are rows, engine steps are columns, and below them stand the
step's tokens and the KV blocks in use, each under its limit. Everything that a reader may point at
carries its numbers. Shapes have classes and no colours: the page's style sheet has those.
"""

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from typing import NamedTuple

from schedfuzz.corpus.scenario import Engine, Scenario
from schedfuzz.corpus.trace import Scheduled, Step, Trace
from schedfuzz.fuzzer.judge import first_difference

CELL_WIDTH, CELL_HEIGHT = 30, 22
LEFT, TOP = 76, 26
BARS = 44  # the height of a row of bars
GAP = 14
MOST_STEPS = 240
Element = ElementTree.Element


class Marks(NamedTuple):
    """What is marked in both panels: the step where the sides part, and where a rule breaks."""

    parting: int | None
    broken: int | None


def schedules(scenario: Scenario, before: Trace, after: Trace) -> tuple[str, str]:
    """Return a picture of each side, as SVG to be put into a page."""
    parting = first_difference(before, after)
    at = parting.position if parting else None
    shown = _window(max(len(before.steps), len(after.steps)), at)
    return (
        _Panel(scenario, before, shown, Marks(at, _broken(before))).svg(),
        _Panel(scenario, after, shown, Marks(at, _broken(after))).svg(),
    )


def _window(steps: int, parting: int | None) -> range:
    """Return which steps to draw: all, or as many as a page can show around the difference."""
    first = max(0, min((parting or 0) - MOST_STEPS // 2, steps - MOST_STEPS))
    return range(first, min(steps, first + MOST_STEPS))


def _broken(trace: Trace) -> int | None:
    """Return the position of the step in which the first rule broke."""
    if not trace.violations:
        return None
    wanted = trace.violations[0].step
    return next(
        (place for place, step in enumerate(trace.steps) if step.index == wanted),
        len(trace.steps) - 1 if trace.steps else None,
    )


class _Panel:
    def __init__(self, scenario: Scenario, trace: Trace, shown: range, marks: Marks) -> None:
        self.engine: Engine = scenario.engine
        self.requests = [request.id for request in scenario.requests]
        self.trace = trace
        self.shown = shown
        self.marks = marks
        self.tokens_top = TOP + CELL_HEIGHT * len(self.requests) + GAP
        self.blocks_top = self.tokens_top + BARS + GAP
        self.height = self.blocks_top + BARS + 8
        self.width = LEFT + CELL_WIDTH * len(shown) + 8

    def svg(self) -> str:
        """Return the panel."""
        root = Element("svg", {
            "xmlns": "http://www.w3.org/2000/svg", "class": "schedule", "role": "img",
            "width": str(self.width), "height": str(self.height),
            "viewBox": f"0 0 {self.width} {self.height}",
        })  # fmt: skip
        _add(root, "title", text=self._said())
        for row, request in enumerate(self.requests):
            y = TOP + CELL_HEIGHT * row
            _add(root, "text", {"x": "4", "y": str(y + 15), "class": "label"}, f"r{request}")
            _line(root, LEFT, y + CELL_HEIGHT, self.width, y + CELL_HEIGHT, "grid")
        for name, top in (("tokens", self.tokens_top), ("KV blocks", self.blocks_top)):
            _add(root, "text", {"x": "4", "y": str(top + BARS // 2 + 4), "class": "label"}, name)
        for place in self.shown:
            if place < len(self.trace.steps):
                self._step(root, place, self.trace.steps[place])
        for limit, top in ((self._budget(), self.tokens_top), (self._pool(), self.blocks_top)):
            line = _line(root, LEFT, top, self.width, top, "limit")
            _add(line, "title", text=limit)
        self._mark(root)
        return ElementTree.tostring(root, encoding="unicode")

    def _said(self) -> str:
        steps = f"{len(self.trace.steps)} steps, {self.trace.outcome}"
        return steps + "".join(f"; {item.rule}: {item.detail}" for item in self.trace.violations)

    def _budget(self) -> str:
        return f"max_num_batched_tokens {self.engine.max_num_batched_tokens}"

    def _pool(self) -> str:
        return f"num_blocks {self.engine.num_blocks}"

    def _x(self, place: int) -> int:
        return LEFT + CELL_WIDTH * (place - self.shown.start)

    def _step(self, root: Element, place: int, step: Step) -> None:
        x = self._x(place)
        group = _add(root, "g", {"class": "step", "data-step": str(step.index)})
        if place % 5 == 0 or place == self.shown.start:
            _add(group, "text", {"x": str(x + 2), "y": "16", "class": "number"}, str(step.index))
        for share in step.scheduled:
            if share.request in self.requests:
                self._cell(group, x, step, share)
        for name, mark in (("preempted", "×"), ("finished", "■")):
            for request in getattr(step, name):
                if request in self.requests:
                    self._sign(group, x, request, name, mark, step)
        tokens = sum(share.tokens for share in step.scheduled)
        used = self.engine.num_blocks - step.free_blocks
        budget = self.engine.max_num_batched_tokens
        said = f"step {step.index}: {tokens} tokens of {budget}"
        self._bar(group, x, self.tokens_top, tokens / budget, "tokens", said)
        said = f"step {step.index}: {used} KV blocks in use, {step.free_blocks} free"
        self._bar(group, x, self.blocks_top, used / self.engine.num_blocks, "blocks", said)

    def _cell(self, group: Element, x: int, step: Step, share: Scheduled) -> None:
        y = TOP + CELL_HEIGHT * self.requests.index(share.request)
        cell = _add(group, "g", {"class": f"cell {share.path}"})
        _add(cell, "title", text=_numbers(step, share))
        _rect(cell, x + 1, y + 2, CELL_WIDTH - 2, CELL_HEIGHT - 4, "scheduled")
        if share.drafts:
            part = min(share.drafts / max(share.tokens, 1), 1) * (CELL_WIDTH - 2)
            _rect(cell, x + CELL_WIDTH - 1 - part, y + 2, part, CELL_HEIGHT - 4, "drafts")
        middle = str(x + CELL_WIDTH / 2)
        _add(cell, "text", {"x": middle, "y": str(y + 15), "class": "count"}, str(share.tokens))

    def _sign(
        self, group: Element, x: int, request: int, name: str, mark: str, step: Step
    ) -> None:  # fmt: skip
        y = TOP + CELL_HEIGHT * self.requests.index(request)
        sign = _add(
            group, "text", {"x": str(x + CELL_WIDTH - 7), "y": str(y + 9), "class": name}, mark
        )
        _add(sign, "title", text=f"step {step.index}: request {request} {name}")

    def _bar(
        self, group: Element, x: int, top: int, share: float, name: str, said: str
    ) -> None:  # fmt: skip
        height = max(min(share, 1.0), 0.0) * BARS
        back = _rect(group, x + 1, top, CELL_WIDTH - 2, BARS, "back")
        _add(back, "title", text=said)
        bar = _rect(group, x + 1, top + BARS - height, CELL_WIDTH - 2, height, name)
        _add(bar, "title", text=said)

    def _mark(self, root: Element) -> None:
        """Outline the step where the sides part, and the one in which a rule breaks."""
        for place, name, said in self._marked():
            if place is not None and place in self.shown:
                out = 3 if name == "parting" else 0  # both may be around one step
                box = _rect(
                    root, self._x(place) - out, TOP - 4 - out, CELL_WIDTH + 2 * out,
                    self.height - TOP + 2 * out, f"mark {name}",
                )  # fmt: skip
                _add(box, "title", text=said)

    def _marked(self) -> Iterator[tuple[int | None, str, str]]:
        yield self.marks.parting, "parting", "the first step in which the sides differ"
        if self.trace.violations:
            item = self.trace.violations[0]
            yield self.marks.broken, "broken", f"{item.rule}: {item.detail}"


def _numbers(step: Step, share: Scheduled) -> str:
    return (
        f"step {step.index}, request {share.request} ({share.path}): {share.start} computed, "
        f"{share.tokens} scheduled, {share.drafts} of them drafts, {share.sampled} sampled, "
        f"{share.blocks} blocks"
    )


def _add(
    parent: Element, tag: str, attributes: dict[str, str] | None = None, text: str = ""
) -> Element:  # fmt: skip
    element = ElementTree.SubElement(parent, tag, attributes or {})
    # What XML cannot hold is shown as an escape.
    element.text = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
    return element


def _rect(
    parent: Element, x: float, y: float, width: float, height: float, name: str
) -> Element:  # fmt: skip
    shape = {"x": x, "y": y, "width": width, "height": height}
    figures = {key: f"{value:g}" for key, value in shape.items()}
    return _add(parent, "rect", figures | {"class": name})


def _line(parent: Element, x: int, y: int, x2: int, y2: int, name: str) -> Element:
    ends = {"x1": x, "y1": y, "x2": x2, "y2": y2}
    return _add(parent, "line", {key: str(value) for key, value in ends.items()} | {"class": name})
