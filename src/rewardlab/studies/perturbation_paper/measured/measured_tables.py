"""The study as files of numbers: the paper's table with its own numbers beside ours, every metric, and thresholds."""

from collections.abc import Iterable, Iterator, Sequence

from rewardlab.analysis.findings import severity_thresholds
from rewardlab.analysis.format import format_coverage, format_interval, format_number, format_threshold, markdown_text
from rewardlab.core.csv_export import csv_text
from rewardlab.core.summary import Measurement
from rewardlab.core.trial import CLEAN, SEVERITIES
from rewardlab.metrics import METRICS
from rewardlab.metrics.calibration import null_quantiles
from rewardlab.metrics.condition_contrasts import ContrastEstimate
from rewardlab.metrics.eligibility import answered
from rewardlab.studies.perturbation_paper.measured.measured_condition_means import (
    ACCURACY,
    MeasuredStudy,
    groups_evenly,
    over_categories,
)
from rewardlab.studies.perturbation_paper.measured.paper_models_and_tasks import CATEGORIES, GROUPS, RELIABLE_AT, WORST
from rewardlab.studies.perturbation_paper.paper_results import STATED_THRESHOLD

_MORE_RELIABLE = (0.8, 0.85, 0.9)  # where most episodes are failures, a model that sees nothing reaches the paper's
_NUMBERS = ("value", "low", "high", "scored", "asked", "coverage")


def number_files(study: MeasuredStudy) -> dict[str, str]:
    """Return the tables by file name."""
    return {
        "table1.csv": _csv(("model", "plays", "category", *_NUMBERS, "paper"), _table_1(study)),
        "table1.md": table_1_page(study),
        "every.csv": _csv(("model", "category", "severity", "metric", "better", *_NUMBERS, "null"), _every(study)),
        "reliability.csv": _csv(
            ("model", "plays", "category", "level", "certified", "measured", "paper_fails_at"), _thresholds(study)
        ),
        "figure2.csv": _csv(("model", "severity", "tau", "low", "high", "clusters"), _figure_2(study)),
        "figure3.csv": _csv(("model", "group", "loss", "low", "high", "clusters"), _figure_3(study)),
    }


