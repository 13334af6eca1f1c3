"""Kendall's tau by counting pairs, and the metrics made of it; agreement with pairs that people compared."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Episode
from rewardlab.core.errors import DataError
from rewardlab.core.trial_table import TrialTable
from rewardlab.metrics.clustered_bootstrap import (
    CORRELATION,
    SHARE,
    Codes,
    ConditionEstimates,
    Draws,
    Numbers,
    cluster_sums,
    estimate_in_steps,
    percentile_interval,
    product,
    sum_by,
)
from rewardlab.metrics.contract import Display, mean_or_nan, metric
from rewardlab.metrics.estimates import MetricEstimate, clusters_of, estimate_means, expected_levels

Light = NDArray[np.float32]
_ENTRIES = 512  # entries whose weights are held at a time
_DENSE = 20  # up to so many places in the table of entries and clusters per trial, its product beats adding row by row
# Up to these, in each condition and in all, counting pairs of clusters is faster than drawing trial by trial.
SMALL_CONDITION, FEW_ENOUGH_CLUSTERS = 200, 64


@dataclass(frozen=True, eq=False)
class PairCounts:
    """Pairs of trials per group: ordered alike, ordered contrarily, and untied in score, in truth, or at all."""

    alike: Numbers
    contrary: Numbers
    untied_scores: Numbers
    untied_truths: Numbers
    pairs: Numbers

    def tau_a(self) -> Numbers:
        """Return Kendall's tau-a of each group; nan where there is no pair or one side is constant."""
        constant = (self.untied_scores == 0) | (self.untied_truths == 0)
        return _over(self.alike - self.contrary, np.where(constant, 0, self.pairs))

    def tau_b(self) -> Numbers:
        """Return Kendall's tau-b of each group; nan where scores or truths are constant."""
        return _over(self.alike - self.contrary, np.sqrt(self.untied_scores * self.untied_truths))

    def tau_b_ceiling(self) -> Numbers:
        """Return the most that tau-b of a ranking without ties can be, given the ties of the truths.

        Such a ranking unties every pair and orders at best all pairs of different truths alike: u / sqrt(n u).
        """
        return _over(self.untied_truths, np.sqrt(self.pairs * self.untied_truths))


def count_pairs(scores: Numbers, truths: Numbers, group: Codes, groups: int) -> PairCounts:
    """Count the pairs within each group, in the time that sorting takes."""
    order = np.lexsort((scores, group))
    score, member = scores[order], group[order]
    values, truth = np.unique(truths[order], return_inverse=True)
    one_hot = truth[:, None] == np.arange(len(values))
    before = np.vstack([np.zeros((1, len(values))), np.cumsum(one_hot, axis=0)])
    new_group = np.append(True, member[1:] != member[:-1])[: len(member)]
    new_score = new_group | np.append(True, score[1:] != score[:-1])[: len(member)]
    below = before[_last_start(new_score)] - before[_last_start(new_group)]  # same group, lower score, by truth
    lower_truths = np.cumsum(below, axis=1) - below
    at = np.arange(len(truth)), truth
    alike = sum_by(member, groups, lower_truths[at])
    contrary = sum_by(member, groups, below.sum(axis=1) - lower_truths[at] - below[at])
    truth_sizes = sum_by(member * max(len(values), 1) + truth, groups * max(len(values), 1))
    ties = np.diff(np.append(np.flatnonzero(new_score), len(score))).astype(np.float64)
    alike_scores = sum_by(member[new_score], groups, ties**2)
    alike_truths = (truth_sizes.reshape(groups, max(len(values), 1)) ** 2).sum(axis=1)
    sizes = sum_by(member, groups)
    untied = (sizes**2 - alike_scores) / 2, (sizes**2 - alike_truths) / 2
    return PairCounts(alike, contrary, *untied, sizes * (sizes - 1) / 2)


