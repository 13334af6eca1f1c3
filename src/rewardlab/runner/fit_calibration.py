"""Fitting a calibration: a temperature, and the threshold of split-conformal sets."""

import math

import numpy as np
from numpy.typing import NDArray

from rewardlab.models.calibrated import LEAST_PROB, apply_temperature

Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]
COLDEST, HOTTEST = 0.05, 20.0  # temperatures tried


def negative_log_likelihood(probs: Numbers, truth: Codes) -> float:
    """Return the mean surprise of true levels 0 to 4 under probabilities (n, 5); nan of nothing."""
    said = np.maximum(probs[np.arange(len(truth)), truth], LEAST_PROB)
    return float(-np.log(said).mean()) if len(truth) else math.nan


def fit_temperature(probs: Numbers, truth: Codes) -> float:
    """Return the temperature under which true levels 0 to 4 are least surprising."""
    from scipy.optimize import minimize_scalar

    def surprise(log_temperature: float) -> float:
        return negative_log_likelihood(apply_temperature(probs, math.exp(log_temperature)), truth)

    bounds = (math.log(COLDEST), math.log(HOTTEST))
    return float(math.exp(minimize_scalar(surprise, bounds=bounds, method="bounded").x))


def conformal_threshold(strange: Numbers, coverage: float) -> float | None:
    """Return how strange a level may be, so that the next truth is no stranger with this chance; None of too few."""
    place = math.ceil((len(strange) + 1) * coverage)
    return float(np.sort(strange)[place - 1]) if place <= len(strange) else None
