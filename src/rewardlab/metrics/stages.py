"""Long tasks: is each stage recognised when it is done, in which order, and does progress fall when one is undone?

An episode with stages is asked about as a whole; with `--stages` each of its stages is also asked about by its own
instruction, on the same video.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from rewardlab.core.episode import is_success
from rewardlab.core.trial_table import TrialTable
from rewardlab.metrics.accuracy import EVERY_TRIAL, auc_of_pairs
from rewardlab.metrics.clustered_bootstrap import SHARE, Codes, Draws, Numbers
from rewardlab.metrics.contract import Display, in_blocks, mean_metric, metric
from rewardlab.metrics.estimates import clusters_of, expected_levels
from rewardlab.metrics.progress import FIRES, by_length
from rewardlab.metrics.rank_correlation import pair_draws


def _stages_done(trials: TrialTable) -> list[tuple[Codes, Numbers]]:
    """Return how many stages are done at each shown frame, in groups of one length: the places, and a row for each."""
    flat, lengths = trials.lists("truth_stages")
    frames = trials.list_lengths("shown")
    found = []
    for rows, stages in by_length(flat, lengths):
        for length in np.unique(frames[rows]):
            some = frames[rows] == length
            found.append((rows[some], stages[some].reshape(some.sum(), -1, length).sum(axis=1)))
    return found


def _with_progress(trials: TrialTable) -> list[tuple[Codes, Numbers, Numbers]]:
    """Return the places of trials with stages and progress, how many stages are done at each frame, and progress."""
    flat, lengths = trials.lists("progress")
    starts = np.cumsum(lengths) - lengths
    found = []
    for rows, done in _stages_done(trials):
        some = lengths[rows] == done.shape[1]
        progress = flat[starts[rows[some]][:, None] + np.arange(done.shape[1])]
        found.append((rows[some], done[some], progress))
    return found


# Asked about one stage by its own instruction.


def _done_at_end(trials: TrialTable) -> Numbers:
    """Return whether the one stage that a trial asks about is done in the last frame."""
    found = np.full(len(trials), np.nan)
    for rows, done in _stages_done(trials):
        found[rows] = done[:, -1]
    return found


@mean_metric(better="higher", eligibility="one stage", proportion=True, display=Display("stage accuracy", stages=True))
def stage_success_accuracy(trials: TrialTable) -> Numbers:
    """Share of stages, each scored under its own instruction, whose success at the end is predicted correctly."""
    called = np.array([is_success(level) for level in trials.number("level")], dtype=bool)
    return np.asarray(called == (_done_at_end(trials) == 1), dtype=np.float64)


def _stage_auc(trials: TrialTable, draws: Draws) -> Numbers:
    cluster = np.zeros(len(trials), dtype=np.int64) if draws is EVERY_TRIAL else clusters_of(trials)
    return auc_of_pairs(pair_draws(expected_levels(trials), _done_at_end(trials), cluster, draws))


@metric("higher", "one stage", Display("stage AUC", stages=True), resample=_stage_auc, bounds=SHARE)
def stage_success_auc(trials: TrialTable) -> float:
    """Area under the ROC curve for stages done at the end against the others, each scored under its own instruction; a
    tie counts half.
    """
    return float(_stage_auc(trials, EVERY_TRIAL)[0])


@mean_metric(better="higher", eligibility="completed stage", display=Display("stage order", stages=True), bounds=SHARE)
def stage_order(trials: TrialTable) -> Numbers:
    """Share of pairs of stages of one video whose predicted completions come in the true order; a tie counts half.

    A stage is predicted to be complete where progress under its own instruction first reaches seven eighths of its
    range. A model that does not read the instruction scores 0.5.
    """
    true, said = np.full((2, len(trials)), np.nan)
    for rows, done, progress in _with_progress(trials):
        low, high = progress.min(axis=1, keepdims=True), progress.max(axis=1, keepdims=True)
        true[rows] = (done > 0).argmax(axis=1)
        complete = (progress >= low + FIRES * (high - low)).argmax(axis=1)
        said[rows] = np.where((high > low)[:, 0], complete, done.shape[1])  # never, where progress is constant
    names = ("model", "video", "perturbation", "severity")
    keys = np.stack([trials.codes(name)[0] if name != "severity" else trials.number(name) for name in names])
    group = np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)
    found = np.full(len(trials), np.nan)
    for members in np.split(np.argsort(group, kind="stable"), np.flatnonzero(np.diff(np.sort(group))) + 1):
        for later in members:
            earlier = members[true[members] < true[later]]
            if len(earlier):
                found[later] = np.mean(np.sign(said[later] - said[earlier]) / 2 + 0.5)
    return found


# Asked about the whole task.


@mean_metric(better="higher", eligibility="stages", display=Display("frames by stages done", stages=True), bounds=SHARE)
def stage_separation(trials: TrialTable) -> Numbers:
    """Mean over episodes of the share of pairs of frames with different numbers of stages done that progress on the
    whole task puts in the same order; a tie counts half. The length baseline is high, because stages are mostly done
    one by one.
    """
    return _per_trial(trials, _separation)


@mean_metric("higher", "undone stage", Display("falls when undone", stages=True), bounds=SHARE)
def falls_when_undone(trials: TrialTable) -> Numbers:
    """Share of the times that a stage is undone after which progress on the whole task is lower, on average until the
    next stage is done or undone, than it was since the last one; the length baseline and a constant score 0."""
    return _per_trial(trials, _falls)


def _per_trial(trials: TrialTable, compute: Callable[[Numbers, Numbers], Numbers]) -> Numbers:
    def of_block(block: TrialTable) -> Numbers:
        found = np.full(len(block), np.nan)
        for rows, done, progress in _with_progress(block):
            found[rows] = compute(done, progress)
        return found

    return in_blocks(trials, of_block)


def _separation(done: Numbers, progress: Numbers) -> Numbers:
    balance, pairs = np.zeros((2, len(done)))
    for lag in range(1, done.shape[1]):
        order = np.sign(done[:, lag:] - done[:, :-lag])
        balance += (order * np.sign(progress[:, lag:] - progress[:, :-lag])).sum(axis=1)
        pairs += np.abs(order).sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.where(pairs > 0, (1 + balance / pairs) / 2, np.nan)


def _falls(done: Numbers, progress: Numbers) -> Numbers:
    found = np.full(len(done), np.nan)
    for row, (count, path) in enumerate(zip(done, progress, strict=True)):
        edges = [0, *(np.flatnonzero(np.diff(count)) + 1), len(count)]
        runs = [(count[start], path[start:stop].mean()) for start, stop in pairwise(edges)]
        falls = [after < before for (more, before), (fewer, after) in pairwise(runs) if fewer < more]
        if falls:
            found[row] = np.mean(falls)
    return found
