"""Frames arrive in another order; what the last frame shows decides whether the label still holds."""

import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Episode, Indices, rearrange
from rewardlab.perturbations.contract import (
    Episodes,
    PerturbedEpisode,
    Spec,
    on_episode,
    on_order,
    relabel_by_last_frame,
    with_unknown_truth,
)
from rewardlab.perturbations.temporal.frame_indices import part_of, require_changed

_REWIND = "ReWiND, value order correlation"
_TAIL = "fraction of the length, from the end"


@on_order(Spec("temporal", "largest slip in frames", (1, 2, 4, 8), randomness="per_frame"))
def jitter_index(count: int, slip: int, rng: Generator) -> Indices:
    """Time stamps are off by a few frames, so frames come early, late or twice; the last one is in place."""
    draw = rng.uniform(-1, 1, count)
    slips = np.sign(draw) * np.ceil(np.abs(draw) * slip)
    indices = np.clip(np.arange(count) + slips.astype(np.int64), 0, count - 1)
    indices[-1] = count - 1
    return require_changed(indices, count)


@on_order(Spec("temporal", "frames per window", (2, 4, 8, 16), "ROSE-AR jumbling", "per_frame"))
def local_shuffle(count: int, window: int, rng: Generator) -> Indices:
    """Frames that lie close together arrive in the wrong order; the last one is in place."""
    inner = count - 1
    keys = rng.random(inner)
    return require_changed(np.append(np.lexsort((keys, np.arange(inner) // window)), count - 1), count)


@on_order(Spec("temporal", "fraction of frames out of place", (0.25, 0.5, 0.75, 1.0), "GVL", "per_frame"))
def global_shuffle(count: int, fraction: float, rng: Generator) -> Indices:
    """Frames trade places all over the clip between the first and the last, so the end state is the same."""
    inner = rng.permutation(np.arange(1, count - 1))
    out_of_place = inner[: part_of(len(inner), fraction, at_least=2)]
    indices = np.arange(count)
    indices[out_of_place] = np.roll(out_of_place, 1)  # one cycle: no chosen frame stays where it was
    return require_changed(indices, count)


@on_episode("order", Spec("temporal", _TAIL, (0.25, 0.5, 0.75, 1.0), _REWIND, "none", "changes", "relabel"))
def reverse(episode: Episode, fraction: float, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """The last part of the rollout plays backwards, so the robot undoes what it did."""
    count = len(episode.clip)
    tail = part_of(count, fraction, at_least=2)
    indices = np.append(np.arange(count - tail), np.arange(count)[::-1][:tail])
    after = rearrange(episode, require_changed(indices, count))
    if fraction == 1.0 and episode.truth.progress is None:
        return with_unknown_truth(after, "reversed")
    return relabel_by_last_frame(episode, after)


@on_order(Spec("temporal", "fraction of the length shown again", (0.25, 0.5, 0.75, 1.0)))
def loop_twice(count: int, fraction: float, rng: Generator) -> Indices:
    """The player jumps back and shows the last part again, in the end all of the rollout; it ends in the same state."""
    return np.append(np.arange(count), np.arange(count - part_of(count, fraction), count))
