"""Calibration under shift: ECE and Brier score over severity, each in the band of what a calibrated model shows."""

import math
from collections.abc import Mapping, Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rewardlab.analysis.figure_style import (
    COLUMN,
    STYLE,
    SeriesStyle,
    draw_curve,
    frame,
    new_panels,
    series_styles,
    severity_axis,
)
from rewardlab.core.summary import Summary
from rewardlab.core.trial import CLEAN, SEVERITIES

METRICS_DRAWN = {"ordinal_ece": "ordinal ECE", "brier_score": "Brier score"}
_NOTE = (
    "Bands: 95 % of what a perfectly calibrated model with the same probabilities shows; a curve above its band is off "
    "by more than chance explains."
)


@rc_context(STYLE)
def draw_calibration(summary: Summary, metric: str, labels: Mapping[str, str], notes: Sequence[str]) -> Figure:
    """Return one calibration error over severity, one panel per category; `labels` are the models to draw."""
    figure, panels = new_panels(max(COLUMN + 1, 1.8 * len(summary.categories)), 2.2, len(summary.categories))
    styles = series_styles(labels)
    for axes, category in zip(panels, summary.categories):
        for model, style in styles.items():
            _draw_model(axes, summary, (model, category, metric), style)
        severity_axis(axes, SEVERITIES)
        axes.set_title(category)
    panels[0].set_ylabel(METRICS_DRAWN[metric])
    keys = [styles[model].key(label) for model, label in labels.items()]
    return frame(figure, f"Calibration over severity: {METRICS_DRAWN[metric]}", keys, [_NOTE, *notes])


def _draw_model(axes: Axes, summary: Summary, place: tuple[str, str, str], style: SeriesStyle) -> None:
    model, category, metric = place
    found = [summary.calibration_null(model, category if s else CLEAN, s, metric) for s in SEVERITIES]
    values, lows, highs = (
        [math.nan if number is None else number for number in column]
        for column in zip(*((entry.value, entry.null_low, entry.null_high) for entry in found))
    )
    draw_curve(axes, values, (lows, highs), style, model)
