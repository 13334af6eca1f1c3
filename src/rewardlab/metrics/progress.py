"""Per-frame progress against time and truth."""

from collections.abc import Callable
from functools import partial

import numpy as np

from rewardlab.core.episode import LEVEL_STARTS
from rewardlab.core.trial_table import TrialTable
from rewardlab.metrics.clustered_bootstrap import CORRELATION, NOT_NEGATIVE, Codes, Numbers
from rewardlab.metrics.contract import Display, in_blocks, mean_metric


def order_correlations(trials: TrialTable) -> Numbers:
    """Return Spearman's correlation of each trial's progress with time as shown; nan if constant or missing."""
    return trials.derived("order of progress", lambda whole: in_blocks(whole, _order_correlations))


def _order_correlations(trials: TrialTable) -> Numbers:
    flat, lengths = trials.lists("progress")
    found = np.full(len(lengths), np.nan)
    for rows, progress in by_length(flat, lengths):
        time = np.arange(progress.shape[1], dtype=np.float64)
        found[rows] = row_correlations(row_ranks(progress), np.broadcast_to(time, progress.shape))
    return found


def row_ranks(values: Numbers) -> Numbers:
    """Return the rank of each number within its row, from 0; tied numbers share their mean rank."""
    order = np.argsort(values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    place = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    new = np.diff(ordered, axis=1, prepend=np.nan) != 0
    first = np.maximum.accumulate(np.where(new, place, 0), axis=1)
    last_of_run = np.append(new[:, 1:], np.ones((len(values), 1), dtype=bool), axis=1)
    last = np.minimum.accumulate(np.where(last_of_run, place, values.shape[1])[:, ::-1], axis=1)[:, ::-1]
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, (first + last) / 2, axis=1)
    return ranks


def by_length(flat: Numbers, lengths: Codes) -> list[tuple[Codes, Numbers]]:
    """Return the lists in groups of one length: their places, and the lists as rows; empty lists are left out."""
    starts = np.cumsum(lengths) - lengths
    groups = []
    for length in np.unique(lengths[lengths > 0]):
        rows = np.flatnonzero(lengths == length)
        groups.append((rows, flat[starts[rows][:, None] + np.arange(length)]))
    return groups


