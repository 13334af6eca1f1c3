"""When the frames of a video are shown: at one rate, or each at its own time (variable frame rate)."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Positions

DEFAULT_FPS = 10.0  # for a video that says nothing about time
_LARGEST_TICK = 2**53  # above it a float no longer counts ticks one by one


def rate_and_positions(
    stamps: Sequence[int | None], time_base: Fraction | None, stated: float | None
) -> tuple[float, Positions]:
    """Return the rate, and when each frame is shown counted in frames at that rate; the first is shown at 0.

    Evenly spaced frames have whole positions and the stated rate, or their own where that one is wrong; for others the
    rate is their mean and the positions are fractions. ValueError says that the stamps make no sense.
    """
    every = np.arange(len(stamps))
    known = sorted(stamp for stamp in stamps if stamp is not None)
    if len(known) < max(len(stamps), 2) or not time_base or known[-1] == known[0]:
        return stated or DEFAULT_FPS, every
    if known[-1] - known[0] > _LARGEST_TICK:
        raise ValueError(f"its frames are {known[-1] - known[0]} ticks apart")
    tick = float(time_base)
    times = np.array([stamp - known[0] for stamp in known], np.float64) * tick
    if stated and _is_even(times, stated, tick):
        return stated, every
    mean = (len(times) - 1) / float(times[-1])
    return mean, every if _is_even(times, mean, tick) else times * mean


def _is_even(times: NDArray[np.float64], rate: float, tick: float) -> bool:
    """Tell whether times are those of a constant rate, up to what rounding to ticks does to them."""
    tolerance = min(max(1.05 * tick, 0.02 / rate), 0.25 / rate)
    return bool(np.abs(times - np.arange(len(times)) / rate).max() <= tolerance)
