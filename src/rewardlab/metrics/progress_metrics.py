"""Per-frame progress: does it follow time, does it notice that time runs backwards, does it fire too early?"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import LEVEL_STARTS
from rewardlab.core.trial import TrialTable
from rewardlab.metrics.contract import Display, Numbers, mean_metric
from rewardlab.metrics.progress_order import (
    by_length,
    in_blocks,
    order_correlations,
    row_correlations,
    row_tau_b,
    row_tau_b_ceiling,
)

FIRES = 0.875  # progress that rounds to level 5 on the scale from 1 to 5


@mean_metric(better="higher", eligibility="progress of successes")
def value_order_correlation(trials: TrialTable) -> Numbers:
    """Spearman's correlation of progress with time on successes (VOC); a blind clock scores 1, a constant nan."""
    return order_correlations(trials)


@mean_metric(better="lower", eligibility="progress of failures")
def value_order_correlation_on_failures(trials: TrialTable) -> Numbers:
    """The same on failed episodes, where progress should not keep rising; near 1 it only tells the time."""
    return order_correlations(trials)


@mean_metric(better="lower", eligibility="static clip")
def static_video_order_correlation(trials: TrialTable) -> Numbers:
    """The same on clips that show one frame over and over; anything but nan or 0 is made up."""
    return order_correlations(trials)


@mean_metric(better="higher", eligibility="reversed clip")
def order_sensitivity(trials: TrialTable) -> Numbers:
    """Half of the VOC of the clean clip less that of the reversed clip as shown; ideal 1, a clock scores 0."""
    return (trials.number("clean_order") - order_correlations(trials)) / 2


def _with_truth(trials: TrialTable) -> list[tuple[NDArray[np.int64], Numbers, Numbers]]:
    """Return, per length, the trials whose progress and true progress match: places, progress, true progress."""
    flat, lengths = trials.lists("progress")
    truth, known = trials.lists("truth_progress")
    both = (lengths == known) & (lengths > 0)
    said = by_length(flat[np.repeat(both, lengths)], lengths[both])
    true = by_length(truth[np.repeat(both, known)], lengths[both])
    places = np.flatnonzero(both)
    return [(places[rows], progress, actual) for (rows, progress), (_, actual) in zip(said, true)]


def _against_truth(trials: TrialTable, compute: Callable[[Numbers, Numbers], Numbers]) -> Numbers:
    """Return one number per trial from its progress and the true one, nan where one of them is missing."""
    found = np.full(len(trials), np.nan)
    for rows, progress, truth in _with_truth(trials):
        found[rows] = compute(progress, truth)
    return found


@mean_metric(better="higher", eligibility="true progress")
def progress_correlation(trials: TrialTable) -> Numbers:
    """Mean over episodes of Pearson's correlation of progress with the true progress; nan if either is constant."""
    return in_blocks(trials, lambda block: _against_truth(block, row_correlations))


@mean_metric(better="higher", eligibility="true progress", display=Display(ceiling="progress_tau_b_ceiling"))
def progress_tau_b(trials: TrialTable) -> Numbers:
    """Mean over episodes of Kendall's tau-b of progress with the true progress; nan if either is constant."""
    return trials.derived("tau of progress", _taus)


def _taus(trials: TrialTable) -> Numbers:
    return in_blocks(trials, lambda block: _against_truth(block, row_tau_b))


@mean_metric(better="higher", eligibility="true progress")
def progress_tau_b_ceiling(trials: TrialTable) -> Numbers:
    """Mean over the same episodes of the most that progress without ties can reach, as true progress has ties."""
    reached = in_blocks(trials, lambda block: _against_truth(block, lambda _, truth: row_tau_b_ceiling(truth)))
    return np.where(np.isnan(trials.derived("tau of progress", _taus)), np.nan, reached)


@mean_metric(better="lower", eligibility="true progress", rate=True)
def early_fire_rate(trials: TrialTable) -> Numbers:
    """Share of episodes in which progress reads as success (0.875 or more) at a frame where the truth does not yet."""
    return in_blocks(trials, lambda block: _against_truth(block, _fires_early(FIRES)))


@mean_metric(better="lower", eligibility="true progress", display=Display("early 5", wrong_reward=True), rate=True)
def early_level_5_rate(trials: TrialTable) -> Numbers:
    """Share of episodes in which progress reaches where level 5 begins (1.0) at a frame at which the truth has not."""
    return in_blocks(trials, lambda block: _against_truth(block, _fires_early(LEVEL_STARTS[-1])))


def _fires_early(start: float) -> Callable[[Numbers, Numbers], Numbers]:
    def fires(progress: Numbers, truth: Numbers) -> Numbers:
        return np.asarray(((progress >= start) & (truth < start)).any(axis=1), dtype=np.float64)

    return fires
