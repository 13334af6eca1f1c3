"""What a number under change is held against: the clean answer and the best constant, on the very same cells."""

from collections.abc import Iterator

import numpy as np

from rewardlab.analysis.measurements import Conditions, group_conditions
from rewardlab.core.dataclass_json import none_if_nan
from rewardlab.core.episode import LEVELS
from rewardlab.core.summary import SameCells
from rewardlab.core.trial import TrialTable
from rewardlab.metrics import METRICS
from rewardlab.metrics.clustered_bootstrap import Codes, sum_by
from rewardlab.metrics.contract import Numbers
from rewardlab.metrics.derived_columns import clean_values
from rewardlab.metrics.eligibility import answered
from rewardlab.metrics.error_and_accuracy import macro_mae, micro_mae, success_accuracy

_NO_SUBSET = "all"


def same_cells(trials: TrialTable) -> tuple[SameCells, ...]:
    """Return, per model, group, severity and metric, what the untouched episodes and the best constant give there."""
    return tuple(
        row
        for single in (False, True)
        for conditions in [group_conditions(trials, single=single)]
        for name, values, by_subset in _metrics(trials)
        for row in _rows(trials, conditions, (name, values), by_subset=by_subset)
    )


def _metrics(trials: TrialTable) -> Iterator[tuple[str, Numbers, bool]]:
    """Yield the metrics that are drawn over severity with what they are the mean of; MAE is a mean over subsets too."""
    for name, source, by_subset in (
        (success_accuracy.name, success_accuracy, False),
        (macro_mae.name, micro_mae, True),
    ):
        metric = METRICS[source.name]
        assert metric.values is not None
        yield name, np.where(answered(trials, metric.eligibility), metric.values(trials), np.nan), by_subset


def _rows(
    trials: TrialTable, conditions: Conditions, metric: tuple[str, Numbers], *, by_subset: bool
) -> Iterator[SameCells]:
    name, values = metric
    subset, names = trials.codes("subset") if by_subset else (np.zeros(len(trials), dtype=np.int64), [_NO_SUBSET])
    place = conditions.of_trial * len(names) + subset
    used = ~np.isnan(values) & (conditions.of_trial >= 0)
    shape = (len(conditions.names), max(len(names), 1))
    clean = _means(clean_values(trials, values)[0], used, place, shape)
    blind = _best_constant(trials, name, used, place, shape)
    relabelled = sum_by(conditions.of_trial[used & trials.matches("expectation", "relabel")], shape[0])
    cells = sum_by(conditions.of_trial[used], shape[0])
    for number, (model, group, severity) in enumerate(conditions.names):
        if cells[number]:
            held = (none_if_nan(float(clean[number])), none_if_nan(float(blind[number])))
            yield SameCells(model, group, severity, name, *held, int(cells[number]), int(relabelled[number]))


def _means(values: Numbers, used: np.ndarray, place: Codes, shape: tuple[int, int]) -> Numbers:
    """Return the mean over subsets of the mean in each, per condition."""
    known, size = used & ~np.isnan(values), shape[0] * shape[1]
    count = sum_by(place[known], size)
    with np.errstate(invalid="ignore"):
        means = (sum_by(place[known], size, values[known]) / count).reshape(shape)
        there = ~np.isnan(means)
        found: Numbers = np.where(there, means, 0).sum(axis=1) / there.sum(axis=1)
    return found


def _best_constant(trials: TrialTable, metric: str, used: np.ndarray, place: Codes, shape: tuple[int, int]) -> Numbers:
    """Return, per condition, the best that a model gets which says the same level of every cell."""
    if metric == success_accuracy.name:
        truth = trials.number("truth_success")
        return np.maximum(*(_means(np.where(truth == said, 1.0, 0.0), used, place, shape) for said in (0, 1)))
    level = trials.number("truth_level")
    errors: Numbers = np.min([_means(np.abs(level - said), used, place, shape) for said in LEVELS], axis=0)
    return errors
