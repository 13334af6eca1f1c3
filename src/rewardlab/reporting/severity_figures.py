"""The curves of a report as paper figures, one per metric and category."""

from textwrap import fill

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from rewardlab.analysis.figure_style import (
    COLUMN,
    GREY,
    RED,
    STYLE,
    draw_curve,
    frame,
    new_panels,
    series_styles,
    severity_axis,
)
from rewardlab.reporting.svg_plots import SeverityCurves


@rc_context(STYLE)
def draw_severity_curves(curves: SeverityCurves) -> Figure:
    """Return one curve per model in its interval; controls are thin, dashed and without theirs."""
    styles = series_styles(line.name for line in curves.lines)
    figure, (axes,) = new_panels(COLUMN, 2.2)
    keys: list[Artist] = []
    if curves.least is not None:
        axes.axhline(curves.least, color=RED, linestyle=":", linewidth=0.9)
    if curves.blind:
        axes.plot(curves.blind, color=GREY, linestyle="-.", linewidth=0.9, label="best constant")
        keys.append(Line2D([], [], color=GREY, linestyle="-.", linewidth=0.9, label="best constant"))
    if curves.null[0]:
        axes.fill_between(range(len(curves.null[0])), *curves.null, color=GREY, alpha=0.3, linewidth=0)
        keys.append(Patch(color=GREY, alpha=0.3, label="a calibrated model"))
    for line in curves.lines:
        style = styles[line.name]
        if line.control:
            axes.plot(line.values, color=style.colour, linestyle="--", linewidth=0.9, label=line.name)
            keys.append(Line2D([], [], color=style.colour, linestyle="--", linewidth=0.9, label=line.name))
        else:
            draw_curve(axes, line.values, (line.lows, line.highs), style, line.name)
            keys.append(style.key(line.name))
            if line.clean:
                axes.plot(line.clean, "o", color=style.colour, fillstyle="none", markersize=4)
    severity_axis(axes, range(max(len(line.values) for line in curves.lines)))
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
