"""What the page shows of a summary, ready to be laid out: tiles, thresholds, heat maps, curves, tables."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from rewardlab.analysis.format import format_coverage, format_interval, format_number, format_threshold
from rewardlab.core.errors import PlanError
from rewardlab.core.summary import CalibrationErrors, Measurement, Summary
from rewardlab.core.trial import TrialTable
from rewardlab.metrics import metrics_shown
from rewardlab.metrics.contract import Metric
from rewardlab.perturbations import choose_perturbations, is_in_catalogue
from rewardlab.perturbations.contract import SEVERITIES
from rewardlab.reporting.findings_text import findings
from rewardlab.reporting.svg_plots import CurveLine, SeverityCurves, curve_chart, reliability_chart

MOST_REASONS = 200  # reasons listed on the page; all are in the Parquet file


@dataclass(frozen=True)
class NumberCell:
    """A number as the page shows it: text, interval, coverage, and how good it is from 0 to 1."""

    text: str
    interval: str
    coverage: str
    value: float | None
    good: float | None


@dataclass(frozen=True)
class ModelView:
    """Everything the page says of one model."""

    name: str
    judged: bool
    colour: int
    findings: list[str]
    tiles: list[tuple[str, NumberCell]]
    thresholds: list[tuple[str, str, str, list[str]]]  # category, certified, measured, one state per severity
    heat: list[tuple[str, list[tuple[str, list[NumberCell]]]]]  # metric, then category, then one number per severity
    diagrams: list[tuple[str, CalibrationErrors]]  # drawing, numbers


@dataclass(frozen=True)
class PerturbationView:
    """A line of the table of perturbations."""

    name: str
    category: str
    summary: str
    model: str
    cells: list[NumberCell]
    dropped: int


@dataclass(frozen=True)
class UnscoredCells:
    """Cells without a score that share model, perturbation and reason."""

    status: str
    model: str
    perturbation: str
    reason: str
    cells: int


def model_views(summary: Summary) -> list[ModelView]:
    """Return the models in their order, judged ones first."""
    return [_model(summary, place, name) for place, name in enumerate(summary.models)]


def _model(summary: Summary, place: int, name: str) -> ModelView:
    return ModelView(
        name=name,
        judged=name in summary.judged,
        colour=place % 8,
        findings=findings(summary, name) if name in summary.judged else [],
        tiles=[(m.heading, _number(summary.clean(name, m.name), m)) for m in metrics_shown(lambda d: d.headline)],
        thresholds=[_thresholds(summary, name, category) for category in summary.categories],
        heat=[(m.name, _heat(summary, name, m)) for m in metrics_shown(lambda d: d.heat_map)],
        diagrams=_diagrams(summary, name),
    )


def _number(row: Measurement, metric: Metric) -> NumberCell:
    return NumberCell(
        format_number(row.value), format_interval(row), format_coverage(row), row.value, _goodness(row.value, metric)
    )


def _goodness(value: float | None, metric: Metric) -> float | None:
    """Return how good a number is from 0 to 1, for the colour of its cell."""
    if value is None:
        return None
    low, high = metric.display.axis
    share = min(max((value - low) / (high - low), 0.0), 1.0)
    return share if metric.better == "higher" else 1 - share


def _thresholds(summary: Summary, model: str, category: str) -> tuple[str, str, str, list[str]]:
    threshold = summary.threshold(model, category)
    certified, measured = threshold.certified, threshold.measured
    sure, seen = (-1 if last is None else last for last in (certified, measured))
    states = ["certified" if s <= sure else "measured" if s <= seen else "open" for s in SEVERITIES]
    return category, format_threshold(certified), format_threshold(measured), states


def _heat(summary: Summary, model: str, metric: Metric) -> list[tuple[str, list[NumberCell]]]:
    return [
        (category, [_number(summary.measurement(model, category, s, metric.name), metric) for s in SEVERITIES])
        for category in summary.categories
    ]


def _diagrams(summary: Summary, model: str) -> list[tuple[str, CalibrationErrors]]:
    mine = [errors for errors in summary.calibration if errors.model == model]
    return [(reliability_chart(errors.diagram, f"{model}, {errors.cells} cells"), errors) for errors in mine]


def curve_metrics() -> list[Metric]:
    """Return the metrics that are drawn over severity, first the one that the reliability level is about."""
    return sorted(metrics_shown(lambda d: d.curve), key=lambda metric: not metric.display.reliability_level)


def severity_curves(summary: Summary) -> list[SeverityCurves]:
    """Return the curves of every metric that is drawn over severity, in every category."""
    return [curves for metric in curve_metrics() for curves in _curves_by_category(summary, metric)]


def _curves_by_category(summary: Summary, metric: Metric) -> list[SeverityCurves]:
    return [
        SeverityCurves(
            metric=metric.name,
            title=_heading(metric),
            category=category,
            lines=tuple(_line(summary, model, category, metric.name) for model in summary.models),
            axis=metric.display.axis,
            least=summary.reliable_at if metric.display.reliability_level else None,
        )
        for category in summary.categories
    ]


def _heading(metric: Metric) -> str:
    return metric.title[0].upper() + metric.title[1:]


def curve_figures(summary: Summary) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Return per metric its name, its title and one drawing per category."""
    figures = []
    for metric in curve_metrics():
        drawings = [
            (c.category, curve_chart(c.lines, c.axis, f"{c.title} under {c.category} change", c.least))
            for c in _curves_by_category(summary, metric)
        ]
        figures.append((metric.name, _heading(metric), drawings))
    return figures


