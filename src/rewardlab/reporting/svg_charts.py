"""The one chart module: lines with bands, points and reliability diagrams as SVG, over one `Axes`.

Colours are those of the page: its style sheet has a rule for each class here, and the palette --p0 to --p7.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import compress

from rewardlab.core.summary import ReliabilityBin

PALETTE = 8
_HIGHEST_SEVERITY = 4.0
_LABEL_GAP = 11.0  # between the names of lines
_LABEL_ROOM = 15  # characters of a name beside its line
# Shapes of dots as corners around the centre; the first is a circle.
_SHAPES: tuple[tuple[tuple[float, float], ...], ...] = (
    (),
    ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    ((0, -1.2), (1.1, 0.9), (-1.1, 0.9)),
    ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    ((0, 1.2), (1.1, -0.9), (-1.1, -0.9)),
    ((-1.3, -0.45), (1.3, -0.45), (1.3, 0.45), (-1.3, 0.45)),
    ((-0.45, -1.3), (0.45, -1.3), (0.45, 1.3), (-0.45, 1.3)),
)
_DASHES = ("6 3", "2 3", "9 3 2 3", "4 2", "12 4", "1 3", "6 2 2 2 2 2")
SAME = 0.005  # values of a chart that differ by no more than this look the same


@dataclass(frozen=True)
class Frame:
    """The size of a drawing, its margins, the ticks of its axes and the radius of its dots; 0 draws none."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    x_ticks: int
    y_ticks: int
    dot: float


MEDIUM = Frame(300, 190, 38, 12, 12, 30, x_ticks=5, y_ticks=5, dot=3.0)
LABELLED = Frame(380, 220, 34, 112, 10, 30, x_ticks=5, y_ticks=5, dot=3.4)  # with names at the ends of the lines
SMALL = Frame(220, 120, 34, 8, 8, 20, x_ticks=0, y_ticks=2, dot=0.0)
WIDE = Frame(420, 250, 44, 10, 10, 36, x_ticks=3, y_ticks=5, dot=2.4)


@dataclass(frozen=True)
class Axes:
    """The titles of both axes, how far they reach, and the frame that they are drawn in."""

    x: str = ""
    y: str = ""
    left: float = 0.0
    right: float = 1.0
    bottom: float = 0.0
    top: float = 1.0
    frame: Frame = WIDE

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point lies in the drawing; beyond an axis it lies at its end."""
        frame = self.frame
        across = (x - self.left) / ((self.right - self.left) or 1.0)
        up = (y - self.bottom) / ((self.top - self.bottom) or 1.0)
        return (
            frame.left + (frame.width - frame.left - frame.right) * min(max(across, 0.0), 1.0),
            frame.top + (frame.height - frame.top - frame.bottom) * (1 - min(max(up, 0.0), 1.0)),
        )

    def path(self, x: Sequence[float], y: Sequence[float]) -> str:
        """Return the path through these points; it breaks where a value is nan."""
        path, joined = "", False
        for place, value in zip(x, y, strict=True):
            if math.isfinite(value):
                path += "{}{:.1f} {:.1f}".format("L" if joined else "M", *self.place(place, value))
            joined = math.isfinite(value)
        return path or "M0 0"

    def area(self, x: Sequence[float], low: Sequence[float], high: Sequence[float]) -> str:
        """Return the closed path around a band; empty where fewer than two of its places are known."""
        known = [ends for ends in zip(x, low, high, strict=True) if math.isfinite(ends[1] + ends[2])]
        if len(known) < 2:
            return ""
        around = [(x, top) for x, _, top in known] + [(x, bottom) for x, bottom, _ in reversed(known)]
        return f"{self.path(*zip(*around, strict=True))}Z"

    def circle(self, x: float, y: float, radius: float, title: str, kind: str = "") -> str:
        """Return a dot that shows its title when pointed at."""
        across, down = self.place(x, y)
        named = f' class="{kind}"' if kind else ""
        return (
            f'<circle{named} cx="{across:.1f}" cy="{down:.1f}" r="{radius:.1f}"><title>{escape(title)}</title></circle>'
        )


@dataclass(frozen=True)
class Line:
    """A line through points, nan where a value is missing, with the band of its interval where there is one.

    Its index gives the colour, the shape of its dots and, for a control, which is thin, its dashes.
    `clean` marks, at each point, the clean value of the same episodes.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    colour: int = 0  # index of the line; of the page's palette, modulo its length
    control: bool = False
    clean: tuple[float, ...] = ()


@dataclass(frozen=True)
class Point:
    """A point of a scatter plot with its name."""

    name: str
    x: float
    y: float
    colour: int = 0


@dataclass(frozen=True)
class TitledChart:
    """A chart as SVG with its title, for a page that shows several side by side."""

    title: str
    svg: str


