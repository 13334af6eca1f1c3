"""What a change that keeps the label does to the score: flips and shifts against the clean answer."""

import numpy as np

from rewardlab.core.trial import TrialTable
from rewardlab.metrics.contract import Display, Numbers, mean_metric, where_known
from rewardlab.metrics.error_and_accuracy import rounded


@mean_metric(better="lower", eligibility="unchanged", display=Display("flips", perturbation_table=True), rate=True)
def flip_rate(trials: TrialTable) -> Numbers:
    """Share of cells whose rounded level differs from the clean one though the label is the same; needs no label."""
    level, clean = rounded(trials.number("level")), rounded(trials.number("clean_level"))
    return where_known(level != clean, level, clean)


@mean_metric(better="lower", eligibility="unchanged")
def level_shift(trials: TrialTable) -> Numbers:
    """Mean distance in levels from the clean score though the label is the same."""
    return np.abs(trials.number("level") - trials.number("clean_level"))


@mean_metric(better="lower", eligibility="unchanged", display=Display(axis=(-4.0, 4.0), perturbation_table=True))
def signed_shift(trials: TrialTable) -> Numbers:
    """Mean change in levels from the clean score though the label is the same; above 0 the reward is inflated."""
    return trials.number("level") - trials.number("clean_level")
