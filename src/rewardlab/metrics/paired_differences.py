"""Comparisons: paired models, contrasts of conditions, McNemar, Holm."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from rewardlab.core.distributions import fair_binomial_cdf, student_t_quantile
from rewardlab.core.seeding import rng_for
from rewardlab.core.trial_table import TrialTable
from rewardlab.metrics.clustered_bootstrap import (
    UNBOUNDED,
    Codes,
    Draws,
    Numbers,
    cluster_sums,
    condition_sums,
    paired_p_value,
    percentile_interval,
    proportion_interval,
)
from rewardlab.metrics.contract import Metric
from rewardlab.metrics.estimates import clusters_of


@dataclass(frozen=True)
class PairedDifference:
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


def paired_means(
    a: Numbers, b: Numbers, cluster: Codes, draws: Draws, bounds: tuple[float, float] = UNBOUNDED
) -> PairedDifference:
    """Compare the means of two numbers per trial, both within the bounds, over the trials that have both."""
    both = ~np.isnan(a + b)
    a, b, cluster = a[both], b[both], cluster[both]
    gaps, counts = cluster_sums(a - b, cluster, draws.clusters)
    drawn = draws.ratios(gaps[None, :], counts[None, :])[0]
    means = (float(a.mean()), float(b.mean())) if len(a) else (np.nan, np.nan)
    return _paired(means, drawn, len(a), int((counts > 0).sum()), bounds)


def paired_metric(metric: Metric, a: TrialTable, b: TrialTable, draws: Draws) -> PairedDifference:
    """Compare a metric of two tables with the same trials in the same order, both with the column `cluster`."""
    if metric.values is not None:
        return paired_means(metric.values(a), metric.values(b), clusters_of(a), draws, metric.bounds)
    assert metric.resample is not None, f"{metric.name} has no draws to compare"
    drawn = metric.resample(a, draws) - metric.resample(b, draws)
    return _paired((metric(a), metric(b)), drawn, len(a), len(np.unique(clusters_of(a))), metric.bounds)


def _paired(
    values: tuple[float, float], drawn: Numbers, trials: int, clusters: int, bounds: tuple[float, float]
) -> PairedDifference:
    least, most = bounds
    number = np.array([clusters], dtype=np.float64)
    low, high = percentile_interval(drawn[None, :], number, bounds=(least - most, most - least))
    known = drawn[~np.isnan(drawn)]
    error = float(known.std()) * math.sqrt(clusters / (clusters - 1)) if len(known) and clusters > 1 else np.nan
    p, difference = paired_p_value(drawn, clusters), values[0] - values[1]
    return PairedDifference(*values, difference, float(low[0]), float(high[0]), p, error, trials, clusters)


# Weighted sums of the means of conditions, under the same draws: averages, differences and differences of those.

Condition = tuple[str | int, ...]
Weights = Mapping[Condition, float]
Column = tuple[Codes, Sequence[str | int]]  # the code of each trial (-1: in no condition), and what codes stand for


@dataclass(frozen=True)
class ContrastEstimate:
    """A number with its interval, and how many clusters are behind its weakest part; nan where it is unknown."""

    value: float
    low: float
    high: float
    clusters: int

    @property
    def ends(self) -> str:
        """Return the interval in words."""
        if math.isnan(self.low):
            return f"(no interval from {self.clusters} cluster{'' if self.clusters == 1 else 's'})"
        return f"[{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True, eq=False)
class ConditionMeans:
    """The sums and counts per condition (row) and cluster (column) of a number; `proportion` says that it is 0 or 1.

    `arms` are names that stand for several trainings in the first place of a condition: for their mean, whose interval
    draws the trainings again as well as the clusters.
    """

    places: Mapping[Condition, int]
    above: Numbers
    below: Numbers
    draws: Draws
    proportion: bool
    arms: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def count(self, weights: Weights) -> int:
        """Return how many trials are behind some conditions."""
        every = (each for condition in weights for each, _ in self._trainings(condition))
        return int(sum(self.below[self.places[each]].sum() for each in every if each in self.places))

    def combined(self, weights: Weights, confidence: float = 0.95) -> ContrastEstimate:
        """Return the weighted sum of means with its interval; nan where a condition has no trial.

        A single proportion has the interval that it has everywhere else. Of several conditions, the one with the fewest
        clusters decides how much the interval is widened.
        """
        parts = [(*part, weight) for condition, weight in weights.items() for part in self._trainings(condition)]
        if not parts or any(condition not in self.places for condition, _, _ in parts):
            return ContrastEstimate(math.nan, math.nan, math.nan, 0)
        rows = [self.places[condition] for condition, _, _ in parts]
        above, below = self.above[rows], self.below[rows]
        shares = np.array([weight / self._count(arm) for _, (arm, _), weight in parts])
        count, behind = below.sum(axis=1), (below > 0).sum(axis=1).astype(np.float64)
        means, drawn = above.sum(axis=1) / count, self.draws.ratios(above, below)
        for row, (_, (arm, place), _) in enumerate(parts):
            if arm:
                drawn[row] *= training_draws(arm, self._count(arm), drawn.shape[1])[place]
        if self.proportion and shares.tolist() == [1.0]:
            ends = proportion_interval(means, drawn, count, behind, confidence)
        else:
            ends = percentile_interval((shares @ drawn)[None, :], behind.min(keepdims=True), confidence)
        return ContrastEstimate(float(shares @ means), float(ends[0][0]), float(ends[1][0]), int(behind.min()))

    def _trainings(self, condition: Condition) -> list[tuple[Condition, tuple[str, int]]]:
        """Return the condition of every training that one stands for, with its arm and its place there."""
        arm = str(condition[0])
        if arm not in self.arms:
            return [(condition, ("", 0))]
        return [((name, *condition[1:]), (arm, place)) for place, name in enumerate(self.arms[arm])]

    def _count(self, arm: str) -> int:
        return len(self.arms[arm]) if arm else 1


@cache
def training_draws(arm: str, trainings: int, draws: int) -> Codes:
    """Return how often each training of an arm is drawn, (trainings, draws): the same draws for every number."""
    chosen = rng_for(0, "trainings", arm, trainings).integers(0, trainings, (trainings, draws))
    return np.stack([(chosen == place).sum(axis=0) for place in range(trainings)])


def condition_means(
    values: Numbers,
    cluster: Codes,
    columns: Sequence[Column],
    draws: Draws,
    *,
    proportion: bool = False,
    arms: Mapping[str, Sequence[str]] | None = None,
) -> ConditionMeans:
    """Return the means of a number, nan where a trial does not count, in every condition that the columns make."""
    codes = np.stack([code for code, _ in columns], axis=1)
    used = ~np.isnan(values) & (codes >= 0).all(axis=1)
    sizes = [max(len(names), 1) for _, names in columns]
    found, place = np.unique(np.ravel_multi_index(tuple(codes[used].T), sizes), return_inverse=True)
    sums = condition_sums(values[used], cluster[used], place, len(found), draws.clusters)
    rows = np.stack(np.unravel_index(found, sizes), axis=1).tolist()
    names = [tuple(names[code] for code, (_, names) in zip(row, columns, strict=True)) for row in rows]
    return ConditionMeans({name: row for row, name in enumerate(names)}, *sums, draws, proportion, arms or {})


def less(first: Weights, second: Weights) -> dict[Condition, float]:
    """Return the weights of the first sum less the second."""
    return dict(first) | {condition: first.get(condition, 0.0) - weight for condition, weight in second.items()}


def mean_of(*sums: Weights) -> dict[Condition, float]:
    """Return the weights of the plain mean of several sums that share no condition."""
    return {condition: weight / len(sums) for one in sums for condition, weight in one.items()}


# What may be claimed: exact McNemar, Holm's correction and the minimum detectable change.


def exact_mcnemar(only_a: int, only_b: int) -> float:
    """Return McNemar's exact two-sided p-value for independent trials; only A got so many right, only B so many."""
    return float(min(1.0, 2 * fair_binomial_cdf(min(only_a, only_b), only_a + only_b)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values corrected by Holm within this family; a nan is not a test and stays nan."""
    order = [int(i) for i in np.argsort(p_values, kind="stable") if not math.isnan(p_values[i])]
    corrected = [math.nan] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, p_values[place] * (len(order) - rank)))
        corrected[place] = largest
    return corrected


def minimum_detectable_change(standard_error: float, clusters: int, power: float = 0.8) -> float:
    """Return the true change that a two-sided test at 5 % finds with this power; nan with fewer than two clusters."""
    if clusters < 2 or math.isnan(standard_error):
        return math.nan
    quantiles = (student_t_quantile(clusters - 1, chance) for chance in (0.975, power))
    return sum(quantiles) * standard_error
