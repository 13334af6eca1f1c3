"""Small SVG pictures that stand alone: a plot area with two axes, and what is drawn into it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import cycle

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b14f92", "#8a6d00", "#5b6470")
STYLE = """
svg { font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; background: #fff }
.paper { fill: #fff } .grid { stroke: #e3e7ec }
text { fill: #1b1f24; font-size: 12px } .soft { fill: #5b6470; font-size: 11px }
.title { font-size: 15px; font-weight: 600 } .stated { fill: #fff; stroke-width: 2 } .alarm { fill: #c0392b }
@media (prefers-color-scheme: dark) {
  svg { background: #12161b } .paper, .stated { fill: #12161b } .grid { stroke: #2a313a }
  text { fill: #e6eaef } .soft { fill: #9aa5b1 } .alarm { fill: #f08a80 }
}
"""


@dataclass(frozen=True)
class Area:
    """A plot area in pixels and the values at its edges."""

    left: float
    top: float
    width: float
    height: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    def x(self, value: float) -> float:
        """Return the pixel of a value on the horizontal axis."""
        low, high = self.x_range
        return self.left + self.width * (value - low) / (high - low)

    def y(self, value: float) -> float:
        """Return the pixel of a value on the vertical axis."""
        low, high = self.y_range
        return self.top + self.height * (1 - (value - low) / (high - low))


def floor_below(values: Iterable[float]) -> float:
    """Return a round number a little below all values."""
    return math.floor(20 * (min(values) - 0.01)) / 20


def round_steps(low: float, high: float = 1.0) -> list[float]:
    """Return round steps from the top down, so that the top always has its mark."""
    step = 0.05 if high - low <= 0.3 else 0.1 if high - low <= 0.6 else 0.2
    return [round(high - step * i, 2) for i in range(int((high - low) / step + 1e-6) + 1)]


def colours(names: Iterable[str]) -> dict[str, str]:
    """Return a colour of the palette for each name, in order."""
    return dict(zip(names, cycle(COLOURS)))


def picture(title: str, subtitle: str, made_by: str, size: tuple[int, int], body: Sequence[str]) -> str:
    """Return a whole SVG file; `made_by` is the command, written at its foot."""
    width, height = size
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}"><style>{STYLE}</style>'
        f'<rect class="paper" width="{width}" height="{height}"/>'
        + label(20, 28, title, "title")
        + label(20, 46, subtitle, "soft")
        + label(20, height - 10, made_by, "soft")
        + "\n".join(body)
        + "</svg>\n"
    )


def label(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return a line of text."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def axes(area: Area, xs: Sequence[float], ys: Sequence[float], names: tuple[str, str]) -> str:
    """Return grid lines and ticks; `names` are the title of the area and of its horizontal axis."""
    right, bottom = area.left + area.width, area.top + area.height
    parts = [label(area.left, area.top - 8, names[0])]
    for value in ys:
        y = area.y(value)
        parts.append(f'<line class="grid" x1="{area.left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(label(area.left - 6, y + 4, f"{value:g}", "soft", "end"))
    parts += [label(area.x(value), bottom + 16, f"{value:g}", "soft", "middle") for value in xs]
    parts.append(label(area.left + area.width / 2, bottom + 32, names[1], "soft", "middle"))
    return "".join(parts)


def curve(area: Area, points: Sequence[tuple[float, float]], colour: str, *, dashed: bool = False) -> str:
    """Return a line through the points; a dashed one is thin."""
    path = " ".join(f"{area.x(x):.1f},{area.y(y):.1f}" for x, y in points)
    kind = 'stroke-width="1.2" stroke-dasharray="5 4"' if dashed else 'stroke-width="2"'
    return f'<polyline points="{path}" fill="none" stroke="{colour}" {kind}/>'


def band(area: Area, ends: Sequence[tuple[float, float, float]], colour: str) -> str:
    """Return the area between the ends of intervals, each given as x, low and high."""
    there = [f"{area.x(x):.1f},{area.y(high):.1f}" for x, _, high in ends]
    back = [f"{area.x(x):.1f},{area.y(low):.1f}" for x, low, _ in reversed(ends)]
    return f'<polygon points="{" ".join(there + back)}" fill="{colour}" opacity="0.13"/>'


def dot(area: Area, x: float, y: float, colour: str, reach: tuple[float, float] | None = None, words: str = "") -> str:
    """Return a dot, with a bar from one end of its interval to the other; `words` are shown under the mouse."""
    bar = ""
    if reach is not None:
        low, high = (area.y(value) for value in reach)
        bar = _stroke(area.x(x), low, area.x(x), high, colour)
    place = f'cx="{area.x(x):.1f}" cy="{area.y(y):.1f}"'
    return f'{bar}<circle {place} r="3.2" fill="{colour}"{_closed("circle", words)}'


def lying_dot(area: Area, x: float, y: float, colour: str, reach: tuple[float, float]) -> str:
    """Return a dot whose interval lies along the horizontal axis."""
    low, high = (area.x(value) for value in reach)
    bar = _stroke(low, area.y(y), high, area.y(y), colour)
    return f'{bar}<circle cx="{area.x(x):.1f}" cy="{area.y(y):.1f}" r="3.6" fill="{colour}"/>'


def _closed(element: str, words: str) -> str:
    return f"><title>{escape(words)}</title></{element}>" if words else "/>"


def _stroke(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="1.6"/>'


def diamond(area: Area, x: float, y: float, colour: str) -> str:
    """Return the hollow diamond that marks a stated number."""
    cx, cy, r = area.x(x), area.y(y), 6
    path = f"M{cx:.1f} {cy - r:.1f}L{cx + r:.1f} {cy:.1f}L{cx:.1f} {cy + r:.1f}L{cx - r:.1f} {cy:.1f}Z"
    return f'<path class="stated" d="{path}" stroke="{colour}"/>'


def bar(area: Area, x: float, width: float, value: float, colour: str, words: str = "") -> str:
    """Return a bar from zero, up or down; `x` and `width` are pixels."""
    top, bottom = sorted((area.y(value), area.y(0)))
    box = f'x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{bottom - top:.1f}"'
    return f'<rect {box} fill="{colour}" rx="1.5" opacity="0.85"{_closed("rect", words)}'


def legend(left: float, top: float, names: Sequence[str]) -> str:
    """Return one coloured name after the other, in the order of the palette."""
    parts, x = [], left
    for name, colour in zip(names, cycle(COLOURS)):
        parts.append(f'<rect x="{x:.1f}" y="{top - 9:.1f}" width="14" height="10" fill="{colour}" rx="2"/>')
        parts.append(label(x + 20, top, name))
        x += 44 + 7 * len(name)
    return "".join(parts)
