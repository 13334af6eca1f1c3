"""Frames of the stream are lost to black, blended with their neighbours, or replaced by those of another clip."""

from collections.abc import Iterator

import cv2
import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Episode, Frames, Indices, with_frames
from rewardlab.core.errors import NotApplicable
from rewardlab.core.seeding import pick
from rewardlab.perturbations.contract import Episodes, PerturbedEpisode, Spec, on_episode, on_frames
from rewardlab.perturbations.temporal.frame_indices import part_of


@on_frames(Spec("temporal", "fraction of frames", (0.05, 0.15, 0.3, 0.5), "THUMOS14-C", "per_frame"))
def black_frames(frames: Frames, fraction: float, rng: Generator) -> Frames:
    """The picture drops out to black for some frames, never for the last one."""
    count = len(frames)
    if count == 1:
        raise NotApplicable("a clip of one frame has no frame to lose")
    lost = rng.permutation(count - 1)[: part_of(count, fraction)]
    return _replace_frames(frames, np.sort(lost), np.zeros_like(frames[:1]))


@on_frames(Spec("temporal", "frames blended into one", (3, 5, 7, 11), "mini-Kinetics-C, length kept", stage="stream"))
def frame_blend(frames: Frames, window: int, rng: Generator) -> Frames:
    """A long exposure leaves ghosts of what moves; towards both ends it shortens, so the last frame is sharp."""
    if len(frames) < 3:
        raise NotApplicable(f"a clip of {len(frames)} frames has no neighbours to blend")
    return np.stack(list(_running_means(frames, window // 2)))


_LENGTHS = (0.05, 0.1, 0.2, 0.3)
_SPLICE = Spec("temporal", "fraction of the length", _LENGTHS, "rewardlab", "per_clip", "keeps_if", uses_dataset=True)


@on_episode("frames", _SPLICE)
def splice_foreign(episode: Episode, fraction: float, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """Somewhere in the middle the recorder writes another robot's clip into this one; the end is this one's."""
    frames = episode.frames
    count, height, width = frames.shape[:3]
    if count < 3:
        raise NotApplicable(f"a clip of {count} frames has no middle")
    foreign = _episode_of_another_task(episode, rng, dataset)
    length = min(part_of(count, fraction), count - 2)
    start = round(count * rng.uniform(0.4, 0.6) - length / 2)
    indices = np.arange(length) + min(max(start, 1), count - 1 - length)
    pixels = foreign.clip.source.read(foreign.clip.order[indices * len(foreign.clip) // count])
    resized = np.stack([cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA) for frame in pixels])
    return PerturbedEpisode(with_frames(episode, _replace_frames(frames, indices, resized)), "same")


def _episode_of_another_task(episode: Episode, rng: Generator, dataset: Episodes) -> Episode:
    """Return an episode of another task; the order of the dataset makes no difference."""
    task, instruction = episode.origin.task, episode.instruction
    others = {other.id: other for other in dataset if other.origin.task != task and other.instruction != instruction}
    if not others:
        raise NotApplicable("no episode of another task to splice in")
    return others[pick(sorted(others), rng)]


def _replace_frames(frames: Frames, indices: Indices, pixels: Frames) -> Frames:
    result = frames.copy()
    result[indices] = pixels
    return result


def _running_means(frames: Frames, most: int) -> Iterator[Frames]:
    """Yield the mean of each frame and its neighbours on both sides, `most` of them or fewer at the ends."""
    total = np.zeros(frames.shape[1:], np.float32)
    first, last = 0, -1  # the frames that `total` holds
    for index in range(len(frames)):
        half = min(most, index, len(frames) - 1 - index)
        while last < index + half:
            last += 1
            total += frames[last]
        while first < index - half:
            total -= frames[first]
            first += 1
        yield cv2.convertScaleAbs(total, alpha=1 / (2 * half + 1))
