"""Its tables, seen and unseen tasks apart."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, fields

import numpy as np

from rewardlab.core.storage import csv_text
from rewardlab.core.summary import CalibrationNull
from rewardlab.core.trial import CLEAN, SEVERITIES
from rewardlab.evaluation.display import format_number, format_threshold, markdown_text
from rewardlab.evaluation.findings import KINDS, REFERENCE, seen_or_unseen
from rewardlab.metrics import METRICS
from rewardlab.metrics.calibration import null_quantiles
from rewardlab.metrics.contract import answered
from rewardlab.metrics.estimates import clusters_of
from rewardlab.metrics.paired_differences import ConditionMeans, ContrastEstimate, condition_means
from rewardlab.metrics.robustness import BOTH_TAILS, severity_threshold
from rewardlab.studies.perturbation_paper.measured import ACCURACY, MeasuredStudy, at, only, over_categories
from rewardlab.studies.perturbation_paper.paper import CATEGORIES, GROUPS, RELIABLE_AT, STATED_THRESHOLD, WORST

COLUMNS = ("model", "tasks", "category", "severity", "value", "low", "high", "scored", REFERENCE)
Row = tuple[str, str, str, int, float, float, float, int, float]
RelabelledRow = tuple[str, str, int, float, float, float, int, float]


def seen_unseen_rows(study: MeasuredStudy) -> Iterator[Row]:
    """Yield accuracies over cells that keep their label, for models in no arm whose training tasks are known."""
    for model in (name for name in study.record.trained_tasks if name in study.models):
        means = _means(study, model)
        for kind in KINDS:
            for category in (CLEAN, *CATEGORIES):
                for severity in SEVERITIES[1:] if category != CLEAN else (0,):
                    here, blind = (only(name, kind, category, severity) for name in (model, REFERENCE))
                    if scored := means.count(here):
                        found, constant = means.combined(here), means.combined(blind).value
                        numbers = (found.value, found.low, found.high, scored, constant)
                        yield model, kind, category, severity, *numbers


def seen_unseen_page(study: MeasuredStudy, every: Sequence[Row]) -> Iterator[str]:
    """Yield the table in Markdown: clean and at the highest severity, with the constant on the same cells."""
    rows = [row for row in every if row[3] in (0, WORST)]
    if rows:
        yield from ("## Tasks that a model was trained on, and others", "")
        yield f"Success accuracy over cells that keep their label, clean and at severity {WORST}."
        yield from ("", f"| model | tasks | category | accuracy | {REFERENCE} there | cells |", "|---" * 6 + "|")
        for model, kind, category, _, value, low, high, scored, blind in rows:
            interval = f" [{low:.3f}, {high:.3f}]" if low == low else ""
            numbers = f"{format_number(value, 3)}{interval} | {format_number(blind, 3)} | {scored}"
            yield f"| {markdown_text(study.shown(model))} | {kind} | {category} | {numbers} |"
        yield ""


def _means(study: MeasuredStudy, model: str) -> ConditionMeans:
    mine = study.trials.matches("model", model) | study.trials.matches("model", REFERENCE)
    trials = study.trials.where(mine & study.keeps_label)
    kind = seen_or_unseen(trials, study.record.trained_tasks[model])
    severity = trials.number("severity").astype(np.int64)
    columns = trials.codes("model"), kind, trials.codes("category"), (severity, SEVERITIES)
    right = METRICS[ACCURACY].values_of(trials)
    return condition_means(right, clusters_of(trials), columns, study.draws, proportion=True)


_MORE_RELIABLE = (0.8, 0.85, 0.9)  # where most episodes are failures, a model that sees nothing reaches the paper's
_CHANGE = ("clean", "lost", "lost_low", "lost_high")  # of the same episodes
_NUMBERS = ("value", "low", "high", "scored", "asked", "coverage")
_CALIBRATION = (*(field.name for field in fields(CalibrationNull)), "miscalibrated")


def number_files(study: MeasuredStudy) -> dict[str, str]:
    """Return the tables by file name."""
    models, kinds, tau = study.evaluated, study.categories, study.tau
    order = ((m, s, tau.combined(over_categories(m, s, kinds))) for m in models for s in SEVERITIES)
    lost = ((m, g, study.group_loss.combined(study.groups_evenly(m, (g,), kinds))) for m in models for g in GROUPS)
    ends, condition = ("low", "high", "clusters"), ("model", "category", "severity")
    seen, relabelled = list(seen_unseen_rows(study)), list(_relabelled(study))
    return {
        "table1.csv": csv_of(study, ("model", "plays", "category", *_NUMBERS, *_CHANGE, "paper"), _table_1(study)),
        "seen_unseen.csv": csv_of(study, COLUMNS, seen),
        "relabelled.csv": csv_of(study, (*condition, *_NUMBERS[:4], REFERENCE), relabelled),
        "table1.md": table_1_page(study, seen, relabelled),
        "every.csv": csv_of(study, (*condition, "metric", "better", *_NUMBERS, "null"), _every(study)),
        "reliability.csv": csv_of(
            study,
            ("model", "plays", "category", "level", "certified", "measured", "paper_fails_at"),
            _thresholds(study),
        ),
        "calibration.csv": csv_of(
            study, _CALIBRATION, ((*astuple(entry), entry.miscalibrated) for entry in study.summary.calibration_nulls)
        ),
        "figure2.csv": csv_of(study, ("model", "severity", "tau", *ends), _estimates(order)),
        "figure3.csv": csv_of(study, ("model", "group", "loss", *ends), _estimates(lost)),
    }


def table_1_page(study: MeasuredStudy, seen: Sequence[Row], relabelled: Sequence[RelabelledRow]) -> str:
    """Return the paper's Table 1 in Markdown, with what is missing and how it was measured."""
    reading = (
        "Each cell: ours with its 95 % interval over the cells whose label the change keeps, the clean accuracy of the "
        "same episodes, the number that the paper states for the configuration that the model plays, and the cells "
        "scored of those asked."
    )
    lines = [f"# Success accuracy at severity {WORST}", "", reading]
    lines += ["", f"| model | plays | {' | '.join(CATEGORIES)} |", "|---" * (len(CATEGORIES) + 2) + "|"]
    for model in study.models:
        cells = [_cell(study, model, category) for category in CATEGORIES]
        lines.append(f"| {markdown_text(study.shown(model))} | {study.role(model) or '-'} | {' | '.join(cells)} |")
    return (
        "\n".join([*lines, "", *seen_unseen_page(study, seen), *_relabelled_page(study, relabelled), *_remarks(study)])
        + "\n"
    )


