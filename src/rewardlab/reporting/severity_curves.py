"""Which curves a report draws over severity, calibration among them."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from rewardlab.core.summary import Measurement, PairedReference, Summary
from rewardlab.core.trial import CLEAN, SEVERITIES
from rewardlab.metrics import metrics_shown
from rewardlab.metrics.contract import Eligibility, Metric
from rewardlab.reporting.svg_charts import SAME, Line, SeverityCurves, curve_chart

KEPT = "expectation_kept"
_NEEDS: dict[Eligibility, str] = {
    "level": "a true level after the change",
    "success": "a true success or failure after the change",
    "clean score": "an expectation and a score of the untouched episode",
    "unchanged": "a label that the change keeps",
}


def curve_metrics(summary: Summary) -> list[Metric]:
    """Return the metrics that are drawn over severity, first the one that the reliability level is about.

    Where changes set new labels, accuracy depends on their share, so the expectations kept come first.
    """
    lead = KEPT if summary.relabelled else ""
    shown = metrics_with_values(summary, metrics_shown(lambda display: display.curve), summary.categories)
    return sorted(shown, key=lambda metric: (metric.name != lead, not metric.display.reliability_level))


def severity_curves(summary: Summary) -> list[SeverityCurves]:
    """Return the curves of every metric that is drawn over severity, in every category."""
    return [curves for metric in curve_metrics(summary) for curves in _curves_by_category(summary, metric)]


def curve_figures(summary: Summary) -> list[tuple[str, str, list[tuple[str, str, str]]]]:
    """Return per metric its name, its title and, per category, a drawing or the reason why there is none."""
    figures = []
    for metric in curve_metrics(summary):
        drawings = [
            (c.category, "" if c.empty else curve_chart(c, f"{c.title} under {c.category} change"), c.empty)
            for c in _curves_by_category(summary, metric)
        ]
        figures.append((metric.name, heading(metric), drawings))
    return figures


def heading(metric: Metric) -> str:
    """Return what stands above the figures of a metric."""
    return metric.title[0].upper() + metric.title[1:]


def metrics_with_values(summary: Summary, metrics: Sequence[Metric], groups: Collection[str]) -> list[Metric]:
    """Return the metrics that have a value in one of these groups; all of them where labels are there, but no value."""
    found = {row.metric for row in summary.measurements if row.group in groups and row.value is not None}
    return [metric for metric in metrics if metric.name in found] or (list(metrics) if summary.labelled else [])


def why_empty(rows: Iterable[Measurement], metric: Metric) -> str:
    """Return why these numbers are all missing; nothing where one of them is there."""
    found = list(rows)
    if any(row.value is not None for row in found):
        return ""
    asked = sum(row.asked for row in found)
    if asked:
        return f"No value: none of {asked:,} trials has an answer to measure."
    return f"No value: no trial here has {_NEEDS.get(metric.eligibility, 'what it is measured on')}."


def _curves_by_category(summary: Summary, metric: Metric) -> list[SeverityCurves]:
    changed = [(model, severity) for model in summary.models for severity in summary.severities if severity]
    return [
        SeverityCurves(
            metric=metric.name,
            title=heading(metric),
            category=category,
            lines=tuple(_line(summary, model, category, metric.name) for model in summary.models),
            axis=metric.display.axis,
            least=summary.accuracy_threshold if metric.display.reliability_level else None,
            severities=summary.severities,
            constant=_best_constant(summary, category, metric.name),
            empty=why_empty((summary.measurement(m, category, s, metric.name) for m, s in changed), metric),
        )
        for category in summary.categories
    ]


def _line(summary: Summary, model: str, category: str, metric: str) -> Line:
    rows = [summary.measurement(model, category, severity, metric) for severity in SEVERITIES]
    held = [summary.paired_reference_of(model, category, severity, metric) for severity in SEVERITIES]
    clean = _numbers(each.clean if _as_drawn(each, row) else None for each, row in zip(held, rows, strict=True))
    return replace(_of_rows(summary, model, rows), control=model not in summary.evaluated, clean=clean)


def _as_drawn(held: PairedReference, row: Measurement) -> bool:
    """Tell whether the point of the line is the value that the clean one can be compared with, as far as is seen."""
    return held.changed is not None and row.value is not None and abs(held.changed - row.value) <= SAME


def _of_rows(summary: Summary, model: str, rows: Sequence[Measurement]) -> Line:
    """Return the line of a model through one measurement per severity, in the band of their intervals."""
    y, low, high = (_numbers(column) for column in zip(*((r.value, r.low, r.high) for r in rows), strict=True))
    return Line(model, tuple(map(float, SEVERITIES)), y, low, high, summary.models.index(model))


def _best_constant(summary: Summary, category: str, metric: str) -> tuple[float, ...]:
    """Return what the best constant reaches at each severity; nothing where no change sets new labels."""
    first = summary.models[0]
    if category not in summary.relabelled:
        return ()
    clean = summary.paired_reference_of(first, "clean", 0, metric)
    return _numbers(
        (summary.paired_reference_of(first, category, severity, metric) if severity else clean).blind
        for severity in SEVERITIES
    )


MEASURED = {"ordinal_ece": "Ordinal ECE", "brier_score": "Brier score"}
_AXES = (0.25, 0.5, 1.0, 2.0)  # upper ends, of which the first that holds everything is taken, or the last


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
    """Return at which severities a model is miscalibrated beyond chance; nothing if it has no probabilities."""
    found = [c for c in summary.calibration_nulls if c.model == model and c.metric == "ordinal_ece"]
    if not found:
        return ""
    off = [CLEAN if c.category == CLEAN else f"{c.category} {c.severity}" for c in found if c.miscalibrated]
    if not off:
        return f"Its probabilities are not miscalibrated beyond chance in any of {len(found)} conditions."
    return f"Its probabilities are miscalibrated beyond chance in {len(off)} of {len(found)}: {', '.join(off)}."


def _curves(summary: Summary, model: str, category: str, metric: str) -> SeverityCurves:
    found = [summary.calibration_null(model, category if s else CLEAN, s, metric) for s in SEVERITIES]
    rows = [summary.measurement(model, category, s, metric) for s in SEVERITIES]
    line = _of_rows(summary, model, rows)
    null_lows, null_highs = _numbers([c.null_low for c in found]), _numbers([c.null_high for c in found])
    most = max((x for x in (*line.y, *line.high, *null_highs) if not math.isnan(x)), default=0.0)
    return SeverityCurves(
        lines=(line,),
        metric=metric,
        title=MEASURED[metric],
        category=category,
        axis=(0.0, next((end for end in _AXES if most <= end), _AXES[-1])),
        least=None,
        severities=summary.severities,
        null=(null_lows, null_highs),
    )


def _numbers(column: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(math.nan if value is None else value for value in column)