def _line(summary: Summary, model: str, category: str, metric: str) -> CurveLine:
    rows = [summary.measurement(model, category, severity, metric) for severity in SEVERITIES]
    values, lows, highs = (
        tuple(math.nan if value is None else value for value in column)
        for column in zip(*((row.value, row.low, row.high) for row in rows))
    )
    return CurveLine(model, values, lows, highs, model not in summary.judged, summary.models.index(model) % 8)


def perturbation_views(
    summary: Summary, trials: list[TrialTable], summaries: Mapping[str, str]
) -> list[PerturbationView]:
    """Return one line per judged model and perturbation, at the highest severity; `summaries` says what they do."""
    dropped, severity = _dropped(trials), summary.highest_severity
    categories = _categories(trials)
    metrics = metrics_shown(lambda display: display.perturbation_table)
    return [
        PerturbationView(
            name=name,
            category=categories.get(name, ""),
            summary=summaries.get(name, ""),
            model=model,
            cells=[_number(summary.measurement(model, name, severity, metric.name), metric) for metric in metrics],
            dropped=dropped.get(name, 0),
        )
        for model in summary.judged
        for name in summary.perturbations
    ]


def perturbation_summaries(names: Iterable[str], *, trust: bool) -> dict[str, str]:
    """Return what each perturbation of a plan does, by its name; one outside the package may no longer be there.

    Without `trust` the names are a stranger's: code outside the package is not imported, and stays without a summary.
    """
    found: dict[str, str] = {}
    for name in (name for name in names if trust or is_in_catalogue(name)):
        with suppress(PlanError):
            found |= {perturbation.name: perturbation.summary for perturbation in choose_perturbations((name,))}
    return found


def _categories(tables: list[TrialTable]) -> dict[str, str]:
    return {
        name: group for trials in tables for name, group in zip(trials.text("perturbation"), trials.text("category"))
    }


def _dropped(tables: list[TrialTable]) -> dict[str, int]:
    """Return the number of episodes and severities for which a perturbation has no meaning."""
    found: dict[str, int] = {}
    for trials in tables:
        cells = trials.where(trials.matches("status", "dropped"))
        for name, _, _ in set(zip(cells.text("perturbation"), cells.text("episode"), cells.number("severity"))):
            found[name] = found.get(name, 0) + 1
    return found


def unscored_cells(tables: list[TrialTable]) -> list[UnscoredCells]:
    """Return failed and dropped cells, grouped, failures first and the most frequent first."""
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for trials in tables:
        cells = trials.where(~trials.matches("status", "scored"))
        texts = (cells.text(column) for column in ("status", "model", "perturbation", "reason"))
        counts.update((status, model, name, reason or "") for status, model, name, reason in zip(*texts))
    ranked = sorted(counts.items(), key=lambda item: (item[0][0] != "failed", -item[1], item[0]))
    return [UnscoredCells(*key, cells) for key, cells in ranked[:MOST_REASONS]]
