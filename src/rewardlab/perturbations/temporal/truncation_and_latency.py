"""The recording starts late, ends early or lags behind."""

import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Indices
from rewardlab.perturbations.contract import SeverityTable, Spec, on_order
from rewardlab.perturbations.temporal.frame_indices import part_of, require_changed


def _ends_earlier(parameter: str, table: SeverityTable, based_on: str) -> Spec:
    return Spec("temporal", parameter, table, based_on, "none", "changes", "relabel")


@on_order(_ends_earlier("fraction of the length kept", (0.9, 0.75, 0.5, 0.25), "RoboReward negative clipping"))
def truncate_end(count: int, keep: float, rng: Generator) -> Indices:
    """The recording stops before the rollout does."""
    return require_changed(np.arange(max(1, count - part_of(count, 1 - keep))), count)


@on_order(Spec("temporal", "fraction of the length lost", (0.1, 0.25, 0.5, 0.75), "UCF101-P"))
def crop_start(count: int, lost: float, rng: Generator) -> Indices:
    """The recording starts when the robot is already at work."""
    return require_changed(np.arange(min(part_of(count, lost), count - 1), count), count)


@on_order(_ends_earlier("delay as a fraction of the length", (0.02, 0.05, 0.1, 0.2), "latency of robot policies"))
def latency(count: int, delay: float, rng: Generator) -> Indices:
    """The picture lags: the first frame stands still, and the end has not arrived yet when the clip is judged."""
    return require_changed(np.maximum(np.arange(count) - part_of(count, delay), 0), count)
