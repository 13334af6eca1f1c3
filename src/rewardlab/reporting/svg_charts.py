"""The one chart module: lines with bands, points, reliability diagram, over one `Axes`."""

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


# Small line charts as SVG, many of them side by side; colours come from the page's style sheet.

_CURVE_WIDTH, _CURVE_HEIGHT = 220, 120
_CURVE_LEFT, _CURVE_RIGHT, _CURVE_TOP, _CURVE_BOTTOM = 34, 8, 8, 20


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
    parts = [_chart_tick(low, low, high), _chart_tick(high, low, high)]
    parts += [_chart_line(line, (low, high), end) for line in lines]
    body = "".join(parts)
    box = f"0 0 {_CURVE_WIDTH} {_CURVE_HEIGHT}"
    return f'<svg class="chart" viewBox="{box}" role="img" aria-label="{escape(label)}">{body}</svg>'


def _range(values: Sequence[float | None]) -> tuple[float, float]:
    known = [value for value in values if value is not None and math.isfinite(value)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _chart_tick(value: float, low: float, high: float) -> str:
    y = _line_y(value, low, high)
    line = f'<line class="grid" x1="{_CURVE_LEFT}" x2="{_CURVE_WIDTH - _CURVE_RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return line + f'<text class="tick" x="{_CURVE_LEFT - 4}" y="{y + 3:.1f}" text-anchor="end">{value:.2g}</text>'


def _chart_line(line: ChartLine, axis: tuple[float, float], end: float) -> str:
    points, joined = "", False
    for x, y in zip(line.x, line.y):
        if y is not None and math.isfinite(y):
            points += f"{'L' if joined else 'M'}{_line_x(x, end):.1f} {_line_y(y, *axis):.1f}"
        joined = y is not None
    control = " control" if line.reference else ""
    style = f'class="curve{control}" style="--c:var(--p{line.colour})"'
    return f'<g {style}><path class="line" d="{points or "M0 0"}"><title>{escape(line.name)}</title></path></g>'


def _line_x(x: float, end: float) -> float:
    return _CURVE_LEFT + (_CURVE_WIDTH - _CURVE_LEFT - _CURVE_RIGHT) * x / end


def _line_y(y: float, low: float, high: float) -> float:
    share = (y - low) / (high - low)
    return _CURVE_TOP + (_CURVE_HEIGHT - _CURVE_TOP - _CURVE_BOTTOM) * (1 - min(max(share, 0.0), 1.0))


# Charts of a study of rewards and policies as SVG: lines with bands, and points; colours are the page's own.

_BAND_WIDTH, _BAND_HEIGHT = 420, 250
_BAND_LEFT, _BAND_RIGHT, _BAND_TOP, _BAND_BOTTOM = 44, 10, 10, 36
PALETTE = 8


@dataclass(frozen=True)
class BandLine:
    """A line with the band of its interval; no band where `low` is empty."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    colour: int = 0
    dashed: bool = False


@dataclass(frozen=True)
class ChartPoint:
    """A point with what a reader sees when he points at it."""

    name: str
    x: float
    y: float
    colour: int = 0


@dataclass(frozen=True)
class Axes:
    """What the axes are called and how far they reach; the vertical one is a share from 0 to 1 unless told."""

    x: str
    y: str
    left: float = 0.0
    right: float = 1.0
    bottom: float = 0.0
    top: float = 1.0

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point lies in the drawing."""
        across = (x - self.left) / ((self.right - self.left) or 1.0)
        up = (y - self.bottom) / ((self.top - self.bottom) or 1.0)
        return (
            _BAND_LEFT + (_BAND_WIDTH - _BAND_LEFT - _BAND_RIGHT) * min(max(across, 0.0), 1.0),
            _BAND_TOP + (_BAND_HEIGHT - _BAND_TOP - _BAND_BOTTOM) * (1 - min(max(up, 0.0), 1.0)),
        )


def band_chart(lines: Sequence[BandLine], axes: Axes, label: str) -> str:
    """Return the SVG of lines with their bands."""
    return _band_svg(
        [*_grid(axes), *(_band_band(line, axes) for line in lines), *(_band_line(line, axes) for line in lines)], label
    )


def point_chart(points: Sequence[ChartPoint], axes: Axes, label: str) -> str:
    """Return the SVG of points."""
    return _band_svg([*_grid(axes), *(_point(point, axes) for point in points)], label)


def _band_svg(parts: Sequence[str], label: str) -> str:
    body = "".join(parts)
    box = f"0 0 {_BAND_WIDTH} {_BAND_HEIGHT}"
    return f'<svg class="chart" viewBox="{box}" role="img" aria-label="{escape(label)}">{body}</svg>'


def _grid(axes: Axes) -> list[str]:
    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        value = axes.bottom + share * (axes.top - axes.bottom)
        y = axes.place(axes.left, value)[1]
        parts.append(
            f'<line class="grid" x1="{_BAND_LEFT}" x2="{_BAND_WIDTH - _BAND_RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(
            f'<text class="tick" x="{_BAND_LEFT - 5}" y="{y + 3:.1f}" text-anchor="end">{_band_tick(value)}</text>'
        )
    for share in (0.0, 0.5, 1.0):
        value = axes.left + share * (axes.right - axes.left)
        x, anchor = axes.place(value, axes.bottom)[0], ("start", "middle", "end")[round(2 * share)]
        y = _BAND_HEIGHT - _BAND_BOTTOM + 13
        parts.append(f'<text class="tick" x="{x:.1f}" y="{y}" text-anchor="{anchor}">{_band_tick(value)}</text>')
    middle = (_BAND_LEFT + _BAND_WIDTH - _BAND_RIGHT) / 2
    parts.append(f'<text class="tick" x="{middle}" y="{_BAND_HEIGHT - 6}" text-anchor="middle">{escape(axes.x)}</text>')
    turned = f'transform="rotate(-90 11 {_BAND_HEIGHT / 2 - 12})"'
    parts.append(
        f'<text class="tick" x="11" y="{_BAND_HEIGHT / 2 - 12}" text-anchor="middle" {turned}>{escape(axes.y)}</text>'
    )
    return parts


def _band_tick(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.3g}"


def _band_line(line: BandLine, axes: Axes) -> str:
    path = _series_path([axes.place(x, y) if math.isfinite(y) else None for x, y in zip(line.x, line.y)])
    control = " control" if line.dashed else ""
    marks = "".join(
        f'<circle cx="{axes.place(x, y)[0]:.1f}" cy="{axes.place(x, y)[1]:.1f}" r="2.4"><title>'
        f"{escape(line.name)}: {y:.2f} at {_band_tick(x)}</title></circle>"
        for x, y in zip(line.x, line.y)
        if math.isfinite(y)
    )
    style = f'class="curve{control}" style="--c:var(--p{line.colour % PALETTE})"'
    return f'<g {style}><path class="line" d="{path}"><title>{escape(line.name)}</title></path>{marks}</g>'


def _band_band(line: BandLine, axes: Axes) -> str:
    known = [(x, low, high) for x, low, high in zip(line.x, line.low, line.high) if math.isfinite(low + high)]
    if len(known) < 2:
        return ""
    around = [axes.place(x, high) for x, _, high in known] + [axes.place(x, low) for x, low, _ in reversed(known)]
    style = f'class="curve" style="--c:var(--p{line.colour % PALETTE})"'
    return f'<g {style}><path class="band" d="{_series_path(around)}Z"/></g>'


def _point(point: ChartPoint, axes: Axes) -> str:
    x, y = axes.place(point.x, point.y)
    title = f"{escape(point.name)}: {point.y:.2f} at {point.x:.2f}"
    style = f'class="curve" style="--c:var(--p{point.colour % PALETTE})"'
    return f'<g {style}><circle cx="{x:.1f}" cy="{y:.1f}" r="5"><title>{title}</title></circle></g>'


def _series_path(places: Sequence[tuple[float, float] | None]) -> str:
    path, joined = "", False
    for place in places:
        if place is not None:
            path += f"{'L' if joined else 'M'}{place[0]:.1f} {place[1]:.1f}"
        joined = place is not None
    return path or "M0 0"
