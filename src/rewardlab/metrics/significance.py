"""What may be claimed: exact McNemar, Holm's correction and the minimum detectable change."""

import math
from collections.abc import Sequence

import numpy as np


def exact_mcnemar(only_a: int, only_b: int) -> float:
    """Return the exact two-sided p-value of McNemar's test; `only_a` counts the trials that only A got right.

    It takes the trials as independent; 1 where the two never differ.
    """
    from scipy.special import bdtr

    return float(min(1.0, 2 * bdtr(min(only_a, only_b), only_a + only_b, 0.5)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values corrected by Holm within this family; a nan is not a test and stays nan."""
    order = [int(i) for i in np.argsort(p_values, kind="stable") if not math.isnan(p_values[i])]
    corrected = [math.nan] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, p_values[place] * (len(order) - rank)))
        corrected[place] = largest
    return corrected


def minimum_detectable_change(standard_error: float, clusters: int, power: float = 0.8) -> float:
    """Return the true change that a two-sided test at 5 % finds with this power; nan with fewer than two clusters."""
    from scipy.special import stdtrit

    if clusters < 2 or math.isnan(standard_error):
        return math.nan
    return float((stdtrit(clusters - 1, 0.975) + stdtrit(clusters - 1, power)) * standard_error)
