"""The report page: one self-contained HTML file per run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from rewardlab.core.run import Run, writing
from rewardlab.core.trial import TrialTable
from rewardlab.perturb.contract import SEVERITIES
from rewardlab.report.gallery import gallery
from rewardlab.report.plots import Line, curve_chart
from rewardlab.report.summary import Summary, load_summary
from rewardlab.report.tables import HEADLINE, coverage, number, severity_reached

CURVES = (  # metric, title, top of the axis, whether the reliability level is drawn
    ("success_accuracy", "Success accuracy", 1.0, True),
    ("macro_mae", "MAE (levels)", 4.0, False),
    ("expectation_kept", "Expectations kept", 1.0, False),
)
MANY = 200  # failures listed on the page; the rest are in the Parquet file


@dataclass(frozen=True)
class HeatCell:
    """A cell of the heat map: the text, its coverage and how good it is from 0 to 1."""

    text: str
    coverage: str
    good: float | None


def write_page(run: Run) -> Path:
    """Write report.html into the run folder and return its path."""
    path = run.folder / "report.html"
    html = render_page(run)
    with writing(path) as partial:
        partial.write_text(html, encoding="utf-8")
    return path


def render_page(run: Run) -> str:
    """Return the page as text; every string from outside is escaped."""
    summary, trials, record = load_summary(run), run.trials(), run.record
    cards, no_cards = gallery(run, trials, summary.judged[0])
    environment = Environment(loader=PackageLoader("rewardlab.report", "."), autoescape=True, trim_blocks=True)
    return environment.get_template("page.html").render(
        record=record,
        summary=summary,
        title=f"{', '.join(summary.judged)} on {_settings(record)['data']}",
        legend=[_line(summary, model, "", "") for model in summary.models],
        headline=_headline(summary),
        curves=_curves(summary),
        heat=_heat(summary),
        reliability=_reliability(summary),
        cards=cards,
        no_cards=no_cards,
        outcomes=_outcomes(trials),
        number=number,
    )


def _settings(record: dict[str, object]) -> Any:
    return record["settings"]


def _headline(summary: Summary) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return per model the clean numbers, each with its coverage."""
    rows = []
    for model in summary.models:
        cells = [(summary.clean(model, metric), decimals) for metric, _, decimals in HEADLINE]
        rows.append((model, [(number(row.value, decimals), coverage(row)) for row, decimals in cells]))
    return rows


def _line(summary: Summary, model: str, category: str, metric: str) -> Line:
    values = tuple(summary.value(model, category, severity, metric) for severity in SEVERITIES) if metric else ()
    return Line(model, values, model not in summary.judged, summary.models.index(model) % 8)


def _curves(summary: Summary) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Return per metric its name, its title and one drawing per category."""
    figures = []
    for metric, title, top, has_least in CURVES:
        least = summary.reliable_at if has_least else None
        drawings = []
        for category in summary.categories:
            lines = [_line(summary, model, category, metric) for model in summary.models]
            drawings.append((category, curve_chart(lines, top, f"{title} under {category} change", least)))
        figures.append((metric, title, drawings))
    return figures


def _heat(summary: Summary) -> list[tuple[str, list[HeatCell]]]:
    """Return per model the success accuracy at severity 4 in each category."""
    rows = []
    for model in summary.models:
        found = [summary.row(model, category, SEVERITIES[-1], "success_accuracy") for category in summary.categories]
        rows.append((model, [HeatCell(number(row.value), coverage(row), row.value) for row in found]))
    return rows


def _reliability(summary: Summary) -> list[tuple[str, list[str]]]:
    found = summary.reliability
    return [
        (model, [severity_reached(found.get(model, {}).get(category)) for category in summary.categories])
        for model in summary.models
    ]


@dataclass(frozen=True)
class Outcome:
    """Cells without a score that share model, perturbation and reason."""

    status: str
    model: str
    perturbation: str
    reason: str
    cells: int


def _outcomes(trials: TrialTable) -> list[Outcome]:
    """Return failed and dropped cells, grouped, failures first and the most frequent first."""
    counts: dict[tuple[str, str, str, str], int] = {}
    for trial in trials.where(trials.text("status") != "scored").rows():
        key = (trial.status, trial.model, trial.perturbation, trial.reason or "")
        counts[key] = counts.get(key, 0) + 1
    ranked = sorted(counts.items(), key=lambda item: (item[0][0] != "failed", -item[1], item[0]))
    return [Outcome(*key, cells) for key, cells in ranked[:MANY]]
