"""What a metric is: a named number of trials, and how it moves when clusters of trials are drawn again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.trial import TrialTable
from rewardlab.metrics.clustered_bootstrap import Draws, Means
from rewardlab.metrics.eligibility import Need

Better = Literal["higher", "lower"]
Numbers = NDArray[np.float64]
Values = Callable[[TrialTable], Numbers]  # one number per trial, nan where the trial does not count
Resample = Callable[[TrialTable, Draws], Numbers]  # the metric under every draw
# The metric of many conditions at once, given the condition of each trial; None where one by one is the better way.
Many = Callable[[TrialTable, NDArray[np.int64], int, Draws], Means | None]


@dataclass(frozen=True)
class Metric:
    """A named number of a set of trials; `needs` says which trials it is about.

    Where the metric is a mean, `values` are what it is the mean of. Else `resample` gives it under every draw of
    clusters. With neither, the metric has no interval: it is biased under resampling and is read against its null.
    """

    name: str
    summary: str
    better: Better
    needs: Need
    compute: Callable[[TrialTable], float]
    values: Values | None = None
    resample: Resample | None = None
    many: Many | None = None  # a faster way to the same numbers and intervals
    rate: bool = False  # a share of trials, so that its interval is Wilson's

    def __call__(self, trials: TrialTable) -> float:
        """Return the number, nan if no trial can be used."""
        return self.compute(trials)


def metric(
    better: Better, needs: Need = "level", resample: Resample | None = None, many: Many | None = None
) -> Callable[[Callable[[TrialTable], float]], Metric]:
    """Turn a function of trials into a metric named like the function."""

    def wrap(compute: Callable[[TrialTable], float]) -> Metric:
        return Metric(compute.__name__, _summary(compute), better, needs, compute, resample=resample, many=many)

    return wrap


def mean_metric(better: Better, needs: Need = "level", *, rate: bool = False) -> Callable[[Values], Metric]:
    """Turn a function that gives one number per trial into the metric that is their mean; nan does not count."""

    def wrap(values: Values) -> Metric:
        def compute(trials: TrialTable) -> float:
            return mean_or_nan(values(trials))

        return Metric(values.__name__, _summary(values), better, needs, compute, values, rate=rate)

    return wrap


def mean_or_nan(values: Numbers) -> float:
    """Return the mean of the numbers that are there, nan of nothing."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def where_known(truth: NDArray[np.bool_], *known: Numbers) -> Numbers:
    """Return 1 and 0 for true and false, nan where one of the numbers behind it is missing."""
    missing = np.isnan(np.asarray(known)).any(axis=0)
    return np.where(missing, np.nan, truth.astype(np.float64))


def _summary(function: Callable[..., object]) -> str:
    return " ".join((function.__doc__ or "").split())