def table_1_page(study: MeasuredStudy) -> str:
    """Return the paper's Table 1 in Markdown, with what is missing and how it was measured."""
    lines = [f"# Success accuracy at severity {WORST}", "", "Each cell: ours with its 95 % interval, the number that"]
    lines[-1] += " the paper states for the configuration that the model plays, and the cells scored of those asked."
    lines += ["", f"| model | plays | {' | '.join(CATEGORIES)} |", "|---" * (len(CATEGORIES) + 2) + "|"]
    for model in study.summary.models:
        cells = [_cell(study, model, category) for category in CATEGORIES]
        lines.append(f"| {markdown_text(model)} | {study.role(model) or '-'} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *_remarks(study)]) + "\n"


def _cell(study: MeasuredStudy, model: str, category: str) -> str:
    row = study.summary.measurement(model, category, WORST, ACCURACY)
    stated = study.stated(model, category)
    beside = [] if stated is None else [f"paper {stated:.3f}"]
    return "<br>".join([f"**{format_number(row.value, 3)}** {format_interval(row, 3)}", *beside, format_coverage(row)])


def _remarks(study: MeasuredStudy) -> Iterator[str]:
    """Yield what is to be said below the table, what is missing first."""
    for model in study.summary.models:
        rows = [(c, study.summary.measurement(model, c, WORST, ACCURACY)) for c in CATEGORIES]
        missing = [c for c, row in rows if row.value is None]
        if missing:
            yield f"- Not measured: {markdown_text(model)} under {', '.join(missing)} change at severity {WORST}."
    stated = [(m, c) for m in study.roles.values() for c in CATEGORIES if study.stated(m, c) is not None]
    found = [_holds(study, m, c) for m, c in stated]
    known = [inside for inside in found if inside is not None]
    yield f"- {sum(known)} of {len(known)} numbers of the paper lie inside our intervals."
    asked = [(c, study.summary.measurement(study.summary.judged[0], c, WORST, ACCURACY).asked) for c in CATEGORIES]
    yield (
        f"- Asked are the cells whose label is known after the change, of {study.record.episodes} episodes: "
        f"{', '.join(f'{category} {count}' for category, count in asked)}."
    )
    basis = study.summary.bootstrap
    rough = ", so few that intervals are rough" if basis.few_clusters else ""
    yield f"- Intervals: {basis.draws:,} draws of {basis.clusters} clusters{rough}; {basis.method}."


def _holds(study: MeasuredStudy, model: str, category: str) -> bool | None:
    row, stated = study.summary.measurement(model, category, WORST, ACCURACY), study.stated(model, category)
    if row.low is None or row.high is None or stated is None:
        return None
    return row.low <= stated <= row.high


def _table_1(study: MeasuredStudy) -> Iterator[Sequence[object]]:
    for model in study.summary.models:
        for category in CATEGORIES:
            row = study.summary.measurement(model, category, WORST, ACCURACY)
            yield model, study.role(model), category, *_numbers(row), study.stated(model, category)


def _every(study: MeasuredStudy) -> Iterator[Sequence[object]]:
    """Yield every row of the summary that is about a category; severity 0 is the clean episodes."""
    nulls = _nulls(study)
    for row in study.summary.measurements:
        if row.group in study.summary.categories:
            null = nulls.get((row.model, row.group if row.severity else CLEAN, row.severity), {}).get(row.metric)
            better = METRICS[row.metric].better
            yield row.model, row.group, row.severity, row.metric, better, *_numbers(row), null


def _nulls(study: MeasuredStudy) -> dict[tuple[str, str, int], dict[str, float]]:
    """Return what calibration errors a calibrated model would show: these have no interval of their own."""
    cells = study.trials.where(answered(study.trials, "probabilities"))
    severity, found = cells.number("severity"), {}
    for model in cells.codes("model")[1]:
        for category in (CLEAN, *study.summary.categories):
            for step in SEVERITIES:
                mine = cells.matches("model", model) & cells.matches("category", category) & (severity == step)
                if mine.any():
                    found[model, category, step] = null_quantiles(cells.where(mine), study.draws.seed)
    return found


def _thresholds(study: MeasuredStudy) -> Iterator[Sequence[object]]:
    """Yield thresholds at the paper's level, where its own stand beside them, and at levels that ask for more."""
    for level in (RELIABLE_AT, *_MORE_RELIABLE):
        found = {(t.model, t.category): t for t in severity_thresholds(study.trials, study.draws, level)}
        for model in study.summary.models:
            stated = STATED_THRESHOLD.get(study.role(model)) if level == RELIABLE_AT else None
            for category in CATEGORIES:
                threshold = found.get((model, category))
                reached = (threshold.certified, threshold.measured) if threshold else (None, None)
                words = [format_threshold(value).replace("-", "") for value in reached]
                yield model, study.role(model), category, level, *words, stated


def _figure_2(study: MeasuredStudy) -> Iterator[Sequence[object]]:
    for model in study.summary.judged:
        for severity in SEVERITIES:
            weights = over_categories(model, severity, study.categories)
            yield model, severity, *_estimate(study.tau.combined(weights))


def _figure_3(study: MeasuredStudy) -> Iterator[Sequence[object]]:
    for model in study.summary.judged:
        for group in GROUPS:
            weights = groups_evenly(model, (group,), study.categories)
            yield model, group, *_estimate(study.group_loss.combined(weights))


def _numbers(row: Measurement) -> tuple[object, ...]:
    share = row.scored / row.asked if row.asked else None
    return row.value, row.low, row.high, row.scored, row.asked, share


def _estimate(estimate: ContrastEstimate) -> tuple[object, ...]:
    return estimate.value, estimate.low, estimate.high, estimate.clusters


def _csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    return csv_text([columns, *([_plain(value) for value in row] for row in rows)])


def _plain(value: object) -> object:
    """Return a value as the files hold it: nothing where it is missing, numbers to six digits."""
    if value is None or value != value:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value
