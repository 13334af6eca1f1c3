"""Paired differences: two models, or two conditions, on the same trials and under the same draws of clusters."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.trial import TrialTable
from rewardlab.metrics.clustered_bootstrap import (
    Draws,
    at_p_floor,
    cluster_sums,
    paired_p_value,
    percentile_interval,
)
from rewardlab.metrics.contract import Metric
from rewardlab.metrics.metric_estimates import clusters_of

Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True)
class PairedDifference:
    """What a and b score on the same trials, a less b with its 95 % interval, and the p-value of no difference."""

    a: float
    b: float
    difference: float
    low: float
    high: float
    p: float
    p_at_floor: bool  # p is the least that the draws can show: it is at most that
    error: float  # standard error of the difference
    trials: int
    clusters: int


def paired_means(a: Numbers, b: Numbers, cluster: Codes, draws: Draws) -> PairedDifference:
    """Compare the means of two numbers per trial, over the trials that have both."""
    both = ~np.isnan(a + b)
    a, b, cluster = a[both], b[both], cluster[both]
    gaps, counts = cluster_sums(a - b, cluster, draws.clusters)
    drawn = draws.ratios(gaps[None, :], counts[None, :])[0]
    means = (float(a.mean()), float(b.mean())) if len(a) else (np.nan, np.nan)
    return _paired(means, drawn, len(a), int((counts > 0).sum()))


def paired_metric(metric: Metric, a: TrialTable, b: TrialTable, draws: Draws) -> PairedDifference:
    """Compare a metric of two tables that hold the same cells in the same order, both with the column `cluster`."""
    if metric.values is not None:
        return paired_means(metric.values(a), metric.values(b), clusters_of(a), draws)
    assert metric.resample is not None, f"{metric.name} has no draws to compare"
    drawn = metric.resample(a, draws) - metric.resample(b, draws)
    return _paired((metric(a), metric(b)), drawn, len(a), len(np.unique(clusters_of(a))))


def _paired(values: tuple[float, float], drawn: Numbers, trials: int, clusters: int) -> PairedDifference:
    low, high = percentile_interval(drawn[None, :], np.array([clusters], dtype=np.float64))
    known = drawn[~np.isnan(drawn)]
    error = float(known.std()) if len(known) and clusters > 1 else np.nan
    p, floor = paired_p_value(drawn, clusters), at_p_floor(drawn)
    difference = values[0] - values[1]
    return PairedDifference(*values, difference, float(low[0]), float(high[0]), p, floor, error, trials, clusters)
