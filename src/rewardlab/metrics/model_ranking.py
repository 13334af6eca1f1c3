"""Numbers of several models at once: does a change reorder them, and who is more robust than its clean score says?"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rewardlab.metrics.kendall import count_pairs

Numbers = NDArray[np.float64]
LEAST_MODELS = 8  # below this a fitted trend says little


def effective_robustness(clean: Mapping[str, float], changed: Mapping[str, float]) -> dict[str, float]:
    """Return, per model, its accuracy under change less what its clean accuracy predicts (Taori 2020).

    The prediction is a line between logits, fitted to all other models; nan with fewer than eight models.
    """
    names = [n for n in clean if n in changed and not math.isnan(clean[n] + changed[n])]
    if len(names) < LEAST_MODELS:
        return dict.fromkeys(clean, math.nan)
    x, y = (_logit(np.array([table[n] for n in names])) for table in (clean, changed))
    found = dict.fromkeys(clean, math.nan)
    for i, name in enumerate(names):
        others = np.arange(len(names)) != i
        if np.ptp(x[others]) > 0:
            slope, start = np.polyfit(x[others], y[others], 1)
            found[name] = changed[name] - float(1 / (1 + np.exp(-(start + slope * x[i]))))
    return found


def rank_stability(clean: Sequence[float], changed: Sequence[float]) -> float:
    """Return tau-b between the ranking of models on clean episodes and under change; nan if either ranks nobody."""
    a, b = np.asarray(clean, dtype=np.float64), np.asarray(changed, dtype=np.float64)
    known = ~np.isnan(a + b)
    return float(count_pairs(a[known], b[known], np.zeros(int(known.sum()), dtype=np.int64), 1).tau_b()[0])


def top_kept(clean: Numbers, changed: Numbers, better: Literal["higher", "lower"]) -> float:
    """Return in which share of draws the best model stays the best; both tables are (models, draws)."""
    sign = 1 if better == "higher" else -1
    known = ~(np.isnan(clean).any(axis=0) | np.isnan(changed).any(axis=0))
    if not known.any():
        return math.nan
    best = (sign * clean[:, known]).argmax(axis=0) == (sign * changed[:, known]).argmax(axis=0)
    return float(best.mean())


def rank_sets(drawn: Numbers, better: Literal["higher", "lower"], share: float = 0.95) -> list[tuple[int, int]]:
    """Return, per model, the ranks from best to worst (1 is the first) that it takes in this share of draws."""
    sign = -1 if better == "higher" else 1
    ranks = 1 + (sign * drawn[None, :, :] < sign * drawn[:, None, :]).sum(axis=1)
    tails = (1 - share) / 2, (1 + share) / 2
    low, high = (
        np.quantile(ranks, tails[0], axis=1, method="lower"),
        np.quantile(ranks, tails[1], axis=1, method="higher"),
    )
    return [(int(a), int(b)) for a, b in zip(low, high)]


def mean_maximum_rank_violation(real: Sequence[float], proxy: Sequence[float]) -> float:
    """Return SIMPLER's MMRV: per model the largest real gap to a model that the proxy puts in the other order, mean."""
    a, b = np.asarray(real, dtype=np.float64), np.asarray(proxy, dtype=np.float64)
    if not len(a):
        return math.nan
    gap = np.abs(a[:, None] - a[None, :])
    differs = (b[:, None] < b[None, :]) != (a[:, None] < a[None, :])
    return float((gap * differs).max(axis=1).mean())


def _logit(share: Numbers) -> Numbers:
    inside = np.clip(share, 0.005, 0.995)
    return np.log(inside / (1 - inside))
