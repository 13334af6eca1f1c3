"""Rank agreement between scores and true levels."""

from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.trial import TrialTable
from rewardlab.metrics.clustered_bootstrap import ConditionEstimates, Draws, cluster_sums, product, sum_by
from rewardlab.metrics.contract import Display, Numbers, mean_or_nan, metric
from rewardlab.metrics.kendall import (
    FEW_ENOUGH_CLUSTERS,
    SMALL_CONDITION,
    PairCounts,
    count_pairs,
    pair_draws,
    tau_b_of_conditions,
)


def _known(trials: TrialTable) -> TrialTable:
    return trials.where(~np.isnan(trials.number("level") + trials.number("truth_level")))


def _counts(trials: TrialTable, group: NDArray[np.int64], groups: int) -> PairCounts:
    return count_pairs(trials.number("level"), trials.number("truth_level"), group, groups)


def _pooled(trials: TrialTable) -> PairCounts:
    known = _known(trials)
    return _counts(known, np.zeros(len(known), dtype=np.int64), 1)


# What was drawn last of some trials, since tau-a and tau-b need the same; it goes when the trials go.
_DRAWN: "WeakKeyDictionary[TrialTable, tuple[Draws, PairCounts]]" = WeakKeyDictionary()


def _drawn(trials: TrialTable, draws: Draws) -> PairCounts:
    if trials not in _DRAWN or _DRAWN[trials][0] is not draws:
        _DRAWN[trials] = draws, _draw(trials, draws)
    return _DRAWN[trials][1]


def _draw(trials: TrialTable, draws: Draws) -> PairCounts:
    known = _known(trials)
    cluster = known.number("cluster").astype(np.int64)
    return pair_draws(known.number("level"), known.number("truth_level"), cluster, draws)


def _tau_a_draws(trials: TrialTable, draws: Draws) -> Numbers:
    """Return tau-a in every draw; pairs within a cluster count as often as it is drawn, not as the square of that.

    Else a trial would be paired with its own copies, and tau-a, unlike tau-b, would take them for disagreement.
    """
    known, counts = _known(trials), _drawn(trials, draws)
    cluster = known.number("cluster").astype(np.int64)
    inside = _counts(known, cluster, draws.clusters)
    per_cluster = np.stack([inside.alike - inside.contrary, inside.pairs, sum_by(cluster, draws.clusters)])
    too_often = product(per_cluster, draws.repeats)
    balance = counts.alike - counts.contrary - too_often[0]
    pairs = counts.pairs - too_often[1] - too_often[2] / 2
    return replace(counts, alike=np.maximum(balance, 0), contrary=np.maximum(-balance, 0), pairs=pairs).tau_a()


@metric(better="higher", resample=_tau_a_draws)
def kendall_tau_a(trials: TrialTable) -> float:
    """Kendall's tau-a: ties count as disagreement, so a perfect judge of five levels stays well below 1."""
    return float(_pooled(trials).tau_a()[0])


def _tau_b_by_condition(
    trials: TrialTable, condition: NDArray[np.int64], conditions: int, draws: Draws
) -> ConditionEstimates | None:
    """Return tau-b of many small conditions; None where they are not small."""
    scores, truths = trials.number("level"), trials.number("truth_level")
    known = (condition >= 0) & ~np.isnan(scores + truths)
    largest = sum_by(condition[known], conditions).max(initial=0)
    if draws.clusters > FEW_ENOUGH_CLUSTERS or largest > SMALL_CONDITION:
        return None
    cluster = trials.number("cluster").astype(np.int64)
    return tau_b_of_conditions(scores[known], truths[known], cluster[known], condition[known], conditions, draws)


@metric(
    better="higher",
    display=Display(
        "tau-b", axis=(-1.0, 1.0), headline=True, terminal=True, compared=True, ceiling="kendall_tau_b_ceiling"
    ),
    resample=lambda trials, draws: _drawn(trials, draws).tau_b(),
    by_condition=_tau_b_by_condition,
)
def kendall_tau_b(trials: TrialTable) -> float:
    """Kendall's tau-b between scores and true levels over all pairs; nan if either is constant."""
    return float(_pooled(trials).tau_b()[0])


@metric(better="higher", display=Display("tau-b ceiling", axis=(-1.0, 1.0)), resample=None)
def kendall_tau_b_ceiling(trials: TrialTable) -> float:
    """The most that tau-b of scores without ties can be here, as true levels are tied; scores with ties may pass it."""
    return float(_pooled(trials).tau_b_ceiling()[0])


def _within_task(trials: TrialTable) -> PairCounts:
    """Return the pairs within each task."""
    tasks, group = np.unique(trials.codes("task")[0], return_inverse=True)
    return _counts(trials, group, len(tasks))


def _over_tasks(trials: TrialTable, draws: Draws, above: Numbers, below: Numbers) -> Numbers:
    """Return the ratio of two sums over tasks in every draw; a task is in the cluster of any of its trials."""
    _, first = np.unique(trials.codes("task")[0], return_index=True)
    cluster = trials.number("cluster").astype(np.int64)[first]
    totals = [cluster_sums(values, cluster, draws.clusters)[0][None, :] for values in (above, below)]
    found: Numbers = draws.ratios(totals[0], totals[1])[0]
    return found


def _within_draws(trials: TrialTable, draws: Draws) -> Numbers:
    known = _known(trials)
    tau = _within_task(known).tau_b()
    return _over_tasks(known, draws, tau, np.where(np.isnan(tau), 0.0, 1.0))


@metric(better="higher", resample=_within_draws)
def kendall_tau_b_within_task(trials: TrialTable) -> float:
    """Mean over tasks of tau-b between episodes of the same task; tasks where it is undefined do not count."""
    return mean_or_nan(_within_task(_known(trials)).tau_b())


def _preference_terms(known: TrialTable) -> tuple[Numbers, Numbers]:
    pairs = _within_task(known)
    tied = pairs.untied_truths - pairs.alike - pairs.contrary
    return pairs.alike + tied / 2, pairs.untied_truths


def _preference_draws(trials: TrialTable, draws: Draws) -> Numbers:
    known = _known(trials)
    return _over_tasks(known, draws, *_preference_terms(known))


@metric(better="higher", resample=_preference_draws)
def preference_accuracy(trials: TrialTable) -> float:
    """Share of pairs of the same task and different true level that the scores order rightly; a tie counts half."""
    right, pairs = _preference_terms(_known(trials))
    return float(right.sum() / pairs.sum()) if pairs.sum() else float("nan")
