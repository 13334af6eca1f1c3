"""Wrong rewards: failures taken for successes, successes missed, and near misses told from successes or not."""

import numpy as np

from rewardlab.core.trial_table import TrialTable
from rewardlab.metrics.accuracy import rounded
from rewardlab.metrics.clustered_bootstrap import (
    HELD,
    Codes,
    ConditionEstimates,
    Draws,
    Numbers,
    condition_sums,
    percentile_interval,
)
from rewardlab.metrics.contract import Display, Eligibility, Metric, mean_metric, metric, where_known
from rewardlab.metrics.estimates import clusters_of
from rewardlab.metrics.rank_correlation import PairCounts, count_pairs, pair_draws


@mean_metric(better="lower", eligibility="unfinished", proportion=True)
def false_success_rate(trials: TrialTable) -> Numbers:
    """Share of episodes at true level 3 or below that are judged a success (level 5 after rounding)."""
    level, truth = rounded(trials.number("level")), trials.number("truth_level")
    return np.where(truth <= 3, where_known(level == 5, level, truth), np.nan)


@mean_metric(better="lower", eligibility="failure")
def over_reward_on_failure(trials: TrialTable) -> Numbers:
    """Mean levels above the true one on failed episodes; a score below the true level counts 0."""
    excess = np.maximum(trials.number("level") - trials.number("truth_level"), 0)
    return np.where(trials.number("truth_success") == 0, excess, np.nan)


def _called_success(trials: TrialTable) -> Numbers:
    level, truth = rounded(trials.number("level")), trials.number("truth_success")
    return where_known(level == 5, level, truth)


@mean_metric(
    better="lower",
    eligibility="every failure",
    display=Display("false success", wrong_reward=True),
    proportion=True,
)
def false_success_of_failures(trials: TrialTable) -> Numbers:
    """Share of all failed episodes, near misses at level 4 included, that are judged a success."""
    return np.where(trials.number("truth_success") == 0, _called_success(trials), np.nan)


@mean_metric(
    better="lower", eligibility="every success", display=Display("missed success", wrong_reward=True), proportion=True
)
def missed_success_rate(trials: TrialTable) -> Numbers:
    """Share of successful episodes that are not judged a success (level 4 or below after rounding)."""
    return np.where(trials.number("truth_success") == 1, 1 - _called_success(trials), np.nan)


def _false_success_at(level: int, eligibility: Eligibility) -> Metric:
    def values(trials: TrialTable) -> Numbers:
        read, truth = rounded(trials.number("level")), trials.number("truth_level")
        return np.where(truth == level, where_known(read == 5, read, truth), np.nan)

    values.__name__ = f"false_success_at_level_{level}"
    values.__doc__ = f"Share of episodes at true level {level} that are judged a success."
    display = Display(f"of true {level}s", wrong_reward=True)
    return mean_metric(better="lower", eligibility=eligibility, display=display, proportion=True)(values)


FALSE_SUCCESS_BY_LEVEL = (
    _false_success_at(1, "true level 1"),
    _false_success_at(2, "true level 2"),
    _false_success_at(3, "true level 3"),
    _false_success_at(4, "true level 4"),
)


def _balanced_by_condition(trials: TrialTable, condition: Codes, conditions: int, draws: Draws) -> ConditionEstimates:
    """Return the mean of both accuracies in each condition; undefined where, or in a draw in which, one is."""
    step = max(1, HELD // draws.number)
    starts = range(0, conditions, step)
    parts = [_balanced(trials, condition - start, min(step, conditions - start), draws) for start in starts]
    return ConditionEstimates(*(np.concatenate(column) for column in zip(*parts)))


def _balanced(trials: TrialTable, condition: Codes, conditions: int, draws: Draws) -> tuple[Numbers, ...]:
    right, failed = _judged_rightly(trials), trials.number("truth_success") == 0
    cluster = clusters_of(trials)
    sums = [
        condition_sums(np.where(part, right, np.nan), cluster, condition, conditions, draws.clusters)
        for part in (failed, ~failed)
    ]
    with np.errstate(invalid="ignore"):
        value = np.mean([above.sum(axis=1) / below.sum(axis=1) for above, below in sums], axis=0)
    drawn = np.mean([draws.ratios(above, below) for above, below in sums], axis=0)
    counts = sums[0][1] + sums[1][1]
    behind = (counts > 0).sum(axis=1).astype(np.float64)
    return value, *percentile_interval(drawn, behind), counts.sum(axis=1), behind


def _judged_rightly(trials: TrialTable) -> Numbers:
    level, truth = rounded(trials.number("level")), trials.number("truth_success")
    return where_known((level == 5) == (truth == 1), level, truth)


@metric(
    better="higher",
    eligibility="success",
    display=Display("balanced accuracy", wrong_reward=True),
    resample=None,
    by_condition=_balanced_by_condition,
)
def balanced_success_accuracy(trials: TrialTable) -> float:
    """Mean of the shares of successes and of failures that are judged rightly; 0.5 for any constant answer."""
    right, truth = _judged_rightly(trials), trials.number("truth_success")
    known = ~np.isnan(right)
    parts = [right[known & (truth == outcome)] for outcome in (0, 1)]
    return float(np.mean([part.mean() for part in parts])) if all(map(len, parts)) else float("nan")


def _near_miss(trials: TrialTable) -> TrialTable:
    return trials.where(np.isin(trials.number("truth_level"), (4, 5)) & ~np.isnan(trials.number("level")))


def _auc(pairs: PairCounts) -> Numbers:
    """Return the fraction of pairs of different truth that are ordered rightly; a tie counts half."""
    with np.errstate(invalid="ignore", divide="ignore"):
        balance: Numbers = (pairs.alike - pairs.contrary) / pairs.untied_truths
    return np.where(pairs.untied_truths > 0, (1 + balance) / 2, np.nan)


def _near_miss_draws(trials: TrialTable, draws: Draws) -> Numbers:
    used = _near_miss(trials)
    cluster = used.number("cluster").astype(np.int64)
    return _auc(pair_draws(used.number("level"), used.number("truth_level"), cluster, draws))


@metric(
    better="higher",
    eligibility="near miss or success",
    display=Display("4 against 5", "near-miss AUC", wrong_reward=True),
    resample=_near_miss_draws,
)
def near_miss_auc(trials: TrialTable) -> float:
    """Area under the ROC curve of telling true 5s from true 4s by the unrounded level; a tie counts half."""
    used = _near_miss(trials)
    group = np.zeros(len(used), dtype=np.int64)
    return float(_auc(count_pairs(used.number("level"), used.number("truth_level"), group, 1))[0])