def _cell(study: MeasuredStudy, model: str, category: str) -> str:
    here = at(model, category, WORST)
    found, clean = study.accuracy.combined(here), study.clean_accuracy.combined(here)
    (scored, asked), stated = _cells(study, model, category), study.stated(model, category)
    beside = [f"clean {format_number(clean.value, 3)}"]
    beside += [] if stated is None else [f"paper {stated:.3f}"]
    ends = "" if found.low != found.low else found.ends
    return "<br>".join([f"**{format_number(found.value, 3)}** {ends}", *beside, f"{scored} of {asked}"])


def _cells(study: MeasuredStudy, model: str, category: str, severity: int = WORST) -> tuple[int, int]:
    """Return how many cells that keep their label were scored, and how many were asked."""
    trials = study.trials
    mine = np.logical_or.reduce([trials.matches("model", name) for name in study.trainings(model)])
    here = mine & trials.matches("category", category)
    asked = here & (trials.number("severity") == severity) & study.keeps_label
    return int((asked & trials.matches("status", "scored")).sum()), int(asked.sum())


def _relabelled_page(study: MeasuredStudy, every: Sequence[RelabelledRow]) -> Iterator[str]:
    """Yield the cells whose label changes with the clip, each model beside what sees nothing."""
    rows = [row for row in every if row[2] == WORST]
    if rows:
        yield from (f"## Cells whose label changes, severity {WORST}", "")
        yield f"They have no clean accuracy to lose; `{REFERENCE}`, which sees nothing, stands beside each number."
        yield from ("", f"| model | category | accuracy | {REFERENCE} on the same | cells |", "|---" * 5 + "|")
        for model, category, _, value, low, high, scored, blind in rows:
            interval = f" [{low:.3f}, {high:.3f}]" if low == low else ""
            numbers = f"{value:.3f}{interval} | {format_number(blind, 3)} | {scored}"
            yield f"| {markdown_text(study.shown(model))} | {category} | {numbers} |"
        yield ""


