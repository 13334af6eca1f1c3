"""Calibration over severity: the error of a model's probabilities in the band of what a calibrated model shows."""

import math
from collections.abc import Iterable

from rewardlab.core.summary import CalibrationNull, Summary
from rewardlab.core.trial import CLEAN, SEVERITIES
from rewardlab.reporting.svg_plots import CurveLine, SeverityCurves, curve_chart

MEASURED = {"ordinal_ece": "Ordinal ECE", "brier_score": "Brier score"}
_AXES = (0.25, 0.5, 1.0, 2.0)  # upper ends, of which the first that holds everything is taken


def calibration_curves(summary: Summary, model: str) -> list[SeverityCurves]:
    """Return ECE and Brier score of a model over severity in every category; nothing where it has no probabilities."""
    mine = any(entry.model == model for entry in summary.calibration_nulls)
    places = [(metric, category) for metric in MEASURED for category in summary.categories]
    return [_curves(summary, model, category, metric) for metric, category in places] if mine else []


def calibration_figures(summary: Summary, model: str) -> list[tuple[str, str]]:
    """Return a heading and a drawing per metric and category."""
    return [
        (f"{c.title}, {c.category}", curve_chart(c, f"{c.title} of {model} under {c.category} change"))
        for c in calibration_curves(summary, model)
    ]


def calibration_sentence(summary: Summary, model: str) -> str:
    """Return at which severities a model's probabilities are off by more than chance explains; nothing without any."""
    found = [c for c in summary.calibration_nulls if c.model == model and c.metric == "ordinal_ece"]
    if not found:
        return ""
    off = [_place(entry) for entry in found if entry.miscalibrated]
    if not off:
        return f"Its probabilities are nowhere off by more than chance explains ({len(found)} conditions)."
    return f"Its probabilities are miscalibrated beyond chance in {len(off)} of {len(found)}: {', '.join(off)}."


def _place(entry: CalibrationNull) -> str:
    return CLEAN if entry.category == CLEAN else f"{entry.category} {entry.severity}"


def _curves(summary: Summary, model: str, category: str, metric: str) -> SeverityCurves:
    found = [summary.calibration_null(model, category if s else CLEAN, s, metric) for s in SEVERITIES]
    rows = [summary.measurement(model, category, s, metric) for s in SEVERITIES]
    values, lows, highs = (_numbers(column) for column in zip(*((r.value, r.low, r.high) for r in rows)))
    null_lows, null_highs = _numbers([c.null_low for c in found]), _numbers([c.null_high for c in found])
    most = max((x for x in (*values, *highs, *null_highs) if not math.isnan(x)), default=0.0)
    return SeverityCurves(
        lines=(CurveLine(model, values, lows, highs, control=False, colour=summary.models.index(model) % 8),),
        metric=metric,
        title=MEASURED[metric],
        category=category,
        axis=(0.0, next(end for end in _AXES if most <= end)),
        least=None,
        severities=summary.severities,
        null=(null_lows, null_highs),
    )


def _numbers(column: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(math.nan if value is None else value for value in column)
