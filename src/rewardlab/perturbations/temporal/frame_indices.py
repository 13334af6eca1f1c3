"""Choosing frames by index: evenly spaced ones, a fraction of them, and a choice that must change the clip."""

import numpy as np

from rewardlab.core.episode import Indices
from rewardlab.core.errors import NotApplicable


def require_changed(indices: Indices, count: int) -> Indices:
    """Return the indices; not applicable where they leave a clip of `count` frames as it was."""
    if np.array_equal(indices, np.arange(count)):
        raise NotApplicable(f"a clip of {count} frames is too short for this change to show")
    return indices


def evenly_spaced(count: int, kept: int) -> Indices:
    """Return `kept` frame indices (at least 2) spaced evenly over the clip, the first and the last among them."""
    return np.round(np.linspace(0, count - 1, max(2, kept))).astype(np.int64)


def part_of(count: int, fraction: float, at_least: int = 1) -> int:
    """Return how many of `count` frames a fraction is, and at least `at_least`."""
    return max(at_least, round(count * fraction))
