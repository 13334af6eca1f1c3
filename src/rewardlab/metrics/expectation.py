"""Whether a model did what the perturbation expects of a sound one; needs no label."""

import numpy as np

from rewardlab.core.trial import TrialTable
from rewardlab.metrics.contract import Display, Numbers, mean_metric, where_known
from rewardlab.metrics.error_and_accuracy import rounded
from rewardlab.metrics.progress_order import order_correlations


@mean_metric(
    better="higher",
    eligibility="clean score",
    display=Display("kept", "expectations kept", curve=True, heat_map=True, perturbation_table=True),
    rate=True,
)
def expectation_kept(trials: TrialTable) -> Numbers:
    """Share of cells that kept the expectation: same level as clean, not above clean, the changed true level, or
    progress that runs the other way."""
    level, clean = rounded(trials.number("level")), rounded(trials.number("clean_level"))
    truth = trials.number("truth_level")
    kept = np.full(len(trials), np.nan)
    for name, result in (
        ("same", where_known(level == clean, level, clean)),
        ("lower", where_known(level <= clean, level, clean)),
        ("relabel", where_known(level == truth, level, truth)),
        ("reversed", _turned(trials) if trials.matches("expectation", "reversed").any() else kept),
    ):
        kept = np.where(trials.matches("expectation", name), result, kept)
    return kept


def _turned(trials: TrialTable) -> Numbers:
    """Tell whether progress as shown runs against its order on the clean clip; nan where either has no order."""
    now, before = order_correlations(trials), trials.number("clean_order")
    return where_known(now * before < 0, now, before)
