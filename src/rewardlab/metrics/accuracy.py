"""Levels against the label and against the clean answer; wrong rewards; success as detection."""

from functools import partial

import numpy as np

from rewardlab.core.trial_table import TrialTable
from rewardlab.metrics.clustered_bootstrap import (
    HELD,
    SHARE,
    Codes,
    ConditionEstimates,
    Draws,
    Numbers,
    condition_sums,
    estimate_in_steps,
    percentile_interval,
    sum_by,
)
from rewardlab.metrics.contract import (
    LEVELS_APART,
    Display,
    Eligibility,
    Metric,
    mean_metric,
    mean_or_nan,
    metric,
    where_known,
)
from rewardlab.metrics.estimates import clusters_of, expected_levels
from rewardlab.metrics.progress import order_correlations
from rewardlab.metrics.rank_correlation import PairCounts, count_pairs, pair_draws


def rounded(levels: Numbers) -> Numbers:
    """Round half up to whole levels, so that 4.5 is a 5 everywhere."""
    return np.floor(levels + 0.5)


def _errors(trials: TrialTable) -> Numbers:
    return np.abs(trials.number("level") - trials.number("truth_level"))


def _macro_by_condition(trials: TrialTable, condition: Codes, conditions: int, draws: Draws) -> ConditionEstimates:
    """Return the mean over subsets in each condition; in a draw, over the subsets that are in it."""
    subset, names = trials.codes("subset")
    place = condition * len(names) + subset
    cluster, errors = clusters_of(trials), _errors(trials)

    def estimate(start: int, width: int) -> tuple[Numbers, ...]:
        shape = (width, len(names), -1)
        sums = condition_sums(errors, cluster, place - start * len(names), width * len(names), draws.clusters)
        above, below = (part.reshape(shape) for part in sums)
        drawn = _mean_of_known(draws.ratios(*sums).reshape(shape))
        with np.errstate(invalid="ignore"):
            value = _mean_of_known(above.sum(axis=2, keepdims=True) / below.sum(axis=2, keepdims=True))[:, 0]
        behind = (below.sum(axis=1) > 0).sum(axis=1).astype(np.float64)
        return value, *percentile_interval(drawn, behind), below.sum(axis=(1, 2)), behind

    return estimate_in_steps(conditions, draws.number * max(len(names), 1), estimate)


def _mean_of_known(values: Numbers) -> Numbers:
    """Return the mean over the middle axis of the numbers that are there."""
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        found: Numbers = np.where(known, values, 0).sum(axis=1) / known.sum(axis=1)
    return found


@metric(
    better="lower",
    display=Display("MAE", "MAE (levels)", axis=(0.0, 4.0), headline=True, terminal=True, curve=True, heat_map=True),
    resample=None,
    by_condition=_macro_by_condition,
    bounds=LEVELS_APART,
)
def macro_mae(trials: TrialTable) -> float:
    """Mean over subsets of the mean absolute error in levels, the headline of RoboRewardBench."""
    subset, names = trials.codes("subset")
    errors = _errors(trials)
    known = ~np.isnan(errors)
    counts, sums = sum_by(subset[known], len(names)), sum_by(subset[known], len(names), errors[known])
    return mean_or_nan(sums[counts > 0] / counts[counts > 0])


@mean_metric(
    better="lower",
    display=Display("micro MAE", axis=(0.0, 4.0), perturbation_table=True, compared=True),
    bounds=LEVELS_APART,
)
def micro_mae(trials: TrialTable) -> Numbers:
    """Mean absolute error in levels over all episodes."""
    return _errors(trials)


@mean_metric(better="higher", display=Display("exact", headline=True), proportion=True)
def exact_accuracy(trials: TrialTable) -> Numbers:
    """Share of episodes whose rounded level is the true one."""
    level, truth = rounded(trials.number("level")), trials.number("truth_level")
    return where_known(level == truth, level, truth)


@mean_metric(better="higher", display=Display("within 1", headline=True), proportion=True)
def within_one_accuracy(trials: TrialTable) -> Numbers:
    """Share of episodes whose rounded level is at most one off."""
    level, truth = rounded(trials.number("level")), trials.number("truth_level")
    return where_known(np.abs(level - truth) <= 1, level, truth)


@mean_metric(
    better="higher",
    eligibility="success",
    display=Display(
        "success",
        "success accuracy",
        headline=True,
        terminal=True,
        curve=True,
        heat_map=True,
        reliability_level=True,
        perturbation_table=True,
        compared=True,
    ),
    proportion=True,
)
def success_accuracy(trials: TrialTable) -> Numbers:
    """Share of episodes classified correctly as success (level 5 after rounding) or failure."""
    return _success_correct(trials)


