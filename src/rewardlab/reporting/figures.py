"""Paper figures: style, frame, severity curves; the only file here with matplotlib at the top."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from textwrap import fill, wrap
from typing import Any, Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from rewardlab.core.storage import atomic_write
from rewardlab.reporting.svg_charts import SeverityCurves

COLUMN, PAGE = 3.5, 7.2  # inches: one column of a paper, and both
STYLE: dict[Any, Any] = {  # rcParams of every figure; update it to restyle them all
    "font.family": ["DejaVu Sans"],
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e7ec",
    "grid.linewidth": 0.6,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.labelspacing": 0.3,
    "legend.handlelength": 1.8,
    "legend.handletextpad": 0.6,
    "legend.columnspacing": 1.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "errorbar.capsize": 0,
    "savefig.dpi": 200,
    "svg.fonttype": "none",  # text stays text, to be searched and edited
    "svg.hashsalt": "rewardlab",  # the same figure is the same file
    "pdf.fonttype": 42,
    "text.parse_math": False,  # a $ in a name or a command is a $
}
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito: told apart by all eyes
GREY, RED = "#5b6470", "#c0392b"
_MARKERS = ("o", "s", "^", "v", "P", "X", "*")  # one more than colours, so that no pair of both comes twice soon
_METADATA: dict[str, dict[str, str | None]] = {  # nothing that differs from day to day
    ".svg": {"Date": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None},
}
_TITLE, _LEGEND, _NOTE = 9.0, 7.0, 6.0  # points of a letter's height
_LETTER, _BOLD = 0.55, 0.64  # of its height that a letter is wide, about
_HANDLE = 4.2  # letters' heights that a mark of the legend takes, with the space around it
_EDGE = 0.06  # inches between the frame and the edge of the figure


@dataclass(frozen=True)
class SeriesStyle:
    """The colour and the marker of one model or category in a figure."""

    colour: str
    marker: str

    def key(self, label: str, line: Literal["-", ""] = "-") -> Line2D:
        """Return the entry of the legend."""
        return Line2D([], [], color=self.colour, marker=self.marker, linestyle=line, label=label)


def series_styles(names: Iterable[str]) -> dict[str, SeriesStyle]:
    """Return a style for each name, in order; colour and marker both differ, so that print in grey can be read."""
    looks = zip(names, cycle(PALETTE), cycle(_MARKERS), strict=False)  # the looks do not end
    return {name: SeriesStyle(*look) for name, *look in looks}


def new_panels(width: float, height: float, count: int = 1) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure with panels side by side that share their vertical axis; the size, in inches, is theirs alone."""
    figure = Figure(figsize=(width, height))
    return figure, list(figure.subplots(1, count, sharey=True, squeeze=False)[0])


def frame(figure: Figure, title: str, keys: Sequence[Artist], notes: Sequence[str]) -> Figure:
    """Return the figure, grown by a title and a legend above its panels and notes below them."""
    width, height = (float(inches) for inches in figure.get_size_inches())
    heading = _wrapped([title], width, _TITLE)
    letters = int(((width - 2 * _EDGE) * 72 / _LEGEND - _HANDLE) / _LETTER)  # of a line of the legend
    for key in keys:
        label = str(key.get_label())
        key.set_label(label if len(label) <= letters else f"{label[: letters - 1]}…")
    columns = _legend_columns([str(key.get_label()) for key in keys], width)
    rows, lines = math.ceil(len(keys) / columns), _wrapped(notes, width, _NOTE)
    legend_top = _EDGE + len(heading) * _line_height(_TITLE) + 0.03
    above = legend_top + rows * _line_height(_LEGEND) + 0.06
    below = len(lines) * _line_height(_NOTE) + 2 * _EDGE if lines else _EDGE
    whole = above + height + below
    figure.set_size_inches(width, whole)
    figure.set_layout_engine(ConstrainedLayoutEngine(rect=(0, below / whole, 1, height / whole)))
    left = _EDGE / width
    figure.text(left, 1 - _EDGE / whole, "\n".join(heading), va="top", fontsize=_TITLE, weight="bold")
    if keys:
        place = (left, 1 - legend_top / whole)
        figure.legend(handles=keys, loc="upper left", bbox_to_anchor=place, ncols=columns, borderaxespad=0, borderpad=0)
    figure.text(left, (below - _EDGE) / whole, "\n".join(lines), va="top", fontsize=_NOTE, color=GREY)
    return figure


def _line_height(points: float) -> float:
    return 1.32 * points / 72


def _wrapped(texts: Sequence[str], width: float, points: float) -> list[str]:
    letters = int((width - 2 * _EDGE) * 72 / (points * (_BOLD if points == _TITLE else _LETTER)))
    return [line for text in texts for line in wrap(text, letters, break_on_hyphens=False)]


