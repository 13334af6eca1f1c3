"""What every choice of frames shares: it must change the clip, or the cell is dropped."""

import numpy as np

from rewardlab.core.episode import Indices
from rewardlab.core.errors import NotApplicable


def changed(picks: Indices, count: int) -> Indices:
    """Return the picks; where they leave a clip of `count` frames as it was, the cell is dropped."""
    if np.array_equal(picks, np.arange(count)):
        raise NotApplicable(f"a clip of {count} frames is too short for this change to show")
    return picks


def spread(count: int, shown: int) -> Indices:
    """Return `shown` frames (at least 2) spread evenly over the clip, the first and the last among them."""
    return np.round(np.linspace(0, count - 1, max(2, shown))).astype(np.int64)


def share_of(count: int, share: float, least: int = 1) -> int:
    """Return how many of `count` frames a share means, and at least `least`."""
    return max(least, round(count * share))