def _success_correct(trials: TrialTable) -> Numbers:
    level, truth = rounded(trials.number("level")), trials.number("truth_success")
    return where_known((level == 5) == (truth == 1), level, truth)


# What a change that keeps the label does to the score: flips and shifts against the clean answer.


@mean_metric(
    better="lower", eligibility="unchanged", display=Display("flips", perturbation_table=True), proportion=True
)
def flip_rate(trials: TrialTable) -> Numbers:
    """Share of trials whose rounded level differs from the clean one while the label stays the same; needs no label."""
    level, clean = rounded(trials.number("level")), rounded(trials.number("clean_level"))
    return where_known(level != clean, level, clean)


@mean_metric(better="lower", eligibility="unchanged", bounds=LEVELS_APART)
def level_shift(trials: TrialTable) -> Numbers:
    """Mean distance in levels from the clean score while the label stays the same."""
    return np.abs(trials.number("level") - trials.number("clean_level"))


@mean_metric(
    better="lower",
    eligibility="unchanged",
    display=Display(axis=(-4.0, 4.0), perturbation_table=True),
    bounds=(-LEVELS_APART[1], LEVELS_APART[1]),
)
def signed_shift(trials: TrialTable) -> Numbers:
    """Mean change in levels from the clean score while the label stays the same; above 0 the reward is inflated."""
    return trials.number("level") - trials.number("clean_level")


# Whether a model did what the perturbation expects of a sound one; needs no label.


@mean_metric(
    better="higher",
    eligibility="clean score",
    display=Display("kept", "expectations kept", curve=True, heat_map=True, perturbation_table=True),
    proportion=True,
)
def expectation_kept(trials: TrialTable) -> Numbers:
    """Share of trials that kept the expectation: same level as clean, not above clean, the changed true level, or
    reversed progress.
    """
    level, clean = rounded(trials.number("level")), rounded(trials.number("clean_level"))
    truth = trials.number("truth_level")
    kept = np.full(len(trials), np.nan)
    for name, result in (
        ("same", where_known(level == clean, level, clean)),
        ("lower", where_known(level <= clean, level, clean)),
        ("relabel", where_known(level == truth, level, truth)),
    ):
        kept = np.where(trials.matches("expectation", name), result, kept)
    turned = trials.matches("expectation", "reversed")
    if turned.any():  # progress as shown must run against its order on the clean clip; nan where either has no order
        now, before = order_correlations(trials), trials.number("clean_order")
        kept = np.where(turned, where_known(now * before < 0, now, before), kept)
    return kept


@mean_metric("higher", "another instruction", Display("own above other instruction"), bounds=SHARE)
def instruction_grounding(trials: TrialTable) -> Numbers:
    """Share of successes that score higher under their own instruction than under another of the same source, by the
    expected level where there are probabilities; a tie counts half, so a model that reads no words has 0.5."""
    gain = trials.number("clean_expected") - expected_levels(trials)
    return np.where(np.isnan(gain), np.nan, (1 + np.sign(gain)) / 2)


# Wrong rewards: failures taken for successes, successes missed, and near misses told from successes or not.


@mean_metric(better="lower", eligibility="unfinished", proportion=True)
def false_success_rate(trials: TrialTable) -> Numbers:
    """Share of episodes at true level 3 or below scored as a success (level 5 after rounding)."""
    level, truth = rounded(trials.number("level")), trials.number("truth_level")
    return np.where(truth <= 3, where_known(level == 5, level, truth), np.nan)


@mean_metric(better="lower", eligibility="failure", bounds=LEVELS_APART)
def over_reward_on_failure(trials: TrialTable) -> Numbers:
    """Mean levels above the true one on failed episodes; a score below the true level counts 0."""
    excess = np.maximum(trials.number("level") - trials.number("truth_level"), 0)
    return np.where(trials.number("truth_success") == 0, excess, np.nan)


def _called_success(trials: TrialTable) -> Numbers:
    level, truth = rounded(trials.number("level")), trials.number("truth_success")
    return where_known(level == 5, level, truth)


@mean_metric(
    better="lower", eligibility="every failure", display=Display("false success", wrong_reward=True), proportion=True
)
def false_success_of_failures(trials: TrialTable) -> Numbers:
    """Share of all failed episodes, near misses at level 4 included, scored as a success."""
    return np.where(trials.number("truth_success") == 0, _called_success(trials), np.nan)