@dataclass(frozen=True)
class SeverityCurves:
    """One metric under one category of change: a line per model over severity, and the ends of the vertical axis.

    `least` is the accuracy threshold. Where a change sets new labels, `constant` is what the best constant reaches on
    the same trials. `null` holds the lower and upper ends of what a calibrated model shows. `empty` says why no value
    is there.
    """

    lines: tuple[Line, ...]
    metric: str
    title: str
    category: str
    axis: tuple[float, float]
    least: float | None
    severities: tuple[int, ...] = (0, 1, 2, 3, 4)  # those that were measured
    constant: tuple[float, ...] = ()
    null: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    empty: str = ""


def line_chart(
    lines: Sequence[Line], axes: Axes, label: str, under: Iterable[str] = (), over: Iterable[str] = ()
) -> str:
    """Return the SVG of lines over their bands; `under` is drawn beneath them, `over` above."""
    ordered = sorted(lines, key=lambda line: not line.control)
    areas = [(line.colour, axes.area(line.x, line.low, line.high)) for line in ordered if line.low]
    bands = [_group(colour, f'<path class="band" d="{area}"/>') for colour, area in areas if area]
    return _svg([_grid(axes), *under, *bands, *(_line(line, axes) for line in ordered), *over], axes, label)


def point_chart(points: Sequence[Point], axes: Axes, label: str) -> str:
    """Return the SVG of a scatter plot."""
    dots = (_group(p.colour, axes.circle(p.x, p.y, 5, _value_title(p.name, p.x, p.y, axes))) for p in points)
    return _svg([_grid(axes), *dots], axes, label)


def curve_chart(curves: SeverityCurves, label: str) -> str:
    """Return the SVG of curves over severity, with the accuracy threshold and the best constant where there is one.

    Several lines have their names at their ends.
    """
    low, high = curves.axis
    frame = LABELLED if len(curves.lines) > 1 else MEDIUM
    axes = Axes("severity", right=_HIGHEST_SEVERITY, bottom=low, top=high, frame=frame)
    under = []
    if curves.least is not None:
        d = axes.path((0, axes.right), (curves.least, curves.least))
        under.append(f'<path class="least" d="{d}"/>')
    if curves.constant:
        measured = [severity for severity in curves.severities if severity < len(curves.constant)]
        d = axes.path(measured, [curves.constant[severity] for severity in measured])
        under.append(f'<path class="constant" d="{d}"><title>best constant on the same trials</title></path>')
    if band := axes.area(range(len(curves.null[0])), *curves.null):
        under.append(f'<path class="null" d="{band}"><title>range of a calibrated model</title></path>')
    lines = [_measured(line, curves.severities) for line in curves.lines]
    return line_chart(lines, axes, label, under, _end_labels(lines, axes) if len(lines) > 1 else ())


def _end_labels(lines: Sequence[Line], axes: Axes) -> list[str]:
    """Return the names of lines beside their last points, moved apart where they would overlap."""
    frame, found = axes.frame, []
    for line in lines:
        points = [(x, y) for x, y in zip(line.x, line.y, strict=True) if math.isfinite(y)]
        if points:
            found.append((*axes.place(*points[-1]), line))
    found.sort(key=lambda each: (each[1], each[2].control))
    bottom = frame.height - frame.bottom + 4
    gap = min(_LABEL_GAP, (bottom - frame.top) / max(len(found) - 1, 1))
    downs: list[float] = []
    for _, down, _ in found:
        downs.append(max(down, downs[-1] + gap) if downs else down)
    for place in range(len(downs) - 1, -1, -1):  # what was pushed below the axis moves up again
        downs[place] = min(downs[place], bottom - gap * (len(downs) - 1 - place))
    edge = frame.width - frame.right
    return [
        _group(
            line.colour,
            f'<path class="lead" d="M{across + 4:.1f} {down:.1f}L{edge + 8} {at:.1f}"/>'
            f"{_mark(line.colour, edge + 14, at, 3.0)}"
            f'<text class="name" x="{edge + 21}" y="{at + 3.3:.1f}">{escape(_cut(line.name))}</text>',
            _kind(line),
        )
        for (across, down, line), at in zip(found, downs, strict=True)
    ]


def legend_mark(index: int, control: bool) -> str:
    """Return the line and the dot of a model as a small SVG, for a legend."""
    line = f'<path class="line"{_dashes(index, control)} d="M0 6L28 6"/>{_mark(index, 14, 6, 3.4)}'
    group = _group(index, line, "curve control" if control else "curve")
    return f'<svg class="key" viewBox="0 0 28 12" aria-hidden="true">{group}</svg>'


def _cut(name: str) -> str:
    return name if len(name) <= _LABEL_ROOM else f"{name[: _LABEL_ROOM - 1]}…"


def _kind(line: Line) -> str:
    return "curve control" if line.control else "curve"


