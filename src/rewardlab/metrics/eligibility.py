"""Which trials a metric is about, whatever the model said: those with the truth, or the answer, that it needs."""

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.trial import TrialTable
from rewardlab.metrics.clustered_bootstrap import sum_by

Mask = NDArray[np.bool_]
Need = Literal[
    "level",
    "success",
    "clean score",
    "unchanged",
    "unfinished",
    "failure",
    "probabilities",
    "progress of successes",
    "progress of failures",
    "true progress",
    "reversed clip",
    "static clip",
]


def asked_for(trials: TrialTable, need: Need) -> Mask:
    """Tell which trials a metric with this need is about; failed ones count, dropped ones do not."""
    return ~trials.matches("status", "dropped") & NEEDS[need](trials)


def answered(trials: TrialTable, need: Need) -> Mask:
    """Tell which of the trials asked for were answered with what the metric reads."""
    scored = asked_for(trials, need) & trials.matches("status", "scored")
    if need == "probabilities":
        return scored & gives(trials, "probabilities")
    return scored & gives(trials, "progress") if need in _NEED_PROGRESS else scored


def gives(trials: TrialTable, column: str) -> Mask:
    """Tell which trials have this list of numbers."""
    return trials.lists(column)[1] > 0


def _labelled(trials: TrialTable) -> Mask:
    """The label holds or is known anew; a cell that failed before its expectation was known still had a truth."""
    kept = trials.matches("expectation", "same") | trials.matches("expectation", "relabel")
    return kept | (trials.matches("status", "failed") & trials.matches("expectation", "undefined"))


def _level(trials: TrialTable) -> Mask:
    return _labelled(trials) & ~np.isnan(trials.number("truth_level"))


def _success(trials: TrialTable) -> Mask:
    return _labelled(trials) & ~np.isnan(trials.number("truth_success"))


def _clean_score(trials: TrialTable) -> Mask:
    return ~trials.matches("expectation", "undefined") & ~np.isnan(trials.number("clean_level"))


def _true_progress(trials: TrialTable) -> Mask:
    return gives(trials, "truth_progress")


def _reversed(trials: TrialTable) -> Mask:
    whole: Mask = trials.number("severity") == 4
    return trials.matches("perturbation", "reverse") & whole


def _static(trials: TrialTable) -> Mask:
    """More than one frame is shown, and all of them are the same one."""
    shown, lengths = trials.lists("shown")
    owner = np.repeat(np.arange(len(lengths)), lengths)
    starts = np.cumsum(lengths) - lengths
    moved = sum_by(owner, len(lengths), (shown != shown[starts[owner]]).astype(np.float64))
    mask: Mask = (lengths > 1) & (moved == 0)
    return mask


NEEDS: dict[Need, Callable[[TrialTable], Mask]] = {
    "level": _level,
    "success": _success,
    "clean score": _clean_score,
    "unchanged": lambda trials: _clean_score(trials) & trials.matches("expectation", "same"),
    "unfinished": lambda trials: _level(trials) & (trials.number("truth_level") <= 3),
    "failure": lambda trials: _level(trials) & (trials.number("truth_success") == 0),
    "probabilities": _level,
    "progress of successes": lambda trials: _success(trials) & (trials.number("truth_success") == 1),
    "progress of failures": lambda trials: _success(trials) & (trials.number("truth_success") == 0),
    "true progress": _true_progress,
    "reversed clip": _reversed,
    "static clip": _static,
}
_NEED_PROGRESS = frozenset(
    {"progress of successes", "progress of failures", "true progress", "reversed clip", "static clip"}
)
OPTIONAL = _NEED_PROGRESS | {"probabilities"}  # answers that many models do not give at all
