"""Isotonic regression: the rising map that fits pairs of numbers with the least squared error."""

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def isotonic_steps(said: Numbers, truth: Numbers) -> tuple[tuple[float, float], ...]:
    """Return the rising map from what was said to what is true on average, as the ends of its flat parts."""
    from scipy.optimize import isotonic_regression

    levels, place = np.unique(said, return_inverse=True)
    count = np.bincount(place).astype(np.float64)
    meant = isotonic_regression(np.bincount(place, truth) / count, weights=count).x
    flat = np.concatenate([[False], np.diff(meant) == 0, [False]])
    ends = ~(flat[:-1] & flat[1:])  # inside a flat part nothing is to be said
    return tuple((float(level), float(value)) for level, value in zip(levels[ends], meant[ends]))