def pair_draws(scores: Numbers, truths: Numbers, cluster: Codes, draws: Draws) -> PairCounts:
    """Count all pairs in every draw, exactly as if the drawn trials were written out.

    Trials alike in score and truth are one entry with a weight per draw. Entries are taken in rising order of score,
    and what lies below is carried along, so that the cost is entries times draws and no table of pairs is held.
    """
    values, truth = np.unique(truths, return_inverse=True)
    score = np.unique(scores, return_inverse=True)[1]
    kinds = max(len(values), 1)
    by_truth = draws.sums(sum_by(truth * draws.clusters + cluster, kinds * draws.clusters).reshape(kinds, -1))
    total = by_truth.sum(axis=0)
    entries, entry = np.unique(score * kinds + truth, return_inverse=True)
    below = np.zeros((kinds + 1, draws.number), dtype=np.float32)  # row k: the first k truths among lower scores
    exact = np.float32 if 2 * total.max(initial=0) ** 2 < 2**24 else np.float64  # holds products of weights exactly
    doubled, tied = np.zeros(draws.number), np.zeros(draws.number)
    score_of, truth_of = np.divmod(entries, kinds)
    for block in _blocks(score_of):
        weights, runs = _weights(entry, cluster, block, draws), _runs(score_of[block])
        met = _add_block(weights, runs, truth_of[block].tolist(), below)
        doubled += np.einsum("ed,ed->d", weights.astype(exact, copy=False), met)
        tied += _squares(weights.astype(exact, copy=False), runs)
    untied = (total**2 - tied) / 2, (total**2 - (by_truth**2).sum(axis=0)) / 2
    balance = doubled - untied[0]
    return PairCounts(np.maximum(balance, 0), np.maximum(-balance, 0), *untied, total * (total - 1) / 2)


def tau_b_of_conditions(
    scores: Numbers, truths: Numbers, cluster: Codes, condition: Codes, conditions: int, draws: Draws
) -> ConditionEstimates:
    """Return tau-b of each condition with its interval, the same as from trials written out; no number may be nan.

    Pairs of trials become pairs of clusters, and all draws one product of matrices: for thousands of small conditions.
    """
    first, second = np.triu_indices(draws.clusters)
    together = draws.weights_float32[first] * draws.weights_float32[second]
    order = np.argsort(condition, kind="stable")
    edges = np.searchsorted(condition[order], np.arange(conditions + 1))
    code = np.zeros((draws.clusters, draws.clusters), dtype=np.int64)
    code[first, second] = code[second, first] = np.arange(len(first))

    def estimate(start: int, width: int) -> tuple[Numbers, ...]:
        sets = [order[a:b] for a, b in pairwise(edges[start : start + width + 1])]
        tables = np.stack([_pair_tables(scores[s], truths[s], cluster[s], code) for s in sets], axis=1)
        balance, by_score, by_truth = tables.astype(np.float32) @ together
        behind = np.array([len(np.unique(cluster[s])) for s in sets], dtype=np.float64)
        size = np.array([len(s) for s in sets], dtype=np.float64)
        ends = percentile_interval(_tau_b(balance, by_score, by_truth), behind)
        return _tau_b(*tables.sum(axis=2)), *ends, size, behind

    return estimate_in_steps(conditions, draws.number, estimate)


def _add_block(weights: Light, runs: Sequence[tuple[int, int]], truth: Sequence[int], below: Light) -> Light:
    """Add the entries to those below, score by score; return the weight of lower scores that each of them met.

    A lower score counts twice if its truth is lower too, and once if the truths are tied: less all lower scores, that
    is what is ordered alike less what is ordered contrarily.
    """
    met = np.empty(weights.shape, dtype=np.float32)
    for start, stop in runs:
        for place in range(start, stop):
            np.add(below[truth[place]], below[truth[place] + 1], out=met[place])
        for place in range(start, stop):
            below[truth[place] + 1 :] += weights[place]
    return met


def _blocks(score: Codes) -> Iterator[slice]:
    """Yield runs of entries that are not too many to hold, and that end where a score ends."""
    ends = [stop for _, stop in _runs(score)]
    start = 0
    following_ends = [*ends[1:], len(score) + _ENTRIES + 1]
    for stop, following in zip(ends, following_ends, strict=False):  # of no entries there is no end, and one to follow
        if following - start > _ENTRIES:
            yield slice(start, stop)
            start = stop


def _runs(score: Codes) -> list[tuple[int, int]]:
    """Return where each score starts and stops in a sorted list of scores."""
    edges = [*np.flatnonzero(np.diff(score, prepend=-1)).tolist(), len(score)]
    return list(pairwise(edges))


def _weights(entry: Codes, cluster: Codes, block: slice, draws: Draws) -> Light:
    """Return how often each entry of the block is in each draw."""
    inside = (entry >= block.start) & (entry < block.stop)
    places, rows = entry[inside] - block.start, cluster[inside]
    first = np.unique(places, return_index=True)[1]
    if len(places) - len(first) > _ENTRIES and len(first) * draws.clusters < _DENSE * len(places):
        members = np.bincount(places * draws.clusters + rows, minlength=len(first) * draws.clusters)
        table: Light = members.reshape(len(first), -1).astype(np.float32)
        return product(table, draws.weights_float32)
    weights: Light = draws.weights_float32[rows[first]]
    more = np.ones(len(places), dtype=bool)
    more[first] = False
    for place, row in zip(places[more].tolist(), rows[more].tolist(), strict=True):
        weights[place] += draws.weights_float32[row]
    return weights


