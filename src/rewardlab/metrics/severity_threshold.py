"""The last severity at which a model may be relied on: as measured, certified, and over the draws."""

from dataclasses import dataclass

import numpy as np

from rewardlab.metrics.clustered_bootstrap import Draws, rate_interval
from rewardlab.metrics.contract import Numbers
from rewardlab.metrics.robustness_curve import reliability_threshold


@dataclass(frozen=True)
class Reliability:
    """Thresholds as `reliability_threshold` gives them, and the share of draws in which each severity is the last."""

    plain: float
    certified: float
    shares: dict[int, float]


def reliability(right: Numbers, asked: Numbers, draws: Draws, least: float) -> Reliability:
    """Return the thresholds of a rate from its counts per severity (row, from 0 on) and cluster (column).

    Certified means: the one-sided 95 % clustered lower bound stays at `least` or above. The severities are tested in
    order and the first failure stops, so that no correction for several tests is needed.
    """
    count, behind = asked.sum(axis=1), (asked > 0).sum(axis=1).astype(np.float64)
    with np.errstate(invalid="ignore"):
        curve = right.sum(axis=1) / count
    drawn = draws.ratios(right, asked)
    bounds, _ = rate_interval(curve, drawn, count, behind, confidence=0.90)
    last = np.logical_and.accumulate(drawn >= least, axis=0).sum(axis=0) - 1
    severities, times = np.unique(last, return_counts=True)
    shares = {int(severity): float(n / draws.number) for severity, n in zip(severities, times)}
    plain, certified = (reliability_threshold(values.tolist(), least) for values in (curve, bounds))
    return Reliability(plain, certified, shares)
