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
SPAN = 4  # the highest severity
_SAME = 0.005  # a clean value that differs by less than this from that of all episodes is not marked


@dataclass(frozen=True)
class CurveLine:
    """One curve over severities from 0; controls are drawn thin, dashed and without their interval."""

    name: str
    values: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    control: bool
    colour: int  # index of the page's palette
    clean: tuple[float, ...] = ()  # the clean answers to the very episodes that each value is about


@dataclass(frozen=True)
class SeverityCurves:
    """One metric under one category of change: a curve per model, the ends of the axis, and the reliability level.

    Where labels are made anew, `blind` is what the best constant gets on the same cells. `empty` says why there is no
    value at all.
    """

    lines: tuple[CurveLine, ...]
    metric: str
    title: str
    category: str
    axis: Axis
    least: float | None
    severities: tuple[int, ...] = (0, 1, 2, 3, 4)  # those that were measured
    blind: tuple[float, ...] = ()
    null: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())  # lower and upper ends of what chance alone shows
    empty: str = ""


def curve_chart(curves: SeverityCurves, label: str) -> str:
    """Return the SVG of curves over severity, with the reliability level and the best constant where there is one."""
    axis = curves.axis
    parts = [_axes([f"{severity}" for severity in range(SPAN + 1)], axis, "severity")]
    if curves.least is not None:
        y = _y(curves.least, axis)
        parts.append(f'<line class="least" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    if curves.blind:
        path = _path(curves.blind, curves.severities, axis)
        parts.append(f'<path class="blind" d="{path}"><title>best constant on the same cells</title></path>')
    parts.append(_null_band(curves))
    ordered = sorted(curves.lines, key=lambda line: not line.control)
    return _svg([*parts, *(_curve(line, curves.severities, axis) for line in ordered)], label)


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


def _curve(line: CurveLine, severities: Sequence[int], axis: Axis) -> str:
    """Return a curve that breaks where a value is missing, over its interval and beside its clean reference."""
    style = f'class="curve{" control" if line.control else ""}" style="--c:var(--p{line.colour})"'
    radius, name = 2 if line.control else 3, escape(line.name)
    dots = "".join(
        f'<circle cx="{_x(s, SPAN):.1f}" cy="{_y(v, axis):.1f}" r="{radius}">'
        f"<title>{name}, severity {s}: {v:.3f}</title></circle>"
        for s, v in enumerate(line.values)
        if not math.isnan(v)
    )
    under = "" if line.control else _band(line, SPAN, axis) + _clean_marks(line, axis)
    path = _path(line.values, severities, axis)
    return f'<g {style} data-model="{name}">{under}<path class="line" d="{path}"/>{dots}</g>'


def _path(values: Sequence[float], severities: Sequence[int], axis: Axis) -> str:
    """Return the path through the values of the severities that were measured; it breaks where one has none."""
    parts, joined = "", False
    for severity in (s for s in severities if s < len(values)):
        value = values[severity]
        if not math.isnan(value):
            parts += f"{'L' if joined else 'M'}{_x(severity, SPAN):.1f} {_y(value, axis):.1f}"
        joined = not math.isnan(value)
    return parts or "M0 0"


def _clean_marks(line: CurveLine, axis: Axis) -> str:
    """Return hollow marks where the clean answers to the same episodes are not those to all episodes."""
    return "".join(
        f'<circle class="same" cx="{_x(s, SPAN):.1f}" cy="{_y(v, axis):.1f}" r="4">'
        f"<title>{escape(line.name)}, the episodes of severity {s} when clean: {v:.3f}</title></circle>"
        for s, v in enumerate(line.clean)
        if abs(v - line.values[0]) > _SAME
    )


def _band(line: CurveLine, span: int, axis: Axis) -> str:
    path = _band_path(line.lows, line.highs, span, axis)
    return f'<path class="band" d="{path}"/>' if path else ""


def _null_band(curves: SeverityCurves) -> str:
    path = _band_path(*curves.null, SPAN, curves.axis)
    return f'<path class="null" d="{path}"><title>what a calibrated model shows</title></path>' if path else ""


def _band_path(lows: Sequence[float], highs: Sequence[float], span: int, axis: Axis) -> str:
    ends = [(s, low, high) for s, (low, high) in enumerate(zip(lows, highs)) if not math.isnan(low + high)]
    if len(ends) < 2:
        return ""
    there = [f"{_x(s, span):.1f} {_y(high, axis):.1f}" for s, _, high in ends]
    back = [f"{_x(s, span):.1f} {_y(low, axis):.1f}" for s, low, _ in reversed(ends)]
    return f"M{'L'.join(there + back)}Z"


def _x(place: float, span: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (place / max(span, 1))


def _y(value: float, axis: Axis) -> float:
    share = (value - axis[0]) / (axis[1] - axis[0])
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(max(share, 0), 1))