def _squares(weights: NDArray[Any], runs: Sequence[tuple[int, int]]) -> Numbers:
    """Return, per draw, the sum over scores of the square of their weight."""
    found: Numbers = np.einsum("ed,ed->d", weights, weights).astype(np.float64)
    for start, stop in runs:
        if stop - start > 1:
            tied = weights[start:stop]
            found += tied.sum(axis=0) ** 2 - np.einsum("ed,ed->d", tied, tied)
    return found


def _last_start(starts: NDArray[np.bool_]) -> Codes:
    """Return, for each place, the last place at or before it at which something starts."""
    return np.maximum.accumulate(np.where(starts, np.arange(len(starts)), 0))


def _over(above: NDArray[np.floating], below: Numbers) -> Numbers:
    """Return the quotient, nan where the number below is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(below > 0, above / below, np.nan)


def _pair_tables(scores: Numbers, truths: Numbers, cluster: Codes, code: Codes) -> Numbers:
    """Return, per pair of clusters: pairs alike less contrary, pairs untied in score, and pairs untied in truth."""
    a, b = np.triu_indices(len(scores), 1)
    by_score, by_truth = np.sign(scores[a] - scores[b]), np.sign(truths[a] - truths[b])
    place, size = code[cluster[a], cluster[b]], int(code.max(initial=-1)) + 1
    return np.stack([sum_by(place, size, kind) for kind in (by_score * by_truth, np.abs(by_score), np.abs(by_truth))])


def _tau_b(balance: NDArray[np.floating], by_score: NDArray[np.floating], by_truth: NDArray[np.floating]) -> Numbers:
    return _over(balance, np.sqrt(by_score.astype(np.float64) * by_truth))


def _known(trials: TrialTable) -> TrialTable:
    return trials.where(~np.isnan(trials.number("level") + trials.number("truth_level")))


def _counts(trials: TrialTable, group: Codes, groups: int) -> PairCounts:
    return count_pairs(trials.number("level"), trials.number("truth_level"), group, groups)


def _pooled(trials: TrialTable) -> PairCounts:
    known = _known(trials)
    return _counts(known, np.zeros(len(known), dtype=np.int64), 1)


# What was drawn last of some trials, since tau-a and tau-b need the same; it goes when the trials go.
_DRAWN: "WeakKeyDictionary[TrialTable, tuple[Draws, PairCounts]]" = WeakKeyDictionary()


def _drawn(trials: TrialTable, draws: Draws) -> PairCounts:
    if trials not in _DRAWN or _DRAWN[trials][0] is not draws:
        known = _known(trials)
        counts = pair_draws(known.number("level"), known.number("truth_level"), clusters_of(known), draws)
        _DRAWN[trials] = draws, counts
    return _DRAWN[trials][1]


def _tau_a_draws(trials: TrialTable, draws: Draws) -> Numbers:
    """Return tau-a in every draw; pairs within a cluster count as often as it is drawn, not as the square of that.

    Else a trial would be paired with its own copies, and tau-a, unlike tau-b, would take them for disagreement.
    """
    known, counts = _known(trials), _drawn(trials, draws)
    cluster = clusters_of(known)
    inside = _counts(known, cluster, draws.clusters)
    per_cluster = np.stack([inside.alike - inside.contrary, inside.pairs, sum_by(cluster, draws.clusters)])
    too_often = product(per_cluster, draws.repeats)
    balance = counts.alike - counts.contrary - too_often[0]
    pairs = counts.pairs - too_often[1] - too_often[2] / 2
    return replace(counts, alike=np.maximum(balance, 0), contrary=np.maximum(-balance, 0), pairs=pairs).tau_a()


@metric(better="higher", resample=_tau_a_draws, bounds=CORRELATION)
def kendall_tau_a(trials: TrialTable) -> float:
    """Kendall's tau-a: ties count as disagreement, so a perfect model with five levels stays well below 1."""
    return float(_pooled(trials).tau_a()[0])


def _tau_b_by_condition(
    trials: TrialTable, condition: Codes, conditions: int, draws: Draws
) -> ConditionEstimates | None:
    """Return tau-b of many small conditions; None where they are not small."""
    scores, truths = trials.number("level"), trials.number("truth_level")
    known = (condition >= 0) & ~np.isnan(scores + truths)
    largest = sum_by(condition[known], conditions).max(initial=0)
    if draws.clusters > FEW_ENOUGH_CLUSTERS or largest > SMALL_CONDITION:
        return None
    cluster = clusters_of(trials)
    return tau_b_of_conditions(scores[known], truths[known], cluster[known], condition[known], conditions, draws)


