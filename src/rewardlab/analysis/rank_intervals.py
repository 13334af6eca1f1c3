"""Ranks of models with intervals: the same draws of the same episodes for all of them, ranked anew in each."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.trial import TrialTable
from rewardlab.metrics.clustered_bootstrap import condition_sums, draw_clusters
from rewardlab.metrics.derived_columns import cluster_codes
from rewardlab.metrics.eligibility import answered

Numbers = NDArray[np.float64]
_FACTS = ("task", "video", "subset")  # of an episode, the same for every model


@dataclass(frozen=True)
class RankInterval:
    """Between which ranks a model lies in 95 % of draws, and on how many episodes it was compared."""

    low: int
    high: int
    episodes: int


def rank_intervals(tables: Sequence[TrialTable], draws: int, seed: int = 0) -> list[RankInterval | None]:
    """Return, per table of one model's trials, its rank by mean error over subsets, on the episodes that all answered.

    None where there is nothing to rank: fewer than two models, or no common episode.
    """
    errors = [_errors(table) for table in tables]
    common = sorted(set.intersection(*map(set, errors))) if len(errors) > 1 else []
    if not common:
        return [None] * len(tables)
    drawn = _drawn_errors(tables[0], common, np.array([[own[name] for name in common] for own in errors]), draws, seed)
    ranks = 1 + (drawn[None, :, :] < drawn[:, None, :]).sum(axis=1)  # models with a lower error come before
    low, high = np.quantile(ranks, (0.025, 0.975), axis=1, method="nearest")
    return [RankInterval(int(a), int(b), len(common)) for a, b in zip(low, high)]


def _errors(trials: TrialTable) -> dict[str, float]:
    used = trials.where(answered(trials, "level"))
    error = np.abs(used.number("level") - used.number("truth_level"))
    return dict(zip(map(str, used.text("episode")), error.tolist()))


def _drawn_errors(first: TrialTable, episodes: Sequence[str], errors: Numbers, draws: int, seed: int) -> Numbers:
    """Return the mean over subsets of the mean error, by model and draw; in a draw, over the subsets that are in it."""
    place = {name: row for row, name in enumerate(first.text("episode"))}
    facts = first.take(np.array([place[name] for name in episodes], dtype=np.int64))
    task, video, subset = (np.unique(facts.text(c).astype(str), return_inverse=True)[1] for c in _FACTS)
    cluster, subsets = cluster_codes(task.astype(np.int64), video.astype(np.int64)), int(subset.max()) + 1
    lots = draw_clusters(int(cluster.max()) + 1, draws, seed)
    found = []
    for own in errors:
        ratios = lots.ratios(*condition_sums(own, cluster, subset.astype(np.int64), subsets, lots.clusters))
        known = ~np.isnan(ratios)
        found.append(np.where(known, ratios, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1))
    return np.array(found)
