"""Rank agreement between scores and true levels."""

import math

import numpy as np

from rewardlab.core.trial import TrialTable
from rewardlab.metrics.contract import metric


@metric(better="higher")
def kendall_tau_b(trials: TrialTable) -> float:
    """Kendall's tau-b between scores and true levels over all pairs; nan if either is constant."""
    from scipy.stats import kendalltau

    scores, truths = trials.number("level"), trials.number("truth_level")
    if len(np.unique(scores)) < 2 or len(np.unique(truths)) < 2:
        return math.nan
    return float(kendalltau(scores, truths).statistic)
