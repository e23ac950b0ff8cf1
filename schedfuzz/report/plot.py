"""Nouns: plot, line.

A figure over time as a small picture, with its newest and largest value in words.
"""

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from datetime import datetime

WIDTH, HEIGHT, FOOT = 320, 90, 16


def plot(title: str, times: Sequence[datetime], values: Sequence[float]) -> str:
    """Return a line over time as SVG; `times` and `values` are of one length, at least 1."""
    top = max(max(values), 1e-9)
    said = f"{title}: now {_figure(values[-1])}, at most {_figure(top)}"
    root = ElementTree.Element("svg", {
        "xmlns": "http://www.w3.org/2000/svg", "class": "plot", "role": "img",
        "viewBox": f"0 0 {WIDTH} {HEIGHT + FOOT}", "width": str(WIDTH),
    })  # fmt: skip
    ElementTree.SubElement(root, "title").text = said
    step = WIDTH / max(len(values) - 1, 1)
    points = [
        (step * place, HEIGHT - value / top * (HEIGHT - 6)) for place, value in enumerate(values)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    area = f"0,{HEIGHT} {line} {points[-1][0]:.1f},{HEIGHT}"
    ElementTree.SubElement(root, "polygon", {"points": area, "class": "area"})
    ElementTree.SubElement(root, "polyline", {"points": line, "class": "line"})
    for place, (x, _) in enumerate(points):
        _hover(root, x - step / 2, step, f"{times[place]:%m-%d %H:%M} {_figure(values[place])}")
    for x, anchor, moment in ((0, "start", times[0]), (WIDTH, "end", times[-1])):
        ElementTree.SubElement(root, "text", {
            "x": str(x), "y": str(HEIGHT + FOOT - 3), "text-anchor": anchor, "class": "label",
        }).text = f"{moment:%m-%d %H:%M}"  # fmt: skip
    return ElementTree.tostring(root, encoding="unicode")


def _hover(root: ElementTree.Element, x: float, width: float, said: str) -> None:
    shape = {"x": f"{x:.1f}", "y": "0", "width": f"{width:.1f}", "height": str(HEIGHT)}
    area = ElementTree.SubElement(root, "rect", shape | {"class": "hover"})
    ElementTree.SubElement(area, "title").text = said


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
