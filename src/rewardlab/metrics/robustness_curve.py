"""How far a model can be pushed: numbers of a whole severity curve, and of many curves against a reference model."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

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
