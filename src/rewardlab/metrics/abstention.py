"""The answer that a clip does not show what is asked: given where it is right, and where it is not.

A model of the protocol `abstain` may give it. It is no level, so such a trial is failed and lowers the coverage of
every metric of levels; here it is what counts.
"""

from rewardlab.core.trial_table import TrialTable
from rewardlab.metrics.clustered_bootstrap import Numbers
from rewardlab.metrics.contract import Display, mean_metric


@mean_metric(
    better="higher",
    eligibility="hidden end",
    display=Display("abstention recall", perturbation_table=True),
    proportion=True,
)
def abstention_recall(trials: TrialTable) -> Numbers:
    """Share of clips whose end is hidden (`covered_end` at severity 3 and 4) on which the model abstains."""
    return trials.number("abstained")


@mean_metric(
    better="lower", eligibility="visible end", display=Display("false abstentions", headline=True), proportion=True
)
def false_abstention_rate(trials: TrialTable) -> Numbers:
    """Share of clips that show the outcome, clean or with a change that keeps the label, where the model abstains."""
    return trials.number("abstained")
