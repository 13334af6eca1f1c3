"""What per-frame rewards are worth, clip by clip: agreement with the true reward, order in time, success, robustness.

Every measure is a sum over clips of one number above and one below, so that it can be drawn again by clusters; the true
reward of a frame is its true progress, and beside it the simulator's own dense reward where it is known.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rewardlab.metrics.progress import row_correlations, row_ranks

Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]
Measured = tuple[Numbers, Numbers]  # above and below of each clip; 0 and 0 where it has nothing to measure

LEAST_GAP = 0.1  # of true progress or of the simulator's reward, from which one frame is better than another
# The measures, which way is better, and what each is.
MEASURES: dict[str, tuple[str, str]] = {
    "within": ("higher", "fraction of pairs of frames of a clip whose order by reward is that by true progress"),
    "across": ("higher", "the same of pairs of frames of two clips of a task"),
    "env_within": ("higher", "as within, by the simulator's own dense reward instead of true progress"),
    "env_across": ("higher", "as across, by the simulator's own dense reward instead of true progress"),
    "voc": ("higher", "Spearman's correlation of the reward with time on successes; the length baseline scores 1"),
    "order_sensitivity": (
        "higher",
        "half of the VOC less that of the reversed clip as shown; the length baseline scores 0",
    ),
    "success_auc": ("higher", "chance that the last frame of a success is rewarded more than that of a failure"),
    "mae": ("lower", "error of the level after one isotonic calibration for all tasks"),
    "robustness_auc": (
        "higher",
        "accuracy of the level over severities 0 to 4 of changes that keep it, over the clean one",
    ),
}


@dataclass(frozen=True, eq=False)
class ClipFacts:
    """The labels of the evaluated clips; `task` are codes."""

    task: Codes
    progress: Numbers  # (clips, frames), nan where unknown
    level: Codes  # 0 where unknown
    success: Codes  # 1, 0, or -1 where unknown
    env_reward: Numbers | None = None  # (clips, frames): the simulator's own from 0 to 1, nan where unknown


@dataclass(frozen=True, eq=False)
class PerturbedLevels:
    """The level a model gives to perturbed clips, the true one, and which clip, perturbation and severity it was."""

    clip: Codes
    perturbation: Codes
    severity: Codes
    label: Codes


def measure_values(values: Numbers, levels: Numbers, facts: ClipFacts, reversed_values: Numbers) -> dict[str, Measured]:
    """Return the measures of the rewards of clean clips, (clips, frames), and of their calibrated levels.

    `reversed_values` are the rewards of the clips shown backwards, as shown.
    """
    order, backwards, won = _order(values), _order(reversed_values), facts.success == 1
    env_reward = np.full(values.shape, np.nan) if facts.env_reward is None else facts.env_reward
    return {
        "within": within_agreement(values, facts.progress),
        "across": across_agreement(values, facts.progress, facts.task),
        "env_within": within_agreement(values, env_reward),
        "env_across": across_agreement(values, env_reward, facts.task),
        "voc": _known(np.where(won, order, np.nan)),
        "order_sensitivity": _known(np.where(won, (order - backwards) / 2, np.nan)),
        "success_auc": success_auc(values[:, -1], facts.success, facts.task),
        "mae": _known(np.where(facts.level > 0, np.abs(levels - facts.level), np.nan)),
    }


def _known(values: Numbers) -> Measured:
    there = ~np.isnan(values)
    return np.where(there, values, 0.0), there.astype(np.float64)


def _order(values: Numbers) -> Numbers:
    time = np.broadcast_to(np.arange(values.shape[1], dtype=np.float64), values.shape)
    return row_correlations(row_ranks(values), time)


def within_agreement(values: Numbers, truth: Numbers) -> Measured:
    """Return the fraction of pairs of frames of each clip that are in the true order; a tie is half right."""
    right, pairs = _agreement(values[:, :, None], values[:, None, :], truth[:, :, None], truth[:, None, :])
    total, counts = right.sum((1, 2)), pairs.sum((1, 2))
    return np.where(counts > 0, total / np.maximum(counts, 1), 0.0), (counts > 0).astype(np.float64)


def across_agreement(values: Numbers, truth: Numbers, task: Codes) -> Measured:
    """Return the same of each clip's frames against those of the other clips of its task."""
    above, below = np.zeros((2, len(values)))
    for number in np.unique(task):
        rows = np.flatnonzero(task == number)
        v, p = values[rows], truth[rows]
        for place, row in enumerate(rows):
            others = np.arange(len(rows)) != place
            theirs, known = v[others].ravel(), p[others].ravel()
            right, pairs = _agreement(v[place][:, None], theirs, p[place][:, None], known, both=True)
            above[row], below[row] = (right.sum() / pairs.sum(), 1.0) if pairs.any() else (0.0, 0.0)
    return above, below


def _agreement(
    a: Numbers, b: Numbers, true_a: Numbers, true_b: Numbers, *, both: bool = False
) -> tuple[Numbers, NDArray[np.bool_]]:
    """Return whether a is rewarded more where its progress is more (or less, with `both`), and which pairs count."""
    gap = true_a - true_b
    pairs = np.abs(gap) >= LEAST_GAP if both else gap >= LEAST_GAP
    said = np.sign(a - b) * np.sign(gap)
    return np.where(pairs, (said + 1) / 2, 0.0), pairs


def success_auc(last: Numbers, success: Codes, task: Codes) -> Measured:
    """Return of each success the fraction of failures of its task that are rewarded less; a tie is half."""
    above, below = np.zeros((2, len(last)))
    for row in np.flatnonzero(success == 1):
        failed = last[(task == task[row]) & (success == 0)]
        if len(failed):
            above[row], below[row] = ((last[row] > failed) + (last[row] == failed) / 2).mean(), 1.0
    return above, below


def robustness(clean: Numbers, levels: Numbers, facts: ClipFacts, trials: PerturbedLevels) -> Measured:
    """Return the area under accuracy over severity, 1 - error / 4, of each clip, over that of staying at the clean one.

    A perturbation counts for a clip where every severity from 1 to 4 keeps a known label.
    """
    above, below = np.zeros((2, len(clean)))
    accuracy = 1 - np.abs(levels - trials.label) / 4
    start = 1 - np.abs(clean - facts.level) / 4
    keys = trials.clip * (int(trials.perturbation.max(initial=0)) + 1) + trials.perturbation
    for key in np.unique(keys):
        rows = np.flatnonzero(keys == key)
        curve = accuracy[rows[np.argsort(trials.severity[rows])]]
        clip = int(trials.clip[rows[0]])
        if len(curve) == 4 and facts.level[clip] > 0:
            above[clip] += start[clip] / 2 + curve[:3].sum() + curve[3] / 2
            below[clip] += 4 * start[clip]
    return above, below


def ranking_score(values: Numbers, facts: ClipFacts) -> float:
    """Return the mean agreement within and across clips, by which checkpoints and options are chosen; nan if none."""
    parts = within_agreement(values, facts.progress), across_agreement(values, facts.progress, facts.task)
    found = [float(above.sum() / below.sum()) for above, below in parts if below.any()]
    return float(np.mean(found)) if found else float("nan")
