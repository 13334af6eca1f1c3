"""Frames get lost or stand still on their way; the last one always arrives."""

import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Episode, Indices, show_only
from rewardlab.perturb.contract import Episodes, PerturbedEpisode, Spec, on_episode, on_order
from rewardlab.perturb.temporal.frame_indices import changed, share_of, spread


@on_episode(
    "order",
    Spec("temporal", "share of frames kept", (0.75, 0.5, 0.25, 0.12), "Kinetics-C frame rate", stage="stream"),
)
def drop_uniform(episode: Episode, keep: float, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """The recorder keeps only every n-th frame, each still at its own time, the last one included."""
    count = len(episode.clip)
    kept = np.unique(spread(count, share_of(count, keep)))
    return PerturbedEpisode(show_only(episode, changed(kept, count)), "same")


@on_episode(
    "order",
    Spec("temporal", "share of frames lost", (0.1, 0.25, 0.5, 0.75), "THUMOS14-C", "per_frame", stage="stream"),
)
def drop_random(episode: Episode, lost: float, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """Frames get lost here and there and leave gaps in time; the first and the last arrive."""
    count = len(episode.clip)
    inner = rng.permutation(np.arange(1, count - 1))
    kept = np.ones(count, bool)
    kept[inner[: share_of(len(inner), lost)]] = False
    return PerturbedEpisode(show_only(episode, changed(np.flatnonzero(kept), count)), "same")


@on_order(Spec("temporal", "share of the length", (0.1, 0.25, 0.4, 0.6), "ROSE-AR freeze", "per_clip"))
def freeze_middle(count: int, share: float, rng: Generator) -> Indices:
    """The picture freezes for a while in the middle, then jumps to where the robot is by now."""
    length = min(share_of(count, share, least=2), count - 1)
    middle = count * rng.uniform(0.4, 0.6)
    start = min(max(round(middle - length / 2), 0), count - 1 - length)
    picks = np.arange(count)
    picks[start : start + length] = start
    return changed(picks, count)


@on_order(Spec("temporal", "share of frames repeated", (0.1, 0.25, 0.5, 0.75), "UCF101-P", "per_frame"))
def stutter(count: int, share: float, rng: Generator) -> Indices:
    """Now and then the stream shows the frame before once more instead of the new one."""
    inner = rng.permutation(np.arange(1, count - 1))
    picks = np.arange(count)
    picks[inner[: share_of(len(inner), share)]] = 0
    return changed(np.maximum.accumulate(picks), count)


@on_order(Spec("temporal", "added share of the length", (0.1, 0.25, 0.5, 1.0), "time-outs in deployment"))
def hold_last(count: int, added: float, rng: Generator) -> Indices:
    """The robot is done or stuck, and the recording goes on: the last frame stands still."""
    return np.append(np.arange(count), np.full(share_of(count, added), count - 1))
