"""Eligibility: which trials a metric is about, whatever the model said, and which of those were answered."""

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.trial import TrialTable
from rewardlab.metrics.clustered_bootstrap import sum_by

Mask = NDArray[np.bool_]
Numbers = NDArray[np.float64]
Eligibility = Literal[
    "level",
    "success",
    "clean score",
    "unchanged",
    "unfinished",
    "failure",
    "every failure",
    "every success",
    "true level 1",
    "true level 2",
    "true level 3",
    "true level 4",
    "near miss or success",
    "probabilities",
    "progress of successes",
    "progress of failures",
    "true progress",
    "reversed clip",
    "static clip",
]


def eligible(trials: TrialTable, eligibility: Eligibility) -> Mask:
    """Tell which trials a metric of this eligibility is about; failed ones count, dropped ones do not."""
    return ~trials.matches("status", "dropped") & _RULES[eligibility](trials)


def answered(trials: TrialTable, eligibility: Eligibility) -> Mask:
    """Tell which of the eligible trials were answered with what the metric reads."""
    scored = eligible(trials, eligibility) & trials.matches("status", "scored")
    if eligibility == "probabilities":
        return scored & has_values(trials, "probabilities")
    return scored & has_values(trials, "progress") if eligibility in _READ_PROGRESS else scored


def has_values(trials: TrialTable, column: str) -> Mask:
    """Tell which trials have this list of numbers."""
    found: Mask = trials.list_lengths(column) > 0
    return found


def _labelled(trials: TrialTable) -> Mask:
    """The label holds or is known anew; a cell that failed before its expectation was known still had a truth."""
    kept = trials.matches("expectation", "same") | trials.matches("expectation", "relabel")
    return kept | (trials.matches("status", "failed") & trials.matches("expectation", "undefined"))


def _level(trials: TrialTable) -> Mask:
    return _labelled(trials) & ~np.isnan(trials.number("truth_level"))


def _success(trials: TrialTable) -> Mask:
    return _labelled(trials) & ~np.isnan(trials.number("truth_success"))


def _of_outcome(*, success: bool) -> Callable[[TrialTable], Mask]:
    """Return the rule for episodes that succeeded, or that did not, whether or not their level is known."""

    def rule(trials: TrialTable) -> Mask:
        mask: Mask = _success(trials) & (trials.number("truth_success") == success)
        return mask

    return rule


def _at_level(*levels: int) -> Callable[[TrialTable], Mask]:
    """Return the rule for episodes whose true level is one of these."""

    def rule(trials: TrialTable) -> Mask:
        mask: Mask = _level(trials) & np.isin(trials.number("truth_level"), levels)
        return mask

    return rule


def _clean_score(trials: TrialTable) -> Mask:
    return ~trials.matches("expectation", "undefined") & ~np.isnan(trials.number("clean_level"))


def _true_progress(trials: TrialTable) -> Mask:
    return has_values(trials, "truth_progress")


def _reversed(trials: TrialTable) -> Mask:
    whole: Mask = trials.number("severity") == 4
    return trials.matches("perturbation", "reverse") & whole


def _static(trials: TrialTable) -> Mask:
    """More than one frame is shown, and all of them are the same one."""
    mask: Mask = (trials.list_lengths("shown") > 1) & (trials.derived("moves between frames", _moves) == 0)
    return mask


def _moves(trials: TrialTable) -> Numbers:
    """Return how many of the frames shown are not the first."""
    return np.concatenate([np.zeros(0), *(_moves_in(block) for block in trials.blocks())])


def _moves_in(trials: TrialTable) -> Numbers:
    shown, lengths = trials.lists("shown")
    owner = np.repeat(np.arange(len(lengths)), lengths)
    starts = np.cumsum(lengths) - lengths
    return sum_by(owner, len(lengths), (shown != shown[starts[owner]]).astype(np.float64))


_RULES: dict[Eligibility, Callable[[TrialTable], Mask]] = {
    "level": _level,
    "success": _success,
    "clean score": _clean_score,
    "unchanged": lambda trials: _clean_score(trials) & trials.matches("expectation", "same"),
    "unfinished": lambda trials: _level(trials) & (trials.number("truth_level") <= 3),
    "failure": lambda trials: _level(trials) & (trials.number("truth_success") == 0),
    "every failure": _of_outcome(success=False),
    "every success": _of_outcome(success=True),
    "true level 1": _at_level(1),
    "true level 2": _at_level(2),
    "true level 3": _at_level(3),
    "true level 4": _at_level(4),
    "near miss or success": _at_level(4, 5),
    "probabilities": _level,
    "progress of successes": _of_outcome(success=True),
    "progress of failures": _of_outcome(success=False),
    "true progress": _true_progress,
    "reversed clip": _reversed,
    "static clip": _static,
}
_READ_PROGRESS = frozenset(
    {"progress of successes", "progress of failures", "true progress", "reversed clip", "static clip"}
)
OPTIONAL = _READ_PROGRESS | {"probabilities"}  # answers that many models do not give at all
