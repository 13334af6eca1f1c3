"""Whether a model did what the perturbation expects of a sound one; needs no label."""

import numpy as np

from rewardlab.core.trial import TrialTable
from rewardlab.metrics.contract import metric
from rewardlab.metrics.error import mean_or_nan, rounded


@metric(better="higher", needs="clean score")
def expectation_kept(trials: TrialTable) -> float:
    """Share of cells that kept the expectation: same level as clean, not above clean, or the changed true level."""
    expected = trials.text("expectation")
    level, clean = rounded(trials.number("level")), rounded(trials.number("clean_level"))
    kept = np.select(
        [expected == "same", expected == "lower", expected == "relabel"],
        [level == clean, level <= clean, level == trials.number("truth_level")],
        default=False,
    )
    known = np.isin(expected, ["same", "lower", "relabel"])
    return mean_or_nan(kept[known].astype(np.float64))
