"""Which frames arrive, in which order, how fast, until when; pixels untouched."""

from functools import partial

import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Episode, Indices, rearrange, show_only
from rewardlab.core.errors import NotApplicable
from rewardlab.perturbations.contract import (
    Episodes,
    PerturbedEpisode,
    on_episode,
    on_order,
    relabel_by_last_frame,
    with_unknown_label,
)


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


_reordered = partial(on_order, "temporal")


@_reordered(parameter="largest slip in frames", table=(1, 2, 4, 8), randomness="per_frame")
def jitter_index(count: int, slip: int, rng: Generator) -> Indices:
    """Time stamps are off by a few frames, so frames come early, late or twice; the last one is in place."""
    draw = rng.uniform(-1, 1, count)
    slips = np.sign(draw) * np.ceil(np.abs(draw) * slip)
    indices = np.clip(np.arange(count) + slips.astype(np.int64), 0, count - 1)
    indices[-1] = count - 1
    return require_changed(indices, count)


@_reordered(parameter="frames per window", table=(2, 4, 8, 16), based_on="ROSE-AR jumbling", randomness="per_frame")
def local_shuffle(count: int, window: int, rng: Generator) -> Indices:
    """Frames that lie close together arrive in the wrong order; the last one is in place."""
    inner = count - 1
    keys = rng.random(inner)
    return require_changed(np.append(np.lexsort((keys, np.arange(inner) // window)), count - 1), count)


@_reordered(
    parameter="fraction of frames out of place", table=(0.25, 0.5, 0.75, 1.0), based_on="GVL", randomness="per_frame"
)
def global_shuffle(count: int, fraction: float, rng: Generator) -> Indices:
    """Frames trade places all over the clip between the first and the last, so the end state is the same."""
    inner = rng.permutation(np.arange(1, count - 1))
    out_of_place = inner[: part_of(len(inner), fraction, at_least=2)]
    indices = np.arange(count)
    indices[out_of_place] = np.roll(out_of_place, 1)  # one cycle: no chosen frame stays where it was
    return require_changed(indices, count)


@on_episode(
    "temporal",
    channel="order",
    parameter="fraction of the length, from the end",
    table=(0.25, 0.5, 0.75, 1.0),
    based_on="ReWiND, value order correlation",
    label="changes",
    expect="relabel",
)
def reverse(episode: Episode, fraction: float, _rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
    """The last part of the rollout plays backwards, so the robot undoes what it did."""
    count = len(episode.clip)
    tail = part_of(count, fraction, at_least=2)
    indices = np.append(np.arange(count - tail), np.arange(count)[::-1][:tail])
    after = rearrange(episode, require_changed(indices, count))
    if fraction == 1.0 and episode.label.progress is None:
        return with_unknown_label(after, "reversed")
    return relabel_by_last_frame(episode, after)


@_reordered(parameter="fraction of the length shown again", table=(0.25, 0.5, 0.75, 1.0))
def loop_twice(count: int, fraction: float, _rng: Generator) -> Indices:
    """The player jumps back and shows the last part again, in the end all of the rollout; it ends in the same state."""
    return np.append(np.arange(count), np.arange(count - part_of(count, fraction), count))


# The rollout runs at another speed; it begins and ends with the same frames.

_SPEED = "AugLy ChangeVideoSpeed"


@_reordered(parameter="times as fast", table=(1.5, 2.0, 4.0, 8.0), based_on=_SPEED)
def speed_up(count: int, factor: float, _rng: Generator) -> Indices:
    """The robot moves faster than it did: fewer frames from the same start to the same end."""
    return require_changed(np.unique(evenly_spaced(count, round(count / factor))), count)


@_reordered(parameter="times as fast", table=(0.75, 0.5, 0.33, 0.25), based_on=_SPEED)
def slow_down(count: int, factor: float, _rng: Generator) -> Indices:
    """The robot moves slower than it did: more frames from the same start to the same end."""
    if count == 1:
        raise NotApplicable("a clip of one frame has no speed")
    return require_changed(evenly_spaced(count, round(count / factor)), count)


@_reordered(
    parameter="exponent of time", table=(1.3, 1.7, 2.5, 4.0), based_on="vidaug TemporalElastic", randomness="per_clip"
)
def time_warp(count: int, gamma: float, rng: Generator) -> Indices:
    """The robot hesitates at one end of the rollout and rushes at the other, in the same total time."""
    hesitates_first = rng.random() < 0.5
    time = np.linspace(0, 1, count)
    warped = time**gamma if hesitates_first else 1 - (1 - time) ** gamma
    warped[-1] = 1.0  # one frame alone is the last one, too
    return require_changed(np.round(warped * (count - 1)).astype(np.int64), count)


# Frames get lost or stand still on their way; the last one always arrives.


@on_episode(
    "temporal",
    channel="order",
    parameter="fraction of frames kept",
    table=(0.75, 0.5, 0.25, 0.12),
    based_on="Kinetics-C frame rate",
)
def drop_uniform(episode: Episode, keep: float, _rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
    """The recorder keeps only every n-th frame, each still at its own time, the last one included."""
    count = len(episode.clip)
    kept = np.unique(evenly_spaced(count, part_of(count, keep)))
    return PerturbedEpisode(show_only(episode, require_changed(kept, count)), "same")


@on_episode(
    "temporal",
    channel="order",
    parameter="fraction of frames lost",
    table=(0.1, 0.25, 0.5, 0.75),
    based_on="THUMOS14-C",
    randomness="per_frame",
)
def drop_random(episode: Episode, lost: float, rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
    """Frames get lost here and there and leave gaps in time; the first and the last arrive."""
    count = len(episode.clip)
    inner = rng.permutation(np.arange(1, count - 1))
    kept = np.ones(count, bool)
    kept[inner[: part_of(len(inner), lost)]] = False
    return PerturbedEpisode(show_only(episode, require_changed(np.flatnonzero(kept), count)), "same")


@_reordered(
    parameter="fraction of the length", table=(0.1, 0.25, 0.4, 0.6), based_on="ROSE-AR freeze", randomness="per_clip"
)
def freeze_middle(count: int, fraction: float, rng: Generator) -> Indices:
    """The picture freezes for a while in the middle, then jumps to where the robot is by now."""
    length = min(part_of(count, fraction, at_least=2), count - 1)
    middle = count * rng.uniform(0.4, 0.6)
    start = min(max(round(middle - length / 2), 0), count - 1 - length)
    indices = np.arange(count)
    indices[start : start + length] = start
    return require_changed(indices, count)


@_reordered(
    parameter="fraction of frames repeated", table=(0.1, 0.25, 0.5, 0.75), based_on="UCF101-P", randomness="per_frame"
)
def stutter(count: int, fraction: float, rng: Generator) -> Indices:
    """Now and then the stream shows the frame before once more instead of the new one."""
    inner = rng.permutation(np.arange(1, count - 1))
    indices = np.arange(count)
    indices[inner[: part_of(len(inner), fraction)]] = 0
    return require_changed(np.maximum.accumulate(indices), count)


@_reordered(parameter="added fraction of the length", table=(0.1, 0.25, 0.5, 1.0), based_on="time-outs in deployment")
def hold_last(count: int, added: float, _rng: Generator) -> Indices:
    """The robot is done or stuck, and the recording goes on: the last frame stands still."""
    return np.append(np.arange(count), np.full(part_of(count, added), count - 1))


# The recording starts late, ends early or lags behind.


@_reordered(
    parameter="fraction of the length kept",
    table=(0.9, 0.75, 0.5, 0.25),
    based_on="RoboReward negative clipping",
    label="changes",
    expect="relabel",
)
def truncate_end(count: int, keep: float, _rng: Generator) -> Indices:
    """The recording stops before the rollout does."""
    return require_changed(np.arange(max(1, count - part_of(count, 1 - keep))), count)


@_reordered(parameter="fraction of the length lost", table=(0.1, 0.25, 0.5, 0.75), based_on="UCF101-P")
def crop_start(count: int, lost: float, _rng: Generator) -> Indices:
    """The recording starts when the robot is already at work."""
    return require_changed(np.arange(min(part_of(count, lost), count - 1), count), count)


@_reordered(
    parameter="delay as a fraction of the length",
    table=(0.02, 0.05, 0.1, 0.2),
    based_on="latency of robot policies",
    label="changes",
    expect="relabel",
)
def latency(count: int, delay: float, _rng: Generator) -> Indices:
    """The picture lags: the first frame stands still, and the end has not arrived yet when the clip is scored."""
    return require_changed(np.maximum(np.arange(count) - part_of(count, delay), 0), count)
