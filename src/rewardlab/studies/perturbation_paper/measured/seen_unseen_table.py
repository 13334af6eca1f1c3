"""Table 1 for tasks that a model was trained on, and for others: two tables, never one number for both."""

from collections.abc import Iterator

import numpy as np

from rewardlab.analysis.findings import REFERENCE, values_of
from rewardlab.analysis.format import format_number, markdown_text
from rewardlab.analysis.task_familiarity import KINDS, seen_or_unseen
from rewardlab.core.trial import CLEAN, SEVERITIES
from rewardlab.metrics.condition_contrasts import ConditionMeans, condition_means
from rewardlab.metrics.metric_estimates import clusters_of
from rewardlab.studies.perturbation_paper.measured.measured_condition_means import ACCURACY, MeasuredStudy, only
from rewardlab.studies.perturbation_paper.measured.paper_models_and_tasks import CATEGORIES, WORST

COLUMNS = ("model", "tasks", "category", "severity", "value", "low", "high", "scored", REFERENCE)
Row = tuple[str, str, str, int, float, float, float, int, float]


def seen_unseen_rows(study: MeasuredStudy) -> Iterator[Row]:
    """Yield accuracies over cells that keep their label, for every model whose training tasks are known."""
    for model in study.record.trained_tasks:
        means = _means(study, model)
        for kind in KINDS:
            for category in (CLEAN, *CATEGORIES):
                for severity in SEVERITIES[1:] if category != CLEAN else (0,):
                    here, blind = (only(name, kind, category, severity) for name in (model, REFERENCE))
                    if scored := means.count(here):
                        found, constant = means.combined(here), means.combined(blind).value
                        numbers = (found.value, found.low, found.high, scored, constant)
                        yield model, kind, category, severity, *numbers


def seen_unseen_page(study: MeasuredStudy) -> Iterator[str]:
    """Yield the table in Markdown: clean and at the highest severity, with the constant on the same cells."""
    rows = [row for row in seen_unseen_rows(study) if row[3] in (0, WORST)]
    if rows:
        yield from ("## Tasks that a model was trained on, and others", "")
        yield f"Success accuracy over cells that keep their label, clean and at severity {WORST}."
        yield from ("", f"| model | tasks | category | accuracy | {REFERENCE} there | cells |", "|---" * 6 + "|")
        for model, kind, category, _, value, low, high, scored, blind in rows:
            interval = f" [{low:.3f}, {high:.3f}]" if low == low else ""
            numbers = f"{format_number(value, 3)}{interval} | {format_number(blind, 3)} | {scored}"
            yield f"| {markdown_text(model)} | {kind} | {category} | {numbers} |"
        yield ""


def _means(study: MeasuredStudy, model: str) -> ConditionMeans:
    trials = study.trials
    kind = seen_or_unseen(trials, study.record.trained_tasks[model])
    severity = trials.number("severity").astype(np.int64)
    columns = trials.codes("model"), kind, trials.codes("category"), (severity, SEVERITIES)
    right = np.where(study.keeps_label, values_of(trials, ACCURACY), np.nan)
    return condition_means(right, clusters_of(trials), columns, study.draws, rate=True)
