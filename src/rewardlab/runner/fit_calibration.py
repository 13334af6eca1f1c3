"""Fitting a calibration: a temperature, and the quantile of split-conformal sets."""

import math

import numpy as np
from numpy.typing import NDArray

from rewardlab.models.calibrated import MIN_PROB, apply_temperature

Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0  # of the search


def negative_log_likelihood(probs: Numbers, truth: Codes) -> float:
    """Return the mean negative log-likelihood of true levels 0 to 4 under probabilities (n, 5); nan of nothing."""
    likelihood = np.maximum(probs[np.arange(len(truth)), truth], MIN_PROB)
    return float(-np.log(likelihood).mean()) if len(truth) else math.nan


def fit_temperature(probs: Numbers, truth: Codes) -> float:
    """Return the temperature that minimises the negative log-likelihood of true levels 0 to 4."""
    from scipy.optimize import minimize_scalar

    def loss(log_temperature: float) -> float:
        return negative_log_likelihood(apply_temperature(probs, math.exp(log_temperature)), truth)

    bounds = (math.log(MIN_TEMPERATURE), math.log(MAX_TEMPERATURE))
    return float(math.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x))


def conformal_quantile(nonconformities: Numbers, coverage: float) -> float | None:
    """Return the split-conformal quantile of nonconformity scores: the next truth is at most there with probability
    `coverage`; None where there are too few scores for it.
    """
    rank = math.ceil((len(nonconformities) + 1) * coverage)
    return float(np.sort(nonconformities)[rank - 1]) if rank <= len(nonconformities) else None
