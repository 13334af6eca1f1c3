"""False reward: levels given for what was not done."""

import numpy as np

from rewardlab.core.trial import TrialTable
from rewardlab.metrics.contract import Numbers, mean_metric, where_known
from rewardlab.metrics.error_and_accuracy import rounded


@mean_metric(better="lower", eligibility="unfinished", rate=True)
def false_success_rate(trials: TrialTable) -> Numbers:
    """Share of episodes at true level 3 or below that are judged a success (level 5 after rounding)."""
    level, truth = rounded(trials.number("level")), trials.number("truth_level")
    return np.where(truth <= 3, where_known(level == 5, level, truth), np.nan)


@mean_metric(better="lower", eligibility="failure")
def over_reward_on_failure(trials: TrialTable) -> Numbers:
    """Mean levels above the true one on failed episodes; a score below the true level counts 0."""
    excess = np.maximum(trials.number("level") - trials.number("truth_level"), 0)
    return np.where(trials.number("truth_success") == 0, excess, np.nan)
