"""Frames get lost or stand still on their way; the last one always arrives."""

import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Episode, Indices, show_only
from rewardlab.perturbations.contract import Episodes, PerturbedEpisode, Spec, on_episode, on_order
from rewardlab.perturbations.temporal.frame_indices import evenly_spaced, part_of, require_changed


@on_episode("order", Spec("temporal", "fraction of frames kept", (0.75, 0.5, 0.25, 0.12), "Kinetics-C frame rate"))
def drop_uniform(episode: Episode, keep: float, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """The recorder keeps only every n-th frame, each still at its own time, the last one included."""
    count = len(episode.clip)
    kept = np.unique(evenly_spaced(count, part_of(count, keep)))
    return PerturbedEpisode(show_only(episode, require_changed(kept, count)), "same")


@on_episode("order", Spec("temporal", "fraction of frames lost", (0.1, 0.25, 0.5, 0.75), "THUMOS14-C", "per_frame"))
def drop_random(episode: Episode, lost: float, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """Frames get lost here and there and leave gaps in time; the first and the last arrive."""
    count = len(episode.clip)
    inner = rng.permutation(np.arange(1, count - 1))
    kept = np.ones(count, bool)
    kept[inner[: part_of(len(inner), lost)]] = False
    return PerturbedEpisode(show_only(episode, require_changed(np.flatnonzero(kept), count)), "same")


@on_order(Spec("temporal", "fraction of the length", (0.1, 0.25, 0.4, 0.6), "ROSE-AR freeze", "per_clip"))
def freeze_middle(count: int, fraction: float, rng: Generator) -> Indices:
    """The picture freezes for a while in the middle, then jumps to where the robot is by now."""
    length = min(part_of(count, fraction, at_least=2), count - 1)
    middle = count * rng.uniform(0.4, 0.6)
    start = min(max(round(middle - length / 2), 0), count - 1 - length)
    indices = np.arange(count)
    indices[start : start + length] = start
    return require_changed(indices, count)


@on_order(Spec("temporal", "fraction of frames repeated", (0.1, 0.25, 0.5, 0.75), "UCF101-P", "per_frame"))
def stutter(count: int, fraction: float, rng: Generator) -> Indices:
    """Now and then the stream shows the frame before once more instead of the new one."""
    inner = rng.permutation(np.arange(1, count - 1))
    indices = np.arange(count)
    indices[inner[: part_of(len(inner), fraction)]] = 0
    return require_changed(np.maximum.accumulate(indices), count)


@on_order(Spec("temporal", "added fraction of the length", (0.1, 0.25, 0.5, 1.0), "time-outs in deployment"))
def hold_last(count: int, added: float, rng: Generator) -> Indices:
    """The robot is done or stuck, and the recording goes on: the last frame stands still."""
    return np.append(np.arange(count), np.full(part_of(count, added), count - 1))
