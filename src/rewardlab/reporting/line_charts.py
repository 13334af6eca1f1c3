"""Small line charts as SVG, many of them side by side; colours come from the page's style sheet."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 220, 120
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 8, 8, 20


@dataclass(frozen=True)
class ChartLine:
    """A line through points, in a colour of the page's palette; a reference is thin and dashed."""

    name: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    colour: int = 0
    reference: bool = False


@dataclass(frozen=True)
class TitledChart:
    """A chart as SVG with what it is of, for a page that shows several side by side."""

    title: str
    svg: str


def line_chart(lines: Sequence[ChartLine], label: str, *, axis: tuple[float, float] | None = None) -> str:
    """Return the SVG of some lines; without an axis it reaches from their least to their largest value."""
    low, high = axis or _range([value for line in lines for value in line.y])
    end = max((x for line in lines for x in line.x), default=1.0) or 1.0
    parts = [_tick(low, low, high), _tick(high, low, high)]
    parts += [_line(line, (low, high), end) for line in lines]
    body = "".join(parts)
    return f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">{body}</svg>'


def _range(values: Sequence[float | None]) -> tuple[float, float]:
    known = [value for value in values if value is not None and math.isfinite(value)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _tick(value: float, low: float, high: float) -> str:
    y = _y(value, low, high)
    line = f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return line + f'<text class="tick" x="{_LEFT - 4}" y="{y + 3:.1f}" text-anchor="end">{value:.2g}</text>'


def _line(line: ChartLine, axis: tuple[float, float], end: float) -> str:
    points, joined = "", False
    for x, y in zip(line.x, line.y):
        if y is not None and math.isfinite(y):
            points += f"{'L' if joined else 'M'}{_x(x, end):.1f} {_y(y, *axis):.1f}"
        joined = y is not None
    control = " control" if line.reference else ""
    style = f'class="curve{control}" style="--c:var(--p{line.colour})"'
    return f'<g {style}><path class="line" d="{points or "M0 0"}"><title>{escape(line.name)}</title></path></g>'


def _x(x: float, end: float) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * x / end


def _y(y: float, low: float, high: float) -> float:
    share = (y - low) / (high - low)
    return _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - min(max(share, 0.0), 1.0))