def _dashes(index: int, control: bool) -> str:
    return f' style="stroke-dasharray:{_DASHES[index % len(_DASHES)]}"' if control else ""


def _mark(index: int, x: float, y: float, radius: float, title: str = "") -> str:
    """Return the dot of a line at a place of the drawing; lines next to each other differ in its shape."""
    named = f"<title>{escape(title)}</title>" if title else ""
    outline = _SHAPES[index % len(_SHAPES)]
    if not outline:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}">{named}</circle>'
    corners = "L".join(f"{x + dx * radius:.1f} {y + dy * radius:.1f}" for dx, dy in outline)
    return f'<path class="dot" d="M{corners}Z">{named}</path>'


def reliability_chart(bins: Sequence[ReliabilityBin], label: str) -> str:
    """Return the SVG of a reliability diagram; on the diagonal the model is calibrated."""
    axes, most = Axes("confidence", frame=MEDIUM), max((b.trials for b in bins), default=1)
    dots = "".join(
        axes.circle(
            b.confidence,
            b.accuracy,
            2 + 5 * math.sqrt(b.trials / most),
            f"confidence {b.confidence:.2f}, accuracy {b.accuracy:.2f}, {b.trials} trials",
        )
        for b in bins
    )
    diagonal = f'<path class="even" d="{axes.path((0, 1), (0, 1))}"/>'
    return _svg([_grid(axes), diagonal, _group(0, dots)], axes, label)


def _measured(line: Line, severities: Sequence[int]) -> Line:
    """Return the points at severities that were measured, which the line joins; controls without their interval."""
    kept = [x in severities for x in line.x]
    x, y, low, high, clean = (tuple(compress(c, kept)) for c in (line.x, line.y, line.low, line.high, line.clean))
    known = replace(line, x=x, y=y, low=low, high=high, clean=clean)
    return replace(known, low=(), high=(), clean=()) if line.control else known


def _svg(parts: Iterable[str], axes: Axes, label: str) -> str:
    box = f"0 0 {axes.frame.width} {axes.frame.height}"
    return f'<svg class="chart" viewBox="{box}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'


def _grid(axes: Axes) -> str:
    frame, parts = axes.frame, []
    for value in _ticks(axes.bottom, axes.top, frame.y_ticks):
        y = axes.place(axes.left, value)[1]
        parts.append(
            f'<line class="grid" x1="{frame.left}" x2="{frame.width - frame.right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(_text(frame.left - 5, y + 3, _number(value), "end"))
    ticks = _ticks(axes.left, axes.right, frame.x_ticks)
    for value in ticks:
        text = _number(value)
        anchor = "middle" if len(text) < 4 else {ticks[0]: "start", ticks[-1]: "end"}.get(value, "middle")
        parts.append(_text(axes.place(value, axes.bottom)[0], frame.height - frame.bottom + 13, text, anchor))
    middle, centre = (frame.left + frame.width - frame.right) / 2, (frame.top + frame.height - frame.bottom) / 2
    if axes.x:
        parts.append(_text(middle, frame.height - 5, axes.x, "middle"))
    if axes.y:
        parts.append(_text(11, centre, axes.y, "middle", f' transform="rotate(-90 11 {centre:.1f})"'))
    return "".join(parts)


def _ticks(start: float, end: float, count: int) -> list[float]:
    return [start + (end - start) * step / (count - 1) for step in range(count)]


def _text(x: float, y: float, text: str, anchor: str, turned: str = "") -> str:
    return f'<text class="tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turned}>{escape(text)}</text>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.3g}"


def _value_title(name: str, x: float, y: float, axes: Axes) -> str:
    return f"{name}: {y:.3f} at {axes.x} {_number(x)}"


def _group(colour: int, content: str, kind: str = "curve") -> str:
    return f'<g class="{kind}" style="--c:var(--p{colour % PALETTE})">{content}</g>'


def _line(line: Line, axes: Axes) -> str:
    """Return the marks of clean values, the line, and a dot at each of its points."""
    points = [(x, y) for x, y in zip(line.x, line.y, strict=True) if math.isfinite(y)]
    radius = axes.frame.dot * (0.8 if line.control else 1)
    dots = (
        _mark(line.colour, *axes.place(x, y), radius, _value_title(line.name, x, y, axes)) for x, y in points if radius
    )
    d, dashes = axes.path(line.x, line.y), _dashes(line.colour, line.control)
    path = f'<path class="line"{dashes} d="{d}"><title>{escape(line.name)}</title></path>'
    marks = (
        axes.circle(x, y, 4, f"{line.name}, the episodes of {axes.x} {_number(x)} when clean: {y:.3f}", "same")
        for x, y in zip(line.x, line.clean, strict=False)  # there may be none
        if abs(y - line.y[0]) > SAME
    )
    return _group(line.colour, "".join([*marks, path, *dots]), _kind(line))
