"""Paired differences: two models, or two conditions, on the same trials and under the same draws of clusters."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rewardlab.metrics.clustered_bootstrap import Draws, cluster_sums, paired_p_value, percentile_interval
from rewardlab.metrics.kendall import count_pairs, pair_draws

Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Paired:
    """What a and b score on the same trials, a less b with its 95 % interval, and the p-value of no difference."""

    a: float
    b: float
    difference: float
    low: float
    high: float
    p: float
    error: float  # standard error of the difference
    trials: int
    clusters: int


def paired_means(a: Numbers, b: Numbers, cluster: Codes, draws: Draws) -> Paired:
    """Compare the means of two numbers per trial, over the trials that have both."""
    both = ~np.isnan(a + b)
    a, b, cluster = a[both], b[both], cluster[both]
    gaps, counts = cluster_sums(a - b, cluster, draws.clusters)
    drawn = draws.ratios(gaps[None, :], counts[None, :])[0]
    means = (float(a.mean()), float(b.mean())) if len(a) else (np.nan, np.nan)
    return _paired(means, drawn, len(a), int((counts > 0).sum()))


def paired_tau_b(scores_a: Numbers, scores_b: Numbers, truths: Numbers, cluster: Codes, draws: Draws) -> Paired:
    """Compare tau-b of two scores per trial with the truth, over the trials that have all three."""
    known = ~np.isnan(scores_a + scores_b + truths)
    truth, own = truths[known], cluster[known]
    alone = np.zeros(len(truth), dtype=np.int64)
    sides = scores_a[known], scores_b[known]
    a, b = (float(count_pairs(side, truth, alone, 1).tau_b()[0]) for side in sides)
    drawn = [pair_draws(side, truth, own, draws).tau_b() for side in sides]
    return _paired((a, b), drawn[0] - drawn[1], len(truth), len(np.unique(own)))


def _paired(values: tuple[float, float], drawn: Numbers, trials: int, clusters: int) -> Paired:
    low, high = percentile_interval(drawn[None, :], np.array([clusters], dtype=np.float64))
    known = drawn[~np.isnan(drawn)]
    error = float(known.std()) if len(known) and clusters > 1 else np.nan
    p = paired_p_value(drawn, clusters)
    difference = values[0] - values[1]
    return Paired(*values, difference, float(low[0]), float(high[0]), p, error, trials, clusters)