@metric(
    better="higher",
    display=Display(
        "tau-b", axis=(-1.0, 1.0), headline=True, terminal=True, compared=True, ceiling="kendall_tau_b_ceiling"
    ),
    resample=lambda trials, draws: _drawn(trials, draws).tau_b(),
    by_condition=_tau_b_by_condition,
    bounds=CORRELATION,
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
    cluster = clusters_of(trials)[first]
    totals = [cluster_sums(values, cluster, draws.clusters)[0][None, :] for values in (above, below)]
    found: Numbers = draws.ratios(totals[0], totals[1])[0]
    return found


def _within_draws(trials: TrialTable, draws: Draws) -> Numbers:
    known = _known(trials)
    tau = _within_task(known).tau_b()
    return _over_tasks(known, draws, tau, np.where(np.isnan(tau), 0.0, 1.0))


@metric(better="higher", resample=_within_draws, bounds=CORRELATION)
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


@metric(better="higher", resample=_preference_draws, bounds=SHARE)
def preference_accuracy(trials: TrialTable) -> float:
    """Share of pairs of the same task and different true level that the scores order correctly; a tie counts half."""
    right, pairs = _preference_terms(_known(trials))
    return float(right.sum() / pairs.sum()) if pairs.sum() else float("nan")


# Pairs of rollouts of which a person preferred one, as RoboArena has them.


@dataclass(frozen=True)
class PreferredPair:
    """Two episodes of one instruction, and which of them a person preferred."""

    pair: str
    a: str
    b: str
    preferred: Literal["a", "b", "tie"]


def preferred_pairs(episodes: Sequence[Episode]) -> tuple[PreferredPair, ...]:
    """Return the pairs of which both episodes are there; DataError where the two contradict each other."""
    members: dict[str, list[tuple[str, str]]] = {}
    for episode in episodes:
        if episode.label.preference is not None:
            stated = episode.label.preference
            members.setdefault(stated.pair, []).append((episode.id, stated.preferred))
    found = []
    for pair, both in members.items():
        words = sorted(word for _, word in both)
        if len(both) == 1:  # the other was not drawn, or cannot be read
            continue
        if words not in (["other", "this"], ["tie", "tie"]):
            raise DataError(
                f"the preference of pair {pair!r} must be `this` in one row and `other` in a second, or `tie` in both; "
                f"got {', '.join(words)}: correct these rows"
            )
        (a, said), (b, _) = both
        found.append(PreferredPair(pair, a, b, "tie" if said == "tie" else "a" if said == "this" else "b"))
    return tuple(found)


def human_preference_agreement(trials: TrialTable, pairs: Sequence[PreferredPair], draws: Draws) -> MetricEstimate:
    """Return the share of pairs in which the preferred rollout has the higher expected level; equal levels count half.

    `trials` are those of one model on untouched episodes. A pair that the person called a tie has no order to agree
    with and is not asked; one with a rollout that was not scored is asked and not scored.
    """
    used = trials.where(trials.matches("status", "scored"))
    place = {str(episode): number for number, episode in enumerate(used.text("episode"))}
    decided = [pair for pair in pairs if pair.preferred != "tie"]
    both = [(place[pair.a], place[pair.b], pair) for pair in decided if pair.a in place and pair.b in place]
    level, cluster = expected_levels(used), clusters_of(used)
    gain = np.array([(level[a] - level[b]) * (1 if pair.preferred == "a" else -1) for a, b, pair in both])
    of_pairs = cluster[np.array([a for a, _, _ in both], dtype=np.int64)]  # that of both, which have one task
    zeros = np.zeros(len(both), dtype=np.int64)
    means = estimate_means((1 + np.sign(gain)) / 2, of_pairs, zeros, 1, draws, proportion=False, bounds=SHARE)
    value, low, high = (float(column[0]) for column in (means.value, means.low, means.high))
    return MetricEstimate(value, low, high, len(both), len(decided))


# The ranking of several models: does a change reorder them?


def rank_stability(clean: Sequence[float], changed: Sequence[float]) -> float:
    """Return tau-b between the ranking of models on clean episodes and under change; nan if either ranks nobody."""
    a, b = np.asarray(clean, dtype=np.float64), np.asarray(changed, dtype=np.float64)
    known = ~np.isnan(a + b)
    return float(count_pairs(a[known], b[known], np.zeros(int(known.sum()), dtype=np.int64), 1).tau_b()[0])
