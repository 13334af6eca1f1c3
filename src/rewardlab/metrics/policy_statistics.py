"""Statistics of few trainings, as Agarwal et al. (2021) advise: interquartile means, stratified draws, profiles."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rewardlab.core.seeding import rng_for
from rewardlab.metrics.clustered_bootstrap import Numbers

Scores = Mapping[str, Sequence[float]]  # by task, one score per seed
Statistic = Callable[[Numbers], Numbers]  # of each row
DRAWS = 2000


def interquartile_means(scores: Numbers) -> Numbers:
    """Return the mean of the middle half of each row: a quarter, rounded down, is cut at each end; nan of none."""
    ordered = np.sort(np.asarray(scores, np.float64), axis=-1)
    count = ordered.shape[-1]
    if not count:
        return np.full(ordered.shape[:-1], np.nan)
    return np.asarray(ordered[..., count // 4 : count - count // 4].mean(axis=-1))


def interquartile_mean(scores: Numbers) -> float:
    """Return the mean of the middle half of some scores; nan of none."""
    return float(interquartile_means(np.ravel(scores)))


def row_means(scores: Numbers) -> Numbers:
    """Return the mean of each row."""
    return np.asarray(scores.mean(axis=-1))


def pooled(scores: Scores) -> Numbers:
    """Return the scores of all tasks in one array."""
    return np.concatenate([np.asarray(own, np.float64) for own in scores.values()] or [np.zeros(0)])


def stratified_interval(scores: Scores, statistic: Statistic = interquartile_means) -> tuple[float, float]:
    """Return the 95 % percentile interval of a statistic when the seeds of each task are drawn again by themselves.

    Where no task has two seeds there is no interval: nothing is known of how they vary.
    """
    drawn = _draws(scores)
    if max((len(own) for own in scores.values()), default=0) < 2:
        return float("nan"), float("nan")
    return _ends(statistic(drawn))


def performance_profile(scores: Scores, thresholds: Sequence[float]) -> list[float]:
    """Return for each threshold the fraction of trainings whose score is above it."""
    values = pooled(scores)
    return [float((values > threshold).mean()) if len(values) else float("nan") for threshold in thresholds]


def profile_band(scores: Scores, thresholds: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the lower and the upper end of the 95 % interval of a profile at each threshold."""
    drawn = _draws(scores)
    if not drawn.shape[1]:
        return [float("nan")] * len(thresholds), [float("nan")] * len(thresholds)
    ends = [_ends((drawn > at).mean(axis=1)) for at in thresholds]
    return [low for low, _ in ends], [high for _, high in ends]


def _ends(drawn: Numbers) -> tuple[float, float]:
    """Return the ends of the 95 % interval; nan of nothing."""
    low, high = np.percentile(drawn, (2.5, 97.5)) if len(drawn) else (np.nan, np.nan)
    return float(low), float(high)


def _draws(scores: Scores) -> Numbers:
    """Return the scores of many draws, a row each: the seeds of every task drawn with replacement among themselves."""
    rng = rng_for(0, "stratified bootstrap")
    known = [np.asarray(own, np.float64) for own in scores.values() if len(own)]
    drawn = [own[rng.integers(len(own), size=(DRAWS, len(own)))] for own in known]
    return np.concatenate([np.zeros((DRAWS, 0)), *drawn], axis=1)


def pearson(x: Numbers, y: Numbers) -> float:
    """Return the correlation of two rows of numbers; nan where one of them does not vary."""
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


def rank_correlation_of(x: Numbers, y: Numbers) -> float:
    """Return Spearman's correlation: Pearson's of the ranks, equal values with their mean rank."""
    return pearson(_ranks(x), _ranks(y))


def _ranks(numbers: Numbers) -> Numbers:
    _, place, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def clustered_correlation_interval(x: Numbers, y: Numbers, clusters: Sequence[str]) -> tuple[float, float]:
    """Return the 95 % interval of Pearson's correlation when whole clusters, such as models, are drawn again."""
    names, place = np.unique(np.array(clusters, dtype=str), return_inverse=True)
    if len(x) < 3:
        return float("nan"), float("nan")
    drawn = rng_for(0, "clustered correlation").multinomial(len(names), [1 / len(names)] * len(names), DRAWS)
    found = _weighted_correlations(x, y, drawn[:, place].astype(np.float64))
    return _ends(found[~np.isnan(found)])


def _weighted_correlations(x: Numbers, y: Numbers, weights: Numbers) -> Numbers:
    """Return the correlation under each row of weights; nan where one of the two does not vary."""
    total = weights.sum(axis=1)
    x, y = x - x.mean(), y - y.mean()  # so that little is lost in the differences below
    mean_x, mean_y = weights @ x / total, weights @ y / total
    var_x = weights @ x**2 / total - mean_x**2
    var_y = weights @ y**2 / total - mean_y**2
    joint = weights @ (x * y) / total - mean_x * mean_y
    varies = (var_x > 1e-12) & (var_y > 1e-12)
    found = np.full(len(weights), np.nan)
    found[varies] = joint[varies] / np.sqrt(var_x[varies] * var_y[varies])
    return found