def row_correlations(a: Numbers, b: Numbers) -> Numbers:
    """Return Pearson's correlation of each row of one table with the same row of the other; nan if one is constant."""
    a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    scale = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    varied = (np.ptp(a, axis=1) > 0) & (np.ptp(b, axis=1) > 0) & (scale > 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(varied, (a * b).sum(axis=1) / scale, np.nan)


def row_tau_b_ceiling(truth: Numbers) -> Numbers:
    """Return the most that tau-b of values without ties can be with each row, given its ties; nan if it is constant."""
    untied = np.zeros(len(truth))
    for lag in range(1, truth.shape[1]):
        untied += (truth[:, lag:] != truth[:, :-lag]).sum(axis=1)
    pairs = truth.shape[1] * (truth.shape[1] - 1) / 2
    return np.where(untied > 0, np.sqrt(untied / max(pairs, 1)), np.nan)


def row_tau_b(a: Numbers, b: Numbers) -> Numbers:
    """Return Kendall's tau-b of each row of one table with the same row of the other; nan if one is constant."""
    balance, untied_a, untied_b = np.zeros((3, len(a)))
    for lag in range(1, a.shape[1]):
        up, down = np.sign(a[:, lag:] - a[:, :-lag]), np.sign(b[:, lag:] - b[:, :-lag])
        balance += (up * down).sum(axis=1)
        untied_a += np.abs(up).sum(axis=1)
        untied_b += np.abs(down).sum(axis=1)
    with np.errstate(invalid="ignore"):
        found: Numbers = balance / np.sqrt(untied_a * untied_b)
    return found


# A change in the middle: what the reward does from then on, against the twin that does not change.


def late_progress(trials: TrialTable) -> tuple[Numbers, Numbers]:
    """Return the mean of each trial's progress from the middle frame on, and progress at that frame; nan if missing."""
    late = trials.derived("late progress", partial(_from_middle, frames=None))
    return late, trials.derived("progress in the middle", partial(_from_middle, frames=1))


def _from_middle(trials: TrialTable, frames: int | None) -> Numbers:
    """Return the mean of progress over so many frames from the middle one on, or over all of them."""

    def of_block(block: TrialTable) -> Numbers:
        flat, lengths = block.lists("progress")
        found = np.full(len(lengths), np.nan)
        for rows, progress in by_length(flat, lengths):
            found[rows] = progress[:, progress.shape[1] // 2 :][:, :frames].mean(axis=1)
        return found

    return in_blocks(trials, of_block)


@mean_metric(
    better="lower",
    eligibility="changed midway",
    display=Display("shift after the middle", axis=(-1.0, 1.0), midway=True),
)
def midway_shift(trials: TrialTable) -> Numbers:
    """Mean change of progress from the middle of the clip on, against the clip without the change; above 0 it is
    inflated. Changed instructions count as if they changed in the middle.
    """
    return late_progress(trials)[0] - trials.number("clean_late")


@mean_metric(
    better="lower",
    eligibility="changed midway",
    display=Display("jump in the middle", midway=True),
    bounds=NOT_NEGATIVE,
)
def midway_jump(trials: TrialTable) -> Numbers:
    """Mean distance of progress from that of the clip without the change, at the first frame after the middle."""
    return np.abs(late_progress(trials)[1] - trials.number("clean_middle"))


FIRES = 0.875  # progress that rounds to level 5 on the scale from 1 to 5


@mean_metric(better="higher", eligibility="progress of successes", bounds=CORRELATION)
def value_order_correlation(trials: TrialTable) -> Numbers:
    """Spearman's correlation of progress with time on successes (VOC); the length baseline scores 1, a constant nan."""
    return order_correlations(trials)


@mean_metric(better="lower", eligibility="progress of failures", bounds=CORRELATION)
def value_order_correlation_on_failures(trials: TrialTable) -> Numbers:
    """The same on failed episodes, where progress should not keep rising; near 1 it only follows time."""
    return order_correlations(trials)


@mean_metric(better="lower", eligibility="static clip", bounds=CORRELATION)
def static_video_order_correlation(trials: TrialTable) -> Numbers:
    """The same on clips that show one frame over and over; any value other than nan or 0 is an error."""
    return order_correlations(trials)


@mean_metric(better="higher", eligibility="reversed clip", bounds=CORRELATION)
def order_sensitivity(trials: TrialTable) -> Numbers:
    """Half of the VOC of the clean clip less that of the reversed clip as shown; ideal 1, length scores 0."""
    return (trials.number("clean_order") - order_correlations(trials)) / 2


def _against_truth(trials: TrialTable, compute: Callable[[Numbers, Numbers], Numbers]) -> Numbers:
    """Return one number per trial from its progress and the true one, nan where these are not of one length."""

    def of_block(block: TrialTable) -> Numbers:
        flat, lengths = block.lists("progress")
        truth, known = block.lists("truth_progress")
        both = (lengths == known) & (lengths > 0)
        said = by_length(flat[np.repeat(both, lengths)], lengths[both])
        true = by_length(truth[np.repeat(both, known)], lengths[both])
        places, found = np.flatnonzero(both), np.full(len(block), np.nan)
        for (rows, progress), (_, actual) in zip(said, true, strict=True):
            found[places[rows]] = compute(progress, actual)
        return found

    return in_blocks(trials, of_block)


@mean_metric(better="higher", eligibility="true progress", bounds=CORRELATION)
def progress_correlation(trials: TrialTable) -> Numbers:
    """Mean over episodes of Pearson's correlation of progress with the true progress; nan if either is constant."""
    return _against_truth(trials, row_correlations)


@mean_metric(
    better="higher", eligibility="true progress", display=Display(ceiling="progress_tau_b_ceiling"), bounds=CORRELATION
)
def progress_tau_b(trials: TrialTable) -> Numbers:
    """Mean over episodes of Kendall's tau-b of progress with the true progress; nan if either is constant."""
    return trials.derived("tau of progress", _taus)


def _taus(trials: TrialTable) -> Numbers:
    return _against_truth(trials, row_tau_b)


@mean_metric(better="higher", eligibility="true progress", bounds=CORRELATION)
def progress_tau_b_ceiling(trials: TrialTable) -> Numbers:
    """Mean over the same episodes of the most that progress without ties can reach, as true progress has ties."""
    reached = _against_truth(trials, lambda _, truth: row_tau_b_ceiling(truth))
    return np.where(np.isnan(trials.derived("tau of progress", _taus)), np.nan, reached)


@mean_metric(better="lower", eligibility="true progress", proportion=True)
def early_fire_rate(trials: TrialTable) -> Numbers:
    """Share of episodes in which progress reads as success (0.875 or more) at a frame where the truth does not yet."""
    return _fires_early(trials, FIRES)


@mean_metric(
    better="lower", eligibility="true progress", display=Display("early 5", wrong_reward=True), proportion=True
)
def early_level_5_rate(trials: TrialTable) -> Numbers:
    """Share of episodes in which progress reaches where level 5 begins (1.0) at a frame at which the truth has not."""
    return _fires_early(trials, LEVEL_STARTS[-1])


def _fires_early(trials: TrialTable, start: float) -> Numbers:
    early = lambda progress, truth: ((progress >= start) & (truth < start)).any(axis=1)
    return _against_truth(trials, early)
