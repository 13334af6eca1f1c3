"""Figures as small SVG drawings; colours come from the page's style sheet, so they follow light and dark."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rewardlab.core.summary import ReliabilityBin

Axis = tuple[float, float]  # its lower and its upper end
_SHARE: Axis = (0.0, 1.0)
WIDTH, HEIGHT = 300, 190
LEFT, RIGHT, TOP, BOTTOM = 38, 12, 12, 30


@dataclass(frozen=True)
class CurveLine:
    """One curve over severities from 0; controls are drawn thin, dashed and without their interval."""

    name: str
    values: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    control: bool
    colour: int  # index of the page's palette


@dataclass(frozen=True)
class SeverityCurves:
    """One metric under one category of change: a curve per model, the ends of the axis, and the reliability level."""

    lines: tuple[CurveLine, ...]
    metric: str
    title: str
    category: str
    axis: Axis
    least: float | None


def curve_chart(lines: Sequence[CurveLine], axis: Axis, label: str, least: float | None = None) -> str:
    """Return the SVG of curves over severity; `least` draws the reliability level."""
    span = max((len(line.values) for line in lines), default=5) - 1
    parts = [_axes([f"{severity}" for severity in range(span + 1)], axis, "severity")]
    if least is not None:
        y = _y(least, axis)
        parts.append(f'<line class="least" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    parts += [_curve(line, span, axis) for line in sorted(lines, key=lambda line: not line.control)]
    return _svg(parts, label)


def reliability_chart(bins: Sequence[ReliabilityBin], label: str) -> str:
    """Return the SVG of a reliability diagram; on the diagonal the model is calibrated."""
    most = max((b.trials for b in bins), default=1)
    parts = [_axes([f"{x / 4:g}" for x in range(5)], _SHARE, "confidence")]
    parts.append(f'<path class="even" d="M{_x(0, 1):.1f} {_y(0, _SHARE):.1f}L{_x(1, 1):.1f} {_y(1, _SHARE):.1f}"/>')
    dots = "".join(
        f'<circle cx="{_x(b.confidence, 1):.1f}" cy="{_y(b.accuracy, _SHARE):.1f}" '
        f'r="{2 + 5 * math.sqrt(b.trials / most):.1f}">'
        f"<title>confidence {b.confidence:.2f}, accuracy {b.accuracy:.2f}, {b.trials} trials</title></circle>"
        for b in bins
    )
    parts.append(f'<g class="curve" style="--c:var(--p0)">{dots}</g>')
    return _svg(parts, label)


def _svg(parts: Sequence[str], label: str) -> str:
    body = "".join(parts)
    return f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">{body}</svg>'


def _axes(names: Sequence[str], axis: Axis, title: str) -> str:
    ticks = []
    for step in range(5):
        value = axis[0] + (axis[1] - axis[0]) * step / 4
        y = _y(value, axis)
        ticks.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        ticks.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 3:.1f}" text-anchor="end">{value:.2g}</text>')
    for place, name in enumerate(names):
        x = _x(place, len(names) - 1)
        ticks.append(f'<text class="tick" x="{x:.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{name}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    ticks.append(f'<text class="tick" x="{middle:.1f}" y="{HEIGHT - 3}" text-anchor="middle">{title}</text>')
    return "".join(ticks)


def _curve(line: CurveLine, span: int, axis: Axis) -> str:
    """Return a curve that breaks where a value is missing, over its interval."""
    style = f'class="curve{" control" if line.control else ""}" style="--c:var(--p{line.colour})"'
    points = [(_x(s, span), _y(v, axis), s, v) for s, v in enumerate(line.values) if not math.isnan(v)]
    path, previous = "", None
    for x, y, severity, _ in points:
        path += f"{'L' if previous is not None and severity == previous + 1 else 'M'}{x:.1f} {y:.1f}"
        previous = severity
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{2 if line.control else 3}">'
        f"<title>{escape(line.name)}, severity {s}: {v:.3f}</title></circle>"
        for x, y, s, v in points
    )
    band = "" if line.control else _band(line, span, axis)
    return f'<g {style} data-model="{escape(line.name)}">{band}<path class="line" d="{path or "M0 0"}"/>{dots}</g>'


def _band(line: CurveLine, span: int, axis: Axis) -> str:
    ends = [(s, low, high) for s, (low, high) in enumerate(zip(line.lows, line.highs)) if not math.isnan(low + high)]
    if len(ends) < 2:
        return ""
    there = [f"{_x(s, span):.1f} {_y(high, axis):.1f}" for s, _, high in ends]
    back = [f"{_x(s, span):.1f} {_y(low, axis):.1f}" for s, low, _ in reversed(ends)]
    return f'<path class="band" d="M{"L".join(there + back)}Z"/>'


def _x(place: float, span: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (place / max(span, 1))


def _y(value: float, axis: Axis) -> float:
    share = (value - axis[0]) / (axis[1] - axis[0])
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(max(share, 0), 1))
