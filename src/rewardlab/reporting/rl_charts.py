"""Charts of a study of rewards and policies as SVG: lines with bands, and points; colours are the page's own."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 420, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 10, 10, 36
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
            _LEFT + (WIDTH - _LEFT - _RIGHT) * min(max(across, 0.0), 1.0),
            _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - min(max(up, 0.0), 1.0)),
        )


def band_chart(lines: Sequence[BandLine], axes: Axes, label: str) -> str:
    """Return the SVG of lines with their bands."""
    return _svg([*_grid(axes), *(_band(line, axes) for line in lines), *(_line(line, axes) for line in lines)], label)


def point_chart(points: Sequence[ChartPoint], axes: Axes, label: str) -> str:
    """Return the SVG of points."""
    return _svg([*_grid(axes), *(_point(point, axes) for point in points)], label)


def _svg(parts: Sequence[str], label: str) -> str:
    body = "".join(parts)
    return f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">{body}</svg>'


def _grid(axes: Axes) -> list[str]:
    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        value = axes.bottom + share * (axes.top - axes.bottom)
        y = axes.place(axes.left, value)[1]
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 5}" y="{y + 3:.1f}" text-anchor="end">{_tick(value)}</text>')
    for share in (0.0, 0.5, 1.0):
        value = axes.left + share * (axes.right - axes.left)
        x, anchor = axes.place(value, axes.bottom)[0], ("start", "middle", "end")[round(2 * share)]
        y = HEIGHT - _BOTTOM + 13
        parts.append(f'<text class="tick" x="{x:.1f}" y="{y}" text-anchor="{anchor}">{_tick(value)}</text>')
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(f'<text class="tick" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(axes.x)}</text>')
    turned = f'transform="rotate(-90 11 {HEIGHT / 2 - 12})"'
    parts.append(
        f'<text class="tick" x="11" y="{HEIGHT / 2 - 12}" text-anchor="middle" {turned}>{escape(axes.y)}</text>'
    )
    return parts


def _tick(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.3g}"


def _line(line: BandLine, axes: Axes) -> str:
    path = _path([axes.place(x, y) if math.isfinite(y) else None for x, y in zip(line.x, line.y)])
    control = " control" if line.dashed else ""
    marks = "".join(
        f'<circle cx="{axes.place(x, y)[0]:.1f}" cy="{axes.place(x, y)[1]:.1f}" r="2.4"><title>'
        f"{escape(line.name)}: {y:.2f} at {_tick(x)}</title></circle>"
        for x, y in zip(line.x, line.y)
        if math.isfinite(y)
    )
    style = f'class="curve{control}" style="--c:var(--p{line.colour % PALETTE})"'
    return f'<g {style}><path class="line" d="{path}"><title>{escape(line.name)}</title></path>{marks}</g>'


def _band(line: BandLine, axes: Axes) -> str:
    known = [(x, low, high) for x, low, high in zip(line.x, line.low, line.high) if math.isfinite(low + high)]
    if len(known) < 2:
        return ""
    around = [axes.place(x, high) for x, _, high in known] + [axes.place(x, low) for x, low, _ in reversed(known)]
    style = f'class="curve" style="--c:var(--p{line.colour % PALETTE})"'
    return f'<g {style}><path class="band" d="{_path(around)}Z"/></g>'


def _point(point: ChartPoint, axes: Axes) -> str:
    x, y = axes.place(point.x, point.y)
    title = f"{escape(point.name)}: {point.y:.2f} at {point.x:.2f}"
    style = f'class="curve" style="--c:var(--p{point.colour % PALETTE})"'
    return f'<g {style}><circle cx="{x:.1f}" cy="{y:.1f}" r="5"><title>{title}</title></circle></g>'


def _path(places: Sequence[tuple[float, float] | None]) -> str:
    path, joined = "", False
    for place in places:
        if place is not None:
            path += f"{'L' if joined else 'M'}{place[0]:.1f} {place[1]:.1f}"
        joined = place is not None
    return path or "M0 0"