def _relabelled(study: MeasuredStudy) -> Iterator[RelabelledRow]:
    """Yield the accuracy on cells whose label changes, with that of the constant on the same cells."""
    for model in study.models:
        for category in CATEGORIES:
            for severity in SEVERITIES[1:]:
                means, here = study.relabelled_accuracy, at(model, category, severity)
                found, count = means.combined(here), means.count(here)
                if found.value == found.value:
                    blind = means.combined(at(REFERENCE, category, severity)).value
                    yield model, category, severity, found.value, found.low, found.high, count, blind


def _remarks(study: MeasuredStudy) -> Iterator[str]:
    """Yield what is to be said below the table, what is missing first."""
    for model in study.models:
        missing = [c for c in CATEGORIES if not _cells(study, model, c)[0]]
        if missing:
            name = markdown_text(study.shown(model))
            yield f"- Not measured: {name} under {', '.join(missing)} change at severity {WORST}."
    asked = [(c, _cells(study, study.evaluated[0], c)[1]) for c in CATEGORIES]
    yield (
        f"- Asked are the cells that keep their label, of {study.record.episodes} episodes: "
        f"{', '.join(f'{category} {count}' for category, count in asked)}."
    )
    basis = study.summary.bootstrap
    rough = ", so few that intervals are rough" if basis.few_clusters else ""
    yield f"- Intervals: {basis.draws:,} draws of {basis.clusters} clusters{rough}; {basis.method}."


def _table_1(study: MeasuredStudy) -> Iterator[Sequence[object]]:
    for model in study.models:
        for category in CATEGORIES:
            here = at(model, category, WORST)
            found, lost = study.accuracy.combined(here), study.loss.combined(here)
            clean = study.clean_accuracy.combined(here).value
            scored, asked = _cells(study, model, category)
            numbers = (found.value, found.low, found.high, scored, asked, scored / asked if asked else None)
            change = (clean, lost.value, lost.low, lost.high)
            yield model, study.role(model), category, *numbers, *change, study.stated(model, category)


def _every(study: MeasuredStudy) -> Iterator[Sequence[object]]:
    """Yield every row of the summary that is about a category; severity 0 is the clean episodes."""
    nulls = _nulls(study)
    for row in study.summary.measurements:
        if row.group in study.summary.categories:
            null = nulls.get((row.model, row.group if row.severity else CLEAN, row.severity), {}).get(row.metric)
            share = row.scored / row.asked if row.asked else None
            numbers = (row.value, row.low, row.high, row.scored, row.asked, share)
            yield row.model, row.group, row.severity, row.metric, METRICS[row.metric].better, *numbers, null


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
        for model in (*study.arms, *study.summary.models):
            stated = STATED_THRESHOLD.get(study.role(model)) if level == RELIABLE_AT else None
            for category in CATEGORIES:
                curve = [study.accuracy.combined(at(model, category, step), BOTH_TAILS) for step in SEVERITIES]
                numbers = ([found.low for found in curve], [found.value for found in curve])
                words = [format_threshold(severity_threshold(each, level)).replace("-", "") for each in numbers]
                yield model, study.role(model), category, level, *words, stated


def _estimates(found: Iterable[tuple[object, object, ContrastEstimate]]) -> Iterator[Sequence[object]]:
    for model, place, estimate in found:
        yield model, place, estimate.value, estimate.low, estimate.high, estimate.clusters


def csv_of(study: MeasuredStudy, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows below their heading, as CSV: nothing where a value is missing, numbers to four digits."""

    def plain(value: object) -> object:
        if value is None or value != value:
            return ""
        if isinstance(value, str):
            return study.shown(value)
        return f"{value:.4g}" if isinstance(value, float) else value

    return csv_text([columns, *([plain(value) for value in row] for row in rows)])
