"""A metric with its interval, of one set or of thousands of conditions; clean-answer and cluster columns."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import LEVELS
from rewardlab.core.trial import CLEAN
from rewardlab.core.trial_table import TrialTable
from rewardlab.metrics.clustered_bootstrap import (
    UNBOUNDED,
    Codes,
    ConditionEstimates,
    Draws,
    Numbers,
    condition_sums,
    estimate_in_steps,
    percentile_interval,
    proportion_interval,
)
from rewardlab.metrics.contract import Metric, answered, eligible
from rewardlab.metrics.progress import late_progress, order_correlations


@dataclass(frozen=True)
class MetricEstimate:
    """A number, its 95 % interval (nan where there is none), and the trials behind it of those eligible."""

    value: float
    low: float
    high: float
    scored: int
    asked: int


def measure(metric: Metric, trials: TrialTable, draws: Draws) -> MetricEstimate:
    """Return a metric of these trials; they need the column `cluster`, numbered as in the draws."""
    used = trials.where(answered(trials, metric.eligibility))
    return measure_answered(metric, used, int(eligible(trials, metric.eligibility).sum()), draws)


def measure_answered(metric: Metric, used: TrialTable, asked: int, draws: Draws) -> MetricEstimate:
    """Return a metric of trials that were all answered, out of so many that were asked."""
    means = measure_conditions(metric, used, np.zeros(len(used), dtype=np.int64), 1, draws)
    if means is not None:
        value, low, high = float(means.value[0]), float(means.low[0]), float(means.high[0])
        return MetricEstimate(value, low, high, int(means.trials[0]), asked)
    value = metric(used)
    low = high = np.nan
    if metric.resample is not None and not np.isnan(value):
        behind = np.array([len(np.unique(clusters_of(used)))], dtype=np.float64)
        ends = percentile_interval(metric.resample(used, draws)[None, :], behind, bounds=metric.bounds)
        low, high = (float(end[0]) for end in ends)
    return MetricEstimate(value, low, high, len(used), asked)


def measure_conditions(
    metric: Metric, used: TrialTable, condition: Codes, conditions: int, draws: Draws
) -> ConditionEstimates | None:
    """Return a metric of each condition; None where the metric has to be measured one condition at a time."""
    if metric.values is not None:
        values, cluster = metric.values(used), clusters_of(used)
        return estimate_means(
            values, cluster, condition, conditions, draws, proportion=metric.proportion, bounds=metric.bounds
        )
    found = metric.by_condition and metric.by_condition(used, condition, conditions, draws)
    return found and replace(found, low=np.clip(found.low, *metric.bounds), high=np.clip(found.high, *metric.bounds))


def estimate_means(
    values: Numbers,
    cluster: Codes,
    condition: Codes,
    conditions: int,
    draws: Draws,
    *,
    proportion: bool,
    bounds: tuple[float, float] = UNBOUNDED,
) -> ConditionEstimates:
    """Return the mean of the values in each condition with its interval; nan is no value, condition -1 is none.

    No end is outside the bounds of what the values can be.
    """

    def estimate(start: int, width: int) -> tuple[Numbers, ...]:
        above, below = condition_sums(values, cluster, condition - start, width, draws.clusters)
        count, behind = below.sum(axis=1), (below > 0).sum(axis=1).astype(np.float64)
        with np.errstate(invalid="ignore"):
            value = above.sum(axis=1) / count
        drawn = draws.ratios(above, below)
        ends = proportion_interval(value, drawn, count, behind) if proportion else percentile_interval(drawn, behind)
        return value, *(np.clip(end, *bounds) for end in ends), count, behind

    return estimate_in_steps(conditions, draws.number, estimate)


def clusters_of(trials: TrialTable) -> Codes:
    """Return the cluster of each trial."""
    return trials.number("cluster").astype(np.int64)


# Columns that metrics read beside those of a trial: the model's clean answer, and the cluster of the bootstrap.


def with_clean_answers(trials: TrialTable) -> TrialTable:
    """Add what the same model said of the untouched episode: its level, also as expected, and of its progress the
    order, the mean from the middle on, and the value in the middle."""
    columns = trials.number("level"), expected_levels(trials), order_correlations(trials), *late_progress(trials)
    names = ("clean_level", "clean_expected", "clean_order", "clean_late", "clean_middle")
    for name, values in zip(names, clean_values(trials, *columns), strict=True):
        trials = trials.with_column(name, values)
    return trials


def expected_levels(trials: TrialTable) -> Numbers:
    """Return the expectation of the level where a model gives probabilities, else its level."""

    def compute(whole: TrialTable) -> Numbers:
        expected: Numbers = whole.vectors("probabilities", len(LEVELS)) @ np.array(LEVELS, dtype=np.float64)
        return np.where(np.isnan(expected), whole.number("level"), expected)

    return trials.derived("expected level", compute)


def clean_values(trials: TrialTable, *columns: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Return, for each column of one number per trial, that number of the same model on the untouched episode."""
    model, _ = trials.codes("model")
    episode, episodes = trials.codes("episode")
    known, place = np.unique(model * max(len(episodes), 1) + episode, return_inverse=True)
    clean = trials.matches("perturbation", CLEAN)
    found = []
    for values in columns:
        by_pair = np.full(len(known), np.nan)
        by_pair[place[clean]] = values[clean]
        found.append(by_pair[place])
    return found


def with_clusters(trials: TrialTable) -> TrialTable:
    """Add the number of the cluster that each trial belongs to; no task and no video is in two clusters."""
    return trials.with_column("cluster", cluster_codes(trials.codes("task")[0], trials.codes("video")[0]))


def cluster_codes(task: Codes, video: Codes) -> Codes:
    """Return the cluster of each trial, numbered from 0: trials that share a task or a video are in the same one."""
    parent = list(range(int(task.max(initial=-1)) + 1))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    first_task: dict[int, int] = {}
    for code, video_code in np.unique(np.stack([task, video], axis=1), axis=0).tolist():
        parent[root(code)] = root(first_task.setdefault(video_code, code))
    roots = np.array([root(node) for node in range(len(parent))], dtype=np.int64)
    return np.unique(roots[task], return_inverse=True)[1].astype(np.int64)
