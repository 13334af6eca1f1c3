"""Figures as small SVG drawings; colours come from the page's style sheet, so they follow light and dark."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 300, 190
LEFT, RIGHT, TOP, BOTTOM = 38, 12, 12, 30


@dataclass(frozen=True)
class Line:
    """One curve over severities 0-4; controls are drawn thin and dashed."""

    name: str
    values: tuple[float, ...]
    control: bool
    colour: int  # index of the page's palette


def curve_chart(lines: Sequence[Line], top: float, label: str, least: float | None = None) -> str:
    """Return the SVG of curves over severity, from 0 to `top`; `least` draws the reliability level."""
    span = max((len(line.values) for line in lines), default=5) - 1
    parts = [_axes(span, top)]
    if least is not None:
        y = _y(least, top)
        parts.append(f'<line class="least" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    parts += [_curve(line, span, top) for line in sorted(lines, key=lambda line: not line.control)]
    body = "".join(parts)
    return f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">{body}</svg>'


def _axes(span: int, top: float) -> str:
    ticks = []
    for step in range(5):
        value = top * step / 4
        y = _y(value, top)
        ticks.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        ticks.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 3:.1f}" text-anchor="end">{value:.2g}</text>')
    for severity in range(span + 1):
        x = _x(severity, span)
        ticks.append(
            f'<text class="tick" x="{x:.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{severity}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    ticks.append(f'<text class="tick" x="{middle:.1f}" y="{HEIGHT - 3}" text-anchor="middle">severity</text>')
    return "".join(ticks)


def _curve(line: Line, span: int, top: float) -> str:
    """Return a curve that breaks where a value is missing."""
    style = f'class="curve{" control" if line.control else ""}" style="--c:var(--p{line.colour})"'
    points = [(_x(s, span), _y(v, top), s, v) for s, v in enumerate(line.values) if not math.isnan(v)]
    path, previous = "", None
    for x, y, severity, _ in points:
        path += f"{'L' if previous is not None and severity == previous + 1 else 'M'}{x:.1f} {y:.1f}"
        previous = severity
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{escape(line.name)}, severity {s}: {v:.3f}</title></circle>'
        for x, y, s, v in points
    )
    return f'<g {style} data-model="{escape(line.name)}"><path d="{path or "M0 0"}"/>{dots}</g>'


def _x(severity: int, span: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (severity / max(span, 1))


def _y(value: float, top: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(max(value / top, 0), 1))
