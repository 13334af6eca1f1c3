"""Temporal perturbations: the stream loses, repeats or reorders frames before anyone looks at it."""

import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Indices
from rewardlab.perturb.contract import Definition, on_order


@on_order(Definition("temporal", "share of frames kept", (0.75, 0.5, 0.25, 0.12), "Kinetics-C frame rate"))
def drop_uniform(count: int, keep: float, rng: Generator) -> Indices:
    """The recorder keeps only every n-th frame, the last one included."""
    kept = max(2, round(count * keep))
    return np.unique(np.round(np.linspace(0, count - 1, kept)).astype(np.int64))


@on_order(Definition("temporal", "added share of the length", (0.1, 0.25, 0.5, 1.0), "time-outs in deployment"))
def hold_last(count: int, added: float, rng: Generator) -> Indices:
    """The robot is done or stuck, and the recording goes on: the last frame stands still."""
    return np.concatenate([np.arange(count), np.full(max(1, round(count * added)), count - 1)])


@on_order(
    Definition(
        "temporal",
        "share of the length kept",
        (0.9, 0.75, 0.5, 0.25),
        "RoboReward negative clipping",
        expect="relabel",
        label="C",
    )
)
def truncate_end(count: int, keep: float, rng: Generator) -> Indices:
    """The recording stops before the rollout does."""
    return np.arange(max(1, round(count * keep)))
