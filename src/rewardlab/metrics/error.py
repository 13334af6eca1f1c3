"""Errors against the true level: mean absolute error and accuracies."""

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.trial import TrialTable
from rewardlab.metrics.contract import metric


def mean_or_nan(values: NDArray[np.float64]) -> float:
    """Return the mean, nan of nothing."""
    return float(values.mean()) if len(values) else float("nan")


def rounded(levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round half up to whole levels, so that 4.5 is a 5 everywhere."""
    return np.floor(levels + 0.5)


def _errors(trials: TrialTable) -> NDArray[np.float64]:
    return np.abs(trials.number("level") - trials.number("truth_level"))


@metric(better="lower")
def macro_mae(trials: TrialTable) -> float:
    """Mean over subsets of the mean absolute error in levels, the headline of RoboRewardBench."""
    errors, subsets = _errors(trials), trials.text("subset")
    means = [mean_or_nan(errors[subsets == name]) for name in np.unique(subsets)]
    return mean_or_nan(np.asarray(means))


@metric(better="lower")
def micro_mae(trials: TrialTable) -> float:
    """Mean absolute error in levels over all episodes."""
    return mean_or_nan(_errors(trials))


@metric(better="higher")
def exact_accuracy(trials: TrialTable) -> float:
    """Share of episodes whose rounded level is the true one."""
    return mean_or_nan((rounded(trials.number("level")) == trials.number("truth_level")).astype(np.float64))


@metric(better="higher")
def within_one_accuracy(trials: TrialTable) -> float:
    """Share of episodes whose rounded level is at most one off."""
    distance = np.abs(rounded(trials.number("level")) - trials.number("truth_level"))
    return mean_or_nan((distance <= 1).astype(np.float64))


@metric(better="higher", needs="success")
def success_accuracy(trials: TrialTable) -> float:
    """Share of episodes judged rightly as success (level 5 after rounding) or not."""
    said = rounded(trials.number("level")) == 5
    return mean_or_nan((said == (trials.number("truth_success") == 1)).astype(np.float64))