@mean_metric(
    better="lower", eligibility="every success", display=Display("missed success", wrong_reward=True), proportion=True
)
def missed_success_rate(trials: TrialTable) -> Numbers:
    """Share of successful episodes not scored as a success (level 4 or below after rounding)."""
    return np.where(trials.number("truth_success") == 1, 1 - _called_success(trials), np.nan)


def _false_success_at(level: int, eligibility: Eligibility) -> Metric:
    def values(trials: TrialTable) -> Numbers:
        read, truth = rounded(trials.number("level")), trials.number("truth_level")
        return np.where(truth == level, where_known(read == 5, read, truth), np.nan)

    values.__name__ = f"false_success_at_level_{level}"
    values.__doc__ = f"Share of episodes at true level {level} scored as a success."
    display = Display(f"of true {level}s", wrong_reward=True)
    return mean_metric(better="lower", eligibility=eligibility, display=display, proportion=True)(values)


_TRUE_LEVELS: tuple[Eligibility, ...] = ("true level 1", "true level 2", "true level 3", "true level 4")
FALSE_SUCCESS_BY_LEVEL = tuple(_false_success_at(level, rule) for level, rule in enumerate(_TRUE_LEVELS, start=1))


def _balanced_by_condition(trials: TrialTable, condition: Codes, conditions: int, draws: Draws) -> ConditionEstimates:
    """Return the mean of both accuracies in each condition; undefined where, or in a draw in which, one is."""
    right, failed, cluster = _success_correct(trials), trials.number("truth_success") == 0, clusters_of(trials)

    def estimate(start: int, width: int) -> tuple[Numbers, ...]:
        sums = [
            condition_sums(np.where(part, right, np.nan), cluster, condition - start, width, draws.clusters)
            for part in (failed, ~failed)
        ]
        with np.errstate(invalid="ignore"):
            value = np.mean([above.sum(axis=1) / below.sum(axis=1) for above, below in sums], axis=0)
        drawn = np.mean([draws.ratios(above, below) for above, below in sums], axis=0)
        counts = sums[0][1] + sums[1][1]
        behind = (counts > 0).sum(axis=1).astype(np.float64)
        return value, *percentile_interval(drawn, behind), counts.sum(axis=1), behind

    return estimate_in_steps(conditions, draws.number, estimate)


@metric(
    better="higher",
    eligibility="success",
    display=Display("balanced accuracy", wrong_reward=True),
    resample=None,
    by_condition=_balanced_by_condition,
    bounds=SHARE,
)
def balanced_success_accuracy(trials: TrialTable) -> float:
    """Mean of the accuracies on successes and on failures; 0.5 for any constant answer."""
    right, truth = _success_correct(trials), trials.number("truth_success")
    known = ~np.isnan(right)
    parts = [right[known & (truth == outcome)] for outcome in (0, 1)]
    return float(np.mean([part.mean() for part in parts])) if all(map(len, parts)) else float("nan")


def _near_miss(trials: TrialTable) -> TrialTable:
    return trials.where(np.isin(trials.number("truth_level"), (4, 5)) & ~np.isnan(trials.number("level")))


