"""The clustered bootstrap: draw whole clusters again, for every number, model and condition at once.

A cluster is all trials that share a task or a video (`estimates.with_clusters`). One table of counts says how often
each cluster is in each draw; every number is made of sums per cluster, so a draw costs one column of a product of
matrices. Because all numbers use the same table, all models and all perturbed copies of an episode move together.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.distributions import normal_cdf, normal_quantile, student_t_cdf, student_t_quantiles
from rewardlab.core.seeding import rng_for

Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]
Float = TypeVar("Float", np.float32, np.float64)
HELD = 2_000_000  # drawn numbers held at a time
UNBOUNDED, NOT_NEGATIVE, SHARE, CORRELATION = (-math.inf, math.inf), (0.0, math.inf), (0.0, 1.0), (-1.0, 1.0)
FEW_CLUSTERS = 10  # below this an interval is printed with a warning
_EQUAL = 1e-9  # standard deviation of draws below which all clusters agree
_BLOCK = 250_000  # clusters times draws drawn at a time
# The linear algebra library starts threads for a product of more than this, and on a shared machine waiting for them
# costs fifty times the product itself: small products are made in pieces below it.
_ONE_THREAD = 250_000
_MANY_THREADS = 100_000_000


@dataclass(frozen=True, eq=False)
class Draws:
    """How often each cluster (row) is in each draw (column)."""

    counts: NDArray[np.uint8]
    seed: int

    @cached_property
    def weights(self) -> Numbers:
        """Return the counts as floats."""
        return self.counts.astype(np.float64)

    @cached_property
    def repeats(self) -> Numbers:
        """Return how often each cluster meets another copy of itself."""
        return self.weights * (self.weights - 1)

    @cached_property
    def weights_float32(self) -> NDArray[np.float32]:
        """Return the counts as floats of half the size, for sums of whole numbers below 2**24."""
        return self.counts.astype(np.float32)

    @property
    def clusters(self) -> int:
        """Return the number of clusters."""
        return int(self.counts.shape[0])

    @property
    def number(self) -> int:
        """Return the number of draws."""
        return int(self.counts.shape[1])

    def sums(self, per_cluster: Numbers) -> Numbers:
        """Return, for every row of sums per cluster, its sum in each draw: (rows, clusters) to (rows, draws)."""
        return product(per_cluster, self.weights)

    def ratios(self, above: Numbers, below: Numbers) -> Numbers:
        """Return sums over sums in each draw; nan where the sum below is 0."""
        with np.errstate(invalid="ignore", divide="ignore"):
            drawn = self.sums(below)
            return self.sums(above) / np.where(drawn == 0, np.nan, drawn)


def product(rows: NDArray[Float], columns: NDArray[Float]) -> NDArray[Float]:
    """Return the product of two matrices, in pieces where the whole would not be worth its threads."""
    size, width = max(rows.size, 1), columns.shape[1]
    step = max(1, _ONE_THREAD // size) if size * width < _MANY_THREADS else max(width, 1)
    found = np.empty((len(rows), width), rows.dtype)
    for start in range(0, width, step):
        np.matmul(rows, columns[:, start : start + step], out=found[:, start : start + step])
    return found


@dataclass(frozen=True, eq=False)
class ConditionEstimates:
    """One mean per condition with its interval, and how many trials and clusters are behind it."""

    value: Numbers
    low: Numbers
    high: Numbers
    trials: Numbers
    clusters: Numbers


def estimate_in_steps(
    conditions: int, draws: int, estimate: Callable[[int, int], tuple[Numbers, ...]]
) -> ConditionEstimates:
    """Return the estimates of all conditions; `estimate` gets the first of some and how many, to hold few draws."""
    step = max(1, HELD // draws)
    parts = [estimate(start, min(step, conditions - start)) for start in range(0, conditions, step)]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)] or [np.zeros(0)] * 5
    return ConditionEstimates(*columns)


def draw_clusters(clusters: int, draws: int, seed: int) -> Draws:
    """Draw as many clusters as there are, with replacement, so many times."""
    rng = rng_for(seed, "clustered bootstrap", clusters, draws)
    counts = np.zeros((clusters, draws), dtype=np.uint8)
    step = max(1, _BLOCK // max(clusters, 1))
    for start in range(0, draws if clusters else 0, step):
        width = min(step, draws - start)
        places = rng.integers(0, clusters, (width, clusters)) * width + np.arange(width)[:, None]
        counts[:, start : start + width] = np.bincount(places.ravel(), minlength=clusters * width).reshape(-1, width)
    return Draws(counts, seed)


def sum_by(group: Codes, groups: int, values: Numbers | None = None) -> Numbers:
    """Return the sum of the values in each group, or how many members it has."""
    return np.bincount(group, values, groups).astype(np.float64)


def cluster_sums(values: Numbers, cluster: Codes, clusters: int) -> tuple[Numbers, Numbers]:
    """Return per cluster the sum of the numbers that are there, and how many there are."""
    known = ~np.isnan(values)
    return sum_by(cluster[known], clusters, values[known]), sum_by(cluster[known], clusters)


def condition_sums(
    values: Numbers, cluster: Codes, condition: Codes, conditions: int, clusters: int
) -> tuple[Numbers, Numbers]:
    """Return the sum of values, and their number, per condition (row) and cluster (column)."""
    used = ~np.isnan(values) & (condition >= 0) & (condition < conditions)
    place, size = condition[used] * clusters + cluster[used], conditions * clusters
    above, below = sum_by(place, size, values[used]), sum_by(place, size)
    return above.reshape(conditions, clusters), below.reshape(conditions, clusters)


def percentile_interval(
    drawn: Numbers, clusters: Numbers, confidence: float = 0.95, *, bounds: tuple[float, float] = UNBOUNDED
) -> tuple[Numbers, Numbers]:
    """Return the ends of the expanded percentile interval of each row of draws; nan with fewer than two clusters.

    With few clusters the plain percentiles are too narrow; their tails are widened so that the interval is as long as
    the one with Student's t (Hesterberg 2015). Below ten clusters the draws take too few values for that, and each end
    is the farther out of this one and of Student's interval around the mean of the draws. Where all clusters agree,
    there is no interval unless a sign test would find so many significant: six for 95 %. A number that is undefined in
    most draws has none either. No end is outside the bounds of what the number can be, where Student's may be.
    """
    clusters = np.broadcast_to(clusters, len(drawn))
    ordered = np.sort(drawn, axis=1)  # nan comes last
    known = (~np.isnan(ordered)).sum(axis=1)
    df = np.maximum(np.asarray(clusters, dtype=np.float64), 2) - 1
    quantile = student_t_quantiles(df, (1 - confidence) / 2)
    tail = np.array([normal_cdf(number) for number in (np.sqrt((df + 1) / df) * quantile).tolist()])
    low, high = _ordered_quantile(ordered, known, tail), _ordered_quantile(ordered, known, 1 - tail)
    undefined = (clusters < 2) | (known < drawn.shape[1] / 2)
    few = np.flatnonzero(~undefined & (clusters < FEW_CLUSTERS))
    if len(few):
        with np.errstate(invalid="ignore"):  # a draw can be infinite, which leaves the percentiles alone
            mean, spread = row_mean(drawn[few]), np.sqrt(row_variance(drawn[few]))
            half = -quantile[few] * spread * np.sqrt((df[few] + 1) / df[few])
            low[few], high[few] = np.fmin(low[few], mean - half), np.fmax(high[few], mean + half)
        undefined[few] = (spread < _EQUAL) & (_sign_test(clusters[few]) >= 1 - confidence)
    return np.where(undefined, np.nan, np.clip(low, *bounds)), np.where(undefined, np.nan, np.clip(high, *bounds))


def _sign_test(clusters: Numbers) -> Numbers:
    """Return the two-sided p-value of so many clusters that all lie on one side."""
    found: Numbers = 0.5 ** (clusters - 1)
    return found


def proportion_interval(
    proportion: Numbers, drawn: Numbers, trials: Numbers, clusters: Numbers, confidence: float = 0.95
) -> tuple[Numbers, Numbers]:
    """Return Wilson's interval of each proportion, with as many trials as the spread of the draws is worth.

    Unlike percentiles it does not shrink to a point when all trials agree: then every cluster counts as one trial.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = row_variance(drawn) * clusters / (clusters - 1)  # draws of few clusters spread too little
        effective = proportion * (1 - proportion) / spread
        effective = np.where((proportion <= 0) | (proportion >= 1), clusters, np.clip(effective, 1, trials))
        quantile = student_t_quantiles(np.maximum(clusters - 1, 1), (1 + confidence) / 2)
        middle = (proportion + quantile**2 / (2 * effective)) / (1 + quantile**2 / effective)
        half = np.sqrt(proportion * (1 - proportion) / effective + (quantile / (2 * effective)) ** 2) * quantile
        half = half / (1 + quantile**2 / effective)
    low = np.where(proportion <= 0, 0.0, middle - half)  # else a rounding error away from it
    high = np.where(proportion >= 1, 1.0, middle + half)
    undefined = clusters < 2
    return np.where(undefined, np.nan, low), np.where(undefined, np.nan, high)


