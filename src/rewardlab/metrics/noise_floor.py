"""How far a model's answers move when nothing changes but the asking, and which differences that alone can make.

The same trial is asked K times. The first answer is the one that everything else is measured from; the others serve the
noise floor alone. They are never averaged, and they are no further episodes.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from rewardlab.core.distributions import NORMAL_95
from rewardlab.core.trial import CLEAN
from rewardlab.core.trial_table import TrialTable
from rewardlab.metrics.accuracy import micro_mae, rounded, success_accuracy
from rewardlab.metrics.clustered_bootstrap import SHARE, Codes, Draws, Numbers, sum_by
from rewardlab.metrics.contract import Metric
from rewardlab.metrics.estimates import MetricEstimate, clusters_of, estimate_means

NOISY_METRICS: tuple[Metric, ...] = (success_accuracy, micro_mae)  # whose differences have a noise floor


@dataclass(frozen=True, eq=False)
class RepeatVariance:
    """What repeats tell of each trial of a run (nan: fewer than two of its answers are known).

    `variance` is that of each metric between askings; `spread` that of the level; `changed` the share of pairs of
    askings with different rounded levels.
    """

    variance: dict[str, Numbers]
    spread: Numbers
    changed: Numbers
    clean: Codes  # the row of the same model's trial on the untouched episode; -1 where there is none

    def floor_from_clean(self, metric: str, rows: Codes, weights: Numbers) -> float:
        """Return the noise floor of a weighted mean over these trials less that of their clean answers.

        Trials of one episode share the clean answer, and so its noise.
        """
        clean = self.clean[rows]
        if (clean < 0).any():
            return math.nan
        shared = sum_by(clean, len(self.clean), weights)
        there: Codes = np.flatnonzero(shared).astype(np.int64)
        return self._floor(metric, (rows, weights), (there, shared[there]))

    def floor_between(self, metric: str, a: Codes, b: Codes, weights: Numbers) -> float:
        """Return the noise floor of the difference of a weighted mean over these trials and over those."""
        return self._floor(metric, (a, weights), (b, weights))

    def _floor(self, metric: str, *sums: tuple[Codes, Numbers]) -> float:
        return noise_floor(*((self.variance[metric][rows], weights) for rows, weights in sums))


def noise_floor(*sums: tuple[Numbers, Numbers]) -> float:
    """Return the difference that 95 % of such differences stay below if only the asking differs.

    Each sum has the variances of its terms between askings (nan: unknown, taken at the mean of the others) and their
    weights. It is nan where all variances of a sum are unknown.
    """
    found = 0.0
    for variance, weights in sums:
        if not len(variance) or np.isnan(variance).all():
            return math.nan
        found += float((weights**2 * np.where(np.isnan(variance), np.nanmean(variance), variance)).sum())
    return NORMAL_95 * math.sqrt(found)


def split_repeats(trials: TrialTable) -> tuple[TrialTable, TrialTable]:
    """Return the trials as they were asked first, and those that ask the same again, as tables of their own."""
    again = trials.number("repeat") >= 1
    return TrialTable(trials.where(~again).arrow), TrialTable(trials.where(again).arrow)


def repeat_variance(first: TrialTable, repeats: TrialTable, repeated: Collection[str]) -> RepeatVariance:
    """Return what the repeats of trials tell; a model that was not asked again always answers alike.

    `first` are the trials of a run, `repeats` the same questions asked again.
    """
    place = {key: row for row, key in enumerate(_questions(first))}
    rows = np.array([place.get(key, -1) for key in _questions(repeats)], dtype=np.int64)
    known = rows >= 0
    repeats, rows = repeats.where(known), rows[known]
    alike = ~np.isin(first.text("model").astype(str), sorted(repeated))

    def both(values: Numbers, again: Numbers) -> tuple[Numbers, Codes]:
        every, owner = np.append(values, again), np.append(np.arange(len(values)), rows)
        there = ~np.isnan(every)
        return every[there], owner[there]

    def variance(values: Numbers, again: Numbers) -> Numbers:
        every, owner = both(values, again)
        count, total = sum_by(owner, len(values)), sum_by(owner, len(values), every)
        with np.errstate(invalid="ignore", divide="ignore"):
            gaps = (every - (total / count)[owner]) ** 2
            found = sum_by(owner, len(values), gaps) / (count - 1)
        return np.where(alike & ~np.isnan(values), 0.0, np.where(count > 1, found, np.nan))

    levels = [_scored(table) for table in (first, repeats)]
    by_metric = {m.name: variance(*(m.values_of(table) for table in (first, repeats))) for m in NOISY_METRICS}
    every, owner = both(*map(rounded, levels))
    return RepeatVariance(
        by_metric, variance(*levels), _changed(every, owner, np.where(alike, levels[0], np.nan)), _clean_rows(first)
    )


def even_weights(rows: Codes) -> Numbers:
    """Return the weights of a mean over trials."""
    return np.full(len(rows), 1 / max(len(rows), 1))


def subset_weights(trials: TrialTable, rows: Codes) -> Numbers:
    """Return the weights of a mean over subsets of the mean in each."""
    _, place, sizes = np.unique(trials.codes("subset")[0][rows], return_inverse=True, return_counts=True)
    return np.asarray(1 / (max(len(sizes), 1) * sizes[place]), np.float64)


def level_noise(asked: RepeatVariance, trials: TrialTable, rows: Codes, draws: Draws) -> tuple[float, MetricEstimate]:
    """Return the standard deviation of the level between askings, and the share of pairs of askings that differ.

    The share is over the trials in these rows that got two answers or more, of all that were not dropped.
    """
    spread = asked.spread[rows]
    deviation = math.sqrt(np.nanmean(spread)) if (~np.isnan(spread)).any() else math.nan
    cluster, place = clusters_of(trials)[rows], np.zeros(len(rows), dtype=np.int64)
    found = estimate_means(asked.changed[rows], cluster, place, 1, draws, proportion=True, bounds=SHARE)
    value, low, high = (float(column[0]) for column in (found.value, found.low, found.high))
    put = int((~trials.matches("status", "dropped"))[rows].sum())
    return deviation, MetricEstimate(value, low, high, int(found.trials[0]), put)


def _questions(trials: TrialTable) -> list[tuple[object, ...]]:
    names = (trials.text(column) for column in ("model", "episode", "perturbation"))
    return list(zip(*names, trials.number("severity").tolist(), strict=True))


def _scored(trials: TrialTable) -> Numbers:
    return np.where(trials.matches("status", "scored"), trials.number("level"), np.nan)


def _changed(levels: Numbers, owner: Codes, alike: Numbers) -> Numbers:
    """Return, per trial, the share of pairs of its levels that differ; 0 where a model always answers alike."""
    count, agreeing = sum_by(owner, len(alike)), np.zeros(len(alike))
    for level in np.unique(levels):
        same = sum_by(owner[levels == level], len(alike))
        agreeing += same * (same - 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = 1 - agreeing / (count * (count - 1))
    return np.where(~np.isnan(alike), 0.0, np.where(count > 1, share, np.nan))


def _clean_rows(trials: TrialTable) -> Codes:
    pairs = list(zip(trials.codes("model")[0].tolist(), trials.codes("episode")[0].tolist(), strict=True))
    clean = np.flatnonzero(trials.matches("perturbation", CLEAN)).tolist()
    place = {pairs[row]: row for row in clean}
    return np.array([place.get(pair, -1) for pair in pairs], dtype=np.int64)
