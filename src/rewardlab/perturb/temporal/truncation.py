"""The recording starts late, ends early or lags behind."""

import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Indices
from rewardlab.perturb.contract import Spec, on_order
from rewardlab.perturb.temporal.frame_indices import changed, share_of


@on_order(
    Spec(
        "temporal",
        "share of the length kept",
        (0.9, 0.75, 0.5, 0.25),
        "RoboReward negative clipping",
        expect="relabel",
        label="changes",
    )
)
def truncate_end(count: int, keep: float, rng: Generator) -> Indices:
    """The recording stops before the rollout does."""
    return changed(np.arange(max(1, count - share_of(count, 1 - keep))), count)


@on_order(Spec("temporal", "share of the length lost", (0.1, 0.25, 0.5, 0.75), "UCF101-P"))
def crop_start(count: int, lost: float, rng: Generator) -> Indices:
    """The recording starts when the robot is already at work."""
    return changed(np.arange(min(share_of(count, lost), count - 1), count), count)


@on_order(
    Spec(
        "temporal",
        "delay as a share of the length",
        (0.02, 0.05, 0.1, 0.2),
        "latency studies of robot policies",
        expect="relabel",
        label="changes",
    )
)
def latency(count: int, delay: float, rng: Generator) -> Indices:
    """The picture lags: the first frame stands still, and the end has not arrived yet when the clip is judged."""
    return changed(np.maximum(np.arange(count) - share_of(count, delay), 0), count)