def auc_of_pairs(*parts: PairCounts) -> Numbers:
    """Return the fraction of pairs of different truth that are ordered rightly; a tie counts half."""
    pairs = np.sum([part.untied_truths for part in parts], axis=0)
    balance = np.sum([part.alike - part.contrary for part in parts], axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(pairs > 0, (1 + balance / pairs) / 2, np.nan)


def _near_miss_draws(trials: TrialTable, draws: Draws) -> Numbers:
    used = _near_miss(trials)
    return auc_of_pairs(pair_draws(used.number("level"), used.number("truth_level"), clusters_of(used), draws))


@metric(
    better="higher",
    eligibility="near miss or success",
    display=Display("4 against 5", "near-miss AUC", wrong_reward=True),
    resample=_near_miss_draws,
    bounds=SHARE,
)
def near_miss_auc(trials: TrialTable) -> float:
    """Area under the ROC curve for true 5s against true 4s by the unrounded level; a tie counts half."""
    used = _near_miss(trials)
    group = np.zeros(len(used), dtype=np.int64)
    return float(auc_of_pairs(count_pairs(used.number("level"), used.number("truth_level"), group, 1))[0])


# Success as detection: how well the unrounded level tells successes from failures, whatever the threshold, and how
# much of that is left where few false successes are allowed. Each is computed in draws; its value is that in one draw
# of every trial.

_FALSE_POSITIVES = 0.05
EVERY_TRIAL = Draws(np.ones((1, 1), dtype=np.uint8), seed=0)


def _detection(trials: TrialTable, draws: Draws) -> tuple[TrialTable, Numbers, Numbers, Codes]:
    """Return the trials with a level and an outcome, their expected levels, outcomes and clusters."""
    used = trials.where(~np.isnan(expected_levels(trials) + trials.number("truth_success")))
    cluster = np.zeros(len(used), dtype=np.int64) if draws is EVERY_TRIAL else clusters_of(used)
    return used, expected_levels(used), used.number("truth_success"), cluster


def _success_auc(trials: TrialTable, draws: Draws, *, within: bool) -> Numbers:
    used, levels, outcomes, cluster = _detection(trials, draws)
    group = used.codes("subset")[0] if within else np.zeros(len(used), dtype=np.int64)
    masks = [group == each for each in np.unique(group)]
    parts = [pair_draws(levels[mask], outcomes[mask], cluster[mask], draws) for mask in masks]
    return auc_of_pairs(*parts) if parts else np.full(draws.number, np.nan)


@metric(
    better="higher",
    eligibility="success",
    display=Display("success AUC", "success AUC within source", headline=True, compared=True),
    resample=partial(_success_auc, within=True),
    bounds=SHARE,
)
def success_auc_within_subset(trials: TrialTable) -> float:
    """Area under the ROC curve for successes against failures of the same subset by the expected level; a tie
    counts half. On real robots counting moving pixels may reach 0.7."""
    return float(_success_auc(trials, EVERY_TRIAL, within=True)[0])


@metric(
    better="higher",
    eligibility="success",
    display=Display("pooled AUC", "success AUC over all pairs", wrong_reward=True),
    resample=partial(_success_auc, within=False),
    bounds=SHARE,
)
def success_auc(trials: TrialTable) -> float:
    """The same over all pairs of a success and a failure; if outcomes differ between subsets, recognising the subset
    raises it."""
    return float(_success_auc(trials, EVERY_TRIAL, within=False)[0])


def _at_false_positives(trials: TrialTable, draws: Draws, *, of_called: bool) -> Numbers:
    """Return the share of successes among the trials called one, or that of successes that are called one.

    From the highest level down, as many are called a success as keep false positives at 5 % of the failures or less.
    """
    _, levels, outcomes, cluster = _detection(trials, draws)
    order = np.argsort(-levels, kind="stable")
    ends = np.flatnonzero(np.diff(levels[order], append=np.nan) != 0)  # equal levels are called together
    step, parts = max(1, HELD // max(len(order), 1)), []
    for start in range(0, draws.number, step):
        weights = draws.counts[cluster[order], start : start + step].astype(np.float64)
        nothing, columns = np.zeros((1, weights.shape[1])), np.arange(weights.shape[1])
        hits, wrong = (
            np.vstack([nothing, np.cumsum(weights * (outcomes[order] == kind)[:, None], axis=0)[ends]])
            for kind in (1, 0)
        )
        last = (wrong <= _FALSE_POSITIVES * wrong[-1]).sum(axis=0) - 1
        found = hits[last, columns]
        below = found + wrong[last, columns] if of_called else hits[-1]
        defined = (below > 0) & (wrong[-1] > 0)
        parts.append(np.where(defined, found / np.maximum(below, 1), np.nan))
    return np.concatenate(parts)


@metric(
    better="higher",
    eligibility="success",
    display=Display("precision at 5 % FP", wrong_reward=True),
    resample=partial(_at_false_positives, of_called=True),
    bounds=SHARE,
)
def success_precision_at_5_fpr(trials: TrialTable) -> float:
    """Share of true successes among trials scored as a success, at the lowest threshold on the expected level with at
    most 5 % of the failures scored as a success; it depends on the share of successes in the data.
    """
    return float(_at_false_positives(trials, EVERY_TRIAL, of_called=True)[0])


@metric(
    better="higher",
    eligibility="success",
    display=Display("recall at 5 % FP", wrong_reward=True),
    resample=partial(_at_false_positives, of_called=False),
    bounds=SHARE,
)
def success_recall_at_5_fpr(trials: TrialTable) -> float:
    """Share of successes scored as a success at that threshold."""
    return float(_at_false_positives(trials, EVERY_TRIAL, of_called=False)[0])
