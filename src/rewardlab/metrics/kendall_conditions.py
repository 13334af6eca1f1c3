"""Tau-b of thousands of small conditions at once: pairs of trials become pairs of clusters, and draws a product."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rewardlab.metrics.clustered_bootstrap import Draws, Means, percentile_interval, sum_by

Numbers = NDArray[np.float64]
Codes = NDArray[np.int64]
FEW_TRIALS, FEW_CLUSTERS = 200, 64  # up to these, in each condition and in all, this is the faster way
_HELD = 2_000_000  # drawn numbers held at a time


def tau_b_of_conditions(
    scores: Numbers, truths: Numbers, cluster: Codes, condition: Codes, conditions: int, draws: Draws
) -> Means:
    """Return tau-b of each condition with its interval, the same as from trials written out; no number may be nan."""
    first, second = np.triu_indices(draws.clusters)
    together = draws.light_weights[first] * draws.light_weights[second]
    order = np.argsort(condition, kind="stable")
    edges = np.searchsorted(condition[order], np.arange(conditions + 1))
    code = np.zeros((draws.clusters, draws.clusters), dtype=np.int64)
    code[first, second] = code[second, first] = np.arange(len(first))
    step = max(1, _HELD // draws.number)
    parts = []
    for start in range(0, conditions, step):
        sets = [order[a:b] for a, b in pairwise(edges[start : start + step + 1])]
        tables = np.stack([_pair_tables(scores[s], truths[s], cluster[s], code) for s in sets], axis=1)
        balance, by_score, by_truth = tables.astype(np.float32) @ together
        value = _tau_b(*tables.sum(axis=2))
        behind = np.array([len(np.unique(cluster[s])) for s in sets], dtype=np.float64)
        size = np.array([len(s) for s in sets], dtype=np.float64)
        parts.append((value, *percentile_interval(_tau_b(balance, by_score, by_truth), behind), size, behind))
    return Means(*(np.concatenate(column) for column in zip(*parts)))


def _pair_tables(scores: Numbers, truths: Numbers, cluster: Codes, code: Codes) -> Numbers:
    """Return, per pair of clusters: pairs alike less contrary, pairs untied in score, and pairs untied in truth."""
    a, b = np.triu_indices(len(scores), 1)
    by_score, by_truth = np.sign(scores[a] - scores[b]), np.sign(truths[a] - truths[b])
    place, size = code[cluster[a], cluster[b]], int(code.max(initial=-1)) + 1
    return np.stack([sum_by(place, size, kind) for kind in (by_score * by_truth, np.abs(by_score), np.abs(by_truth))])


def _tau_b(balance: NDArray[np.floating], by_score: NDArray[np.floating], by_truth: NDArray[np.floating]) -> Numbers:
    below = np.sqrt(by_score.astype(np.float64) * by_truth)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(below > 0, balance / below, np.nan)
