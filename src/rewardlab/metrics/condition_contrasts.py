"""Weighted sums of the means of conditions, under the same draws: averages, differences and differences of those."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rewardlab.metrics.clustered_bootstrap import Draws, condition_sums, percentile_interval, rate_interval

Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]
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
    """The sums and counts per condition (row) and cluster (column) of a number; `rate` says that it is 0 or 1."""

    places: Mapping[Condition, int]
    above: Numbers
    below: Numbers
    draws: Draws
    rate: bool

    def count(self, weights: Weights) -> int:
        """Return how many trials are behind some conditions."""
        return int(sum(self.below[self.places[c]].sum() for c in weights if c in self.places))

    def combined(self, weights: Weights, confidence: float = 0.95) -> ContrastEstimate:
        """Return the weighted sum of means with its interval; nan where a condition has no trial.

        A single rate has the interval that it has everywhere else. Of several conditions, the one with the fewest
        clusters decides how much the interval is widened.
        """
        if not weights or any(condition not in self.places for condition in weights):
            return ContrastEstimate(math.nan, math.nan, math.nan, 0)
        rows = [self.places[condition] for condition in weights]
        above, below, shares = self.above[rows], self.below[rows], np.array(list(weights.values()))
        count, behind = below.sum(axis=1), (below > 0).sum(axis=1).astype(np.float64)
        means, drawn = above.sum(axis=1) / count, self.draws.ratios(above, below)
        if self.rate and shares.tolist() == [1.0]:
            ends = rate_interval(means, drawn, count, behind, confidence)
        else:
            ends = percentile_interval((shares @ drawn)[None, :], behind.min(keepdims=True), confidence)
        return ContrastEstimate(float(shares @ means), float(ends[0][0]), float(ends[1][0]), int(behind.min()))


def condition_means(
    values: Numbers, cluster: Codes, columns: Sequence[Column], draws: Draws, *, rate: bool = False
) -> ConditionMeans:
    """Return the means of a number, nan where a trial does not count, in every condition that the columns make."""
    codes = np.stack([code for code, _ in columns], axis=1)
    used = ~np.isnan(values) & (codes >= 0).all(axis=1)
    found, place = np.unique(codes[used], axis=0, return_inverse=True)
    sums = condition_sums(values[used], cluster[used], place.ravel(), len(found), draws.clusters)
    names = [tuple(names[code] for code, (_, names) in zip(row, columns)) for row in found.tolist()]
    return ConditionMeans({name: row for row, name in enumerate(names)}, *sums, draws, rate)


def less(first: Weights, second: Weights) -> dict[Condition, float]:
    """Return the weights of the first sum less the second."""
    return dict(first) | {condition: first.get(condition, 0.0) - weight for condition, weight in second.items()}


def mean_of(*sums: Weights) -> dict[Condition, float]:
    """Return the weights of the plain mean of several sums that share no condition."""
    return {condition: weight / len(sums) for one in sums for condition, weight in one.items()}
