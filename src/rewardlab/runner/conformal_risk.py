"""Conformal risk control over tasks, and the logistic regression that orders claims by their risk."""

import math

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]

_PENALTY = 0.1  # of squared weights, per clip: features are in standard deviations


def fit_logistic(features: Numbers, true: Flags) -> tuple[Numbers, float]:
    """Return weights and bias of the logistic regression of `true` on features (n, k), with a ridge penalty."""
    from scipy.optimize import minimize

    sign, design = np.where(true, 1.0, -1.0), np.hstack([features, np.ones((len(features), 1))])

    def loss(weights: Numbers) -> tuple[float, Numbers]:
        margin = sign * (design @ weights)
        penalty = _PENALTY * weights * np.append(np.ones(len(weights) - 1), 0.0)
        gradient = -(design * (sign / (1 + np.exp(np.clip(margin, -50, 50))))[:, None]).mean(axis=0)
        return float(np.logaddexp(0, -margin).mean() + 0.5 * weights @ penalty), gradient + penalty

    found: Numbers = minimize(loss, np.zeros(design.shape[1]), jac=True, method="L-BFGS-B").x
    return found[:-1], float(found[-1])


def control_risk(risks: Numbers, claimed: Flags, tasks: NDArray[np.int64], rate: float) -> float | None:
    """Return the highest threshold on risk at which claims on failed clips stay within `rate` for the next task.

    Given are failed clips: their risks, whether a success was claimed, and their tasks, which are the exchangeable
    units. A task's loss is the share of its clips whose claim passes; its expectation for a new task of the same kind
    is at most `rate` (conformal risk control, theorem 1). None where no claim may pass.
    """
    units, group = np.unique(tasks, return_inverse=True)
    count, clips = len(units), np.bincount(group)
    best = None
    for threshold in np.unique(risks[claimed]):
        passed = claimed & (risks <= threshold)
        losses = np.bincount(group, passed, minlength=count) / clips
        if (losses.sum() + 1) / (count + 1) > rate:
            break
        best = float(threshold)
    return best if best is not None and not math.isnan(best) else None


def least_units(rate: float) -> int:
    """Return how many tasks it takes to guarantee a rate: with fewer, not even silence does."""
    return max(1, math.ceil(1 / rate) - 1)
