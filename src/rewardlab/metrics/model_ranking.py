"""The ranking of several models: does a change reorder them?"""

from collections.abc import Sequence

import numpy as np

from rewardlab.metrics.kendall import count_pairs


def rank_stability(clean: Sequence[float], changed: Sequence[float]) -> float:
    """Return tau-b between the ranking of models on clean episodes and under change; nan if either ranks nobody."""
    a, b = np.asarray(clean, dtype=np.float64), np.asarray(changed, dtype=np.float64)
    known = ~np.isnan(a + b)
    return float(count_pairs(a[known], b[known], np.zeros(int(known.sum()), dtype=np.int64), 1).tau_b()[0])
