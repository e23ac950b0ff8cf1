"""Nouns: curve, step plot.

How many bugs were found by when, as an SVG that needs no library: a step per bug, time on a
logarithmic scale, the last curve in bold.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 50, 50
LEAST_SECONDS = 0.1
TICKS = (0.1, 1, 10, 60, 600, 3600, 36_000, 360_000)
NAMES = {60: "1 min", 600: "10 min", 3600: "1 h", 36_000: "10 h", 360_000: "100 h"}
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")  # for all eyes


def step_plot(title: str, curves: Mapping[str, Sequence[float]], seconds: float, most: int) -> str:
    """Return an SVG of cumulative counts: each curve's times in seconds up to the limit `seconds`.

    `most` is the height of the plot in bugs; any text is escaped.
    """
    scale = _Scale(max(seconds, 2 * LEAST_SECONDS), max(most, 1))
    parts = [_text(WIDTH / 2, TOP / 2, title, "middle")]
    for tick in (tick for tick in TICKS if tick <= seconds):
        parts.append(_line(scale.x(tick), scale.y(0), scale.x(tick), scale.y(most)))
        name = NAMES.get(int(tick), f"{tick:g} s")
        parts.append(_text(scale.x(tick), HEIGHT - BOTTOM + 20, name, "middle"))
    for count in range(0, most + 1, max(1, most // 8)):
        parts.append(_line(LEFT, scale.y(count), WIDTH - RIGHT, scale.y(count)))
        parts.append(_text(LEFT - 8, scale.y(count) + 4, str(count), "end"))
    for index, (name, times) in enumerate(curves.items()):
        last = index == len(curves) - 1
        color = "#000000" if last else COLORS[index % len(COLORS)]
        parts.append(_curve(scale, times, seconds, color, 3 if last else 1.5))
        parts.append(_text(LEFT + 10, TOP + 18 + 18 * index, name, "start", color))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="#ffffff"/>'
        + "".join(parts)
        + "</svg>\n"
    )


class _Scale:
    def __init__(self, seconds: float, most: int) -> None:
        self.decades = math.log10(seconds / LEAST_SECONDS)
        self.most = most

    def x(self, seconds: float) -> float:
        share = math.log10(max(seconds, LEAST_SECONDS) / LEAST_SECONDS) / self.decades
        return round(LEFT + (WIDTH - LEFT - RIGHT) * min(share, 1.0), 1)

    def y(self, count: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * count / self.most, 1)


def _curve(
    scale: _Scale, times: Sequence[float], seconds: float, color: str, width: float
) -> str:  # fmt: skip
    path = [f"M{scale.x(LEAST_SECONDS)} {scale.y(0)}"]
    for count, moment in enumerate(sorted(times), 1):
        path.append(f"H{scale.x(moment)}V{scale.y(count)}")
    path.append(f"H{scale.x(seconds)}")
    return f'<path d="{"".join(path)}" fill="none" stroke="{color}" stroke-width="{width}"/>'


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#dddddd"/>'


def _text(x: float, y: float, text: str, anchor: str, color: str = "#000000") -> str:
    place = f'x="{x}" y="{y}" text-anchor="{anchor}" fill="{color}"'
    return f"<text {place}>{escape(text)}</text>"