def row_mean(drawn: Numbers) -> Numbers:
    """Return the mean of each row of draws, leaving out draws in which the number is undefined."""
    known = ~np.isnan(drawn)
    mean: Numbers = np.where(known, drawn, 0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    return mean


def row_variance(drawn: Numbers) -> Numbers:
    """Return the variance of each row of draws, leaving out draws in which the number is undefined."""
    known = ~np.isnan(drawn)
    if known.all():
        return np.asarray(drawn.var(axis=1))
    spread = np.where(known, drawn - row_mean(drawn)[:, None], 0)
    variance: Numbers = (spread**2).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    return variance


def paired_p_value(drawn: Numbers, clusters: int) -> float:
    """Return the two-sided p-value of a difference from its draws: below 0.05 only where its interval leaves out 0.

    It counts the draws on the rarer side of 0, one more than there are, so that at the edge it can be above 0.05 where
    the interval just leaves out 0. Where all draws are on one side, their mean and spread tell how far away 0 is, as in
    a t-test over clusters; below ten clusters these must do so too. Few clusters that all agree get a sign test.
    """
    known = drawn[~np.isnan(drawn)]
    if clusters < 2 or len(known) < len(drawn) / 2:
        return float("nan")
    rarer = min(int((known <= 0).sum()), int((known >= 0).sum()))
    fraction = min(1.0, 2 * (rarer + 1) / (len(known) + 1))
    distance, spread = -normal_quantile(fraction / 2), float(known.std())  # in standard deviations
    agree, few = spread < _EQUAL, clusters < FEW_CLUSTERS
    if few and agree and rarer == 0:
        return float(_sign_test(np.array(float(clusters))))
    if not agree:
        far = abs(float(known.mean())) / spread
        if rarer == 0:
            distance = far if few else max(distance, far)
        elif few:
            distance = min(distance, far)
    return float(min(1.0, 2 * student_t_cdf(clusters - 1, -distance / math.sqrt(clusters / (clusters - 1)))))


def _ordered_quantile(ordered: Numbers, known: Codes, fraction: Numbers) -> Numbers:
    """Return the quantile of each row, of which only the first `known` numbers are there."""
    place = fraction * np.maximum(known - 1, 0)
    below = np.floor(place).astype(np.int64)
    above = np.minimum(below + 1, np.maximum(known - 1, 0))
    rows = np.arange(len(ordered))
    low, high = ordered[rows, below], ordered[rows, above]
    between: Numbers = low + (high - low) * (place - below)
    return between
