"""The rollout runs at another speed; it begins and ends with the same frames."""

import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Indices
from rewardlab.core.errors import NotApplicable
from rewardlab.perturbations.contract import Spec, on_order
from rewardlab.perturbations.temporal.frame_indices import evenly_spaced, require_changed

_SPEED = "AugLy ChangeVideoSpeed"


@on_order(Spec("temporal", "times as fast", (1.5, 2.0, 4.0, 8.0), _SPEED))
def speed_up(count: int, factor: float, rng: Generator) -> Indices:
    """The robot moves faster than it did: fewer frames from the same start to the same end."""
    return require_changed(np.unique(evenly_spaced(count, round(count / factor))), count)


@on_order(Spec("temporal", "times as fast", (0.75, 0.5, 0.33, 0.25), _SPEED))
def slow_down(count: int, factor: float, rng: Generator) -> Indices:
    """The robot moves slower than it did: more frames from the same start to the same end."""
    if count == 1:
        raise NotApplicable("a clip of one frame has no speed")
    return require_changed(evenly_spaced(count, round(count / factor)), count)


@on_order(Spec("temporal", "exponent of time", (1.3, 1.7, 2.5, 4.0), "vidaug TemporalElastic", "per_clip"))
def time_warp(count: int, gamma: float, rng: Generator) -> Indices:
    """The robot hesitates at one end of the rollout and rushes at the other, in the same total time."""
    hesitates_first = rng.random() < 0.5
    time = np.linspace(0, 1, count)
    warped = time**gamma if hesitates_first else 1 - (1 - time) ** gamma
    warped[-1] = 1.0  # one frame alone is the last one, too
    return require_changed(np.round(warped * (count - 1)).astype(np.int64), count)
