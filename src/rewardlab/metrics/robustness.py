"""Severity curves: area, corruption error, last reliable severity."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rewardlab.metrics.clustered_bootstrap import Draws, Numbers, proportion_interval
from rewardlab.metrics.contract import mean_or_nan

Curve = Sequence[float]  # one value per severity from 0 on, nan where unknown


def robustness_auc(curve: Curve) -> float:
    """Return the area under a curve of a higher-is-better metric, over that of staying at its clean value."""
    values = np.asarray(curve, dtype=np.float64)
    if len(values) < 2 or np.isnan(values).any() or values[0] == 0:
        return math.nan
    return float((values[0] / 2 + values[1:-1].sum() + values[-1] / 2) / ((len(values) - 1) * values[0]))


def corruption_error(errors: Curve, reference: Curve) -> float:
    """Return the error summed over severities 1 and up, over that of the reference; nan if that is 0 or unknown."""
    return _quotient(np.sum(errors[1:]), np.sum(reference[1:]))


def mean_corruption_error(errors: Mapping[str, Curve], reference: Mapping[str, Curve]) -> float:
    """Return mCE: the mean corruption error over the perturbations that both models have; nan if there is none."""
    return mean_or_nan(np.asarray([corruption_error(errors[c], reference[c]) for c in errors if c in reference]))


def relative_corruption_error(errors: Mapping[str, Curve], reference: Mapping[str, Curve]) -> float:
    """Return the mean rise of error over the clean error, over that of the reference, as a ratio of means.

    The reference may not get worse at all: then the ratio is nan, and `mean_rise` is what there is to say.
    """
    shared = [c for c in errors if c in reference and not _unknown(errors[c]) and not _unknown(reference[c])]
    below = mean_rise({c: reference[c] for c in shared})
    return _quotient(mean_rise({c: errors[c] for c in shared}), below) if below > 0 else math.nan


def mean_rise(errors: Mapping[str, Curve]) -> float:
    """Return the rise of error over the clean one, mean over perturbations and severities, in the error's own unit."""
    return mean_or_nan(np.asarray([np.mean(curve[1:]) - curve[0] for curve in errors.values() if len(curve) > 1]))


def _unknown(curve: Curve) -> bool:
    return len(curve) < 2 or bool(np.isnan(np.asarray(curve)).any())


def _quotient(above: float, below: float) -> float:
    return float(above / below) if below else math.nan


# The last severity at which a model may be relied on: as measured, certified, and over the draws.

BOTH_TAILS = 0.90  # the confidence of an interval whose lower end is the one-sided 95 % bound
_MOST_CLUSTERS = 10_000


@dataclass(frozen=True)
class CertifiedThreshold:
    """Thresholds as `severity_threshold` gives them, and the fraction of draws in which each severity is the last."""

    measured: int | None
    certified: int | None
    shares: dict[int, float]


def severity_threshold(curve: Curve, least: float) -> int | None:
    """Return the last severity up to which the curve never falls below `least`; -1 if it does at 0, None if unknown.

    `curve` holds one value per severity from 0 on. A missing value ends what can be claimed. With the one-sided lower
    bounds of a curve instead of its values, the result is certified: the severities are tested in order and the first
    failure stops, so that no correction for several tests is needed.
    """
    if not curve or math.isnan(curve[0]):
        return None
    last = -1
    for value in curve:
        if math.isnan(value) or value < least:
            break
        last += 1
    return last


def clusters_to_certify(least: float) -> int | None:
    """Return with how many clusters a model that is never wrong is certified at `least`; None where no number does."""

    def bound(count: int) -> float:
        right, clusters = np.ones(1), np.array([float(count)])
        return float(proportion_interval(right, right[:, None], clusters, clusters, confidence=BOTH_TAILS)[0][0])

    enough = bisect_left(range(_MOST_CLUSTERS), least, lo=2, key=bound)  # the bound rises with the clusters
    return enough if enough < _MOST_CLUSTERS else None


def certified_threshold(right: Numbers, asked: Numbers, draws: Draws, least: float) -> CertifiedThreshold:
    """Return the thresholds of a proportion from its counts per severity (row, from 0 on) and cluster (column).

    Certified means: the one-sided 95 % clustered lower bound stays at `least` or above.
    """
    count, behind = asked.sum(axis=1), (asked > 0).sum(axis=1).astype(np.float64)
    with np.errstate(invalid="ignore"):
        curve = right.sum(axis=1) / count
    drawn = draws.ratios(right, asked)
    bounds, _ = proportion_interval(curve, drawn, count, behind, confidence=BOTH_TAILS)
    last = np.logical_and.accumulate(drawn >= least, axis=0).sum(axis=0) - 1
    severities, times = np.unique(last, return_counts=True)
    shares = {int(severity): float(n / draws.number) for severity, n in zip(severities, times, strict=True)}
    measured, certified = (severity_threshold(values.tolist(), least) for values in (curve, bounds))
    return CertifiedThreshold(measured, certified, shares)