def _legend_columns(labels: Sequence[str], width: float) -> int:
    """Return the columns that need the fewest rows; a column is as wide as the widest of its labels."""
    for rows in range(1, len(labels)):
        columns = math.ceil(len(labels) / rows)
        widest = [max(len(label) for label in part) for part in np.array_split(labels, columns)]
        if _LEGEND * sum(_HANDLE + _LETTER * letters for letters in widest) / 72 <= width - 2 * _EDGE:
            return columns
    return 1


def severity_axis(axes: Axes, severities: Sequence[int]) -> None:
    """Mark the severities on the horizontal axis, with room beside the first and the last."""
    axes.set_xticks(list(severities))
    axes.set_xlim(severities[0] - 0.3, severities[-1] + 0.3)
    axes.set_xlabel("severity")


def draw_curve(
    axes: Axes, values: Sequence[float], ends: tuple[Sequence[float], Sequence[float]], style: SeriesStyle, label: str
) -> None:
    """Draw a curve over severities from 0 on, in the band of its intervals; both break where a number is nan."""
    severities = range(len(values))
    axes.fill_between(severities, *ends, color=style.colour, alpha=0.15, linewidth=0)
    axes.plot(severities, values, color=style.colour, marker=style.marker, label=label)


def draw_bars(axes: Axes, heights: Sequence[Sequence[float]], styles: Sequence[SeriesStyle]) -> list[list[float]]:
    """Draw one group of bars per place, one bar per style, and return the middle of each by style and place."""
    width = 0.8 / len(styles)
    middles = []
    for number, (values, style) in enumerate(zip(heights, styles, strict=True)):
        places = [place - 0.4 + width * (number + 0.5) for place in range(len(values))]
        axes.bar(places, list(values), 0.9 * width, color=style.colour, alpha=0.8)
        middles.append(places)
    axes.grid(visible=False, axis="x")
    axes.axhline(0, color=GREY, linewidth=0.8)
    return middles


@rc_context(STYLE)  # ticks are made when they are first laid out
def fix_layout(figure: Figure) -> Figure:
    """Return the figure laid out once and for all; with a layout engine, every save draws it twice."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the file's suffix (.svg, .png, .pdf); the same figure is the same file."""
    with atomic_write(path) as partial, rc_context(STYLE):
        figure.savefig(partial, format=path.suffix.removeprefix("."), metadata=_METADATA.get(path.suffix))


# The curves of a report as paper figures, one per metric and category.


@rc_context(STYLE)
def draw_severity_curves(curves: SeverityCurves) -> Figure:
    """Return one curve per model in its interval; controls are thin, dashed and without theirs."""
    styles = series_styles(line.name for line in curves.lines)
    figure, (axes,) = new_panels(COLUMN, 2.2)
    keys: list[Artist] = []
    if curves.least is not None:
        axes.axhline(curves.least, color=RED, linestyle=":", linewidth=0.9)
    if curves.constant:
        axes.plot(curves.constant, color=GREY, linestyle="-.", linewidth=0.9, label="best constant")
        keys.append(Line2D([], [], color=GREY, linestyle="-.", linewidth=0.9, label="best constant"))
    if curves.null[0]:
        axes.fill_between(range(len(curves.null[0])), *curves.null, color=GREY, alpha=0.3, linewidth=0)
        keys.append(Patch(color=GREY, alpha=0.3, label="a calibrated model"))
    for line in curves.lines:
        style = styles[line.name]
        if line.control:
            axes.plot(line.y, color=style.colour, linestyle="--", linewidth=0.9, label=line.name)
            keys.append(Line2D([], [], color=style.colour, linestyle="--", linewidth=0.9, label=line.name))
        else:
            draw_curve(axes, line.y, (line.low, line.high), style, line.name)
            keys.append(style.key(line.name))
            if line.clean:
                axes.plot(line.clean, "o", color=style.colour, fillstyle="none", markersize=4)
    severity_axis(axes, range(max(len(line.y) for line in curves.lines)))
    low, high = curves.axis
    edge = 0.02 * (high - low)  # so that a line along the edge is seen too
    axes.set_ylim(low - edge, high + edge)
    axes.set_ylabel(curves.title)
    notes = ["Bands: 95 % intervals. Dashed: controls."]
    if curves.least is not None:
        notes[0] += f" Dotted: {curves.least:g}, below which a model counts as unreliable."
    if any(line.clean for line in curves.lines):
        notes[0] += " Hollow: clean answers to the same episodes."
    if curves.empty:
        axes.text(0.5, 0.5, fill(curves.empty, 40), ha="center", va="center", transform=axes.transAxes)
    return frame(figure, f"{curves.title}, {curves.category} change", keys, notes)
