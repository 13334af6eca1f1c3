"""Seen and unseen apart: what a model makes of tasks that it was trained on, and of others, beside a constant."""

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np

from rewardlab.analysis.findings import REFERENCE, values_of
from rewardlab.core.dataclass_json import none_if_nan
from rewardlab.core.summary import TaskFamiliarity
from rewardlab.core.trial import CLEAN, TrialTable
from rewardlab.metrics import METRICS
from rewardlab.metrics.clustered_bootstrap import Draws
from rewardlab.metrics.condition_contrasts import Column, condition_means
from rewardlab.metrics.error_and_accuracy import micro_mae, success_accuracy
from rewardlab.metrics.metric_estimates import clusters_of

KINDS: tuple[Literal["seen", "unseen"], ...] = ("seen", "unseen")
_METRICS = (micro_mae.name, success_accuracy.name)


def task_familiarity(
    trials: TrialTable, draws: Draws, trained_tasks: Mapping[str, tuple[str, ...]]
) -> tuple[TaskFamiliarity, ...]:
    """Return the clean numbers of every model whose training tasks are known, where the data has both kinds or one."""
    clean = trials.where(trials.matches("category", CLEAN))
    known = {model: tasks for model, tasks in trained_tasks.items() if set(tasks) & set(clean.codes("task")[1])}
    return tuple(row for model, tasks in known.items() for row in _rows(clean, draws, model, tasks))


def seen_or_unseen(trials: TrialTable, trained: tuple[str, ...]) -> Column:
    """Return which of the trials are of tasks that a model was trained on, as a column of conditions."""
    task, names = trials.codes("task")
    return np.array([name not in trained for name in names], dtype=np.int64)[task], KINDS


def _rows(clean: TrialTable, draws: Draws, model: str, trained: tuple[str, ...]) -> Iterator[TaskFamiliarity]:
    for metric in _METRICS:
        columns = clean.codes("model"), seen_or_unseen(clean, trained)
        means = condition_means(values_of(clean, metric), clusters_of(clean), columns, draws, rate=METRICS[metric].rate)
        for kind in KINDS:
            if episodes := means.count({(model, kind): 1.0}):
                found, blind = (means.combined({(name, kind): 1.0}) for name in (model, REFERENCE))
                ends = none_if_nan(found.low), none_if_nan(found.high)
                blind_value = none_if_nan(blind.value)
                yield TaskFamiliarity(model, kind, metric, none_if_nan(found.value), *ends, blind_value, episodes)
