"""Frames of the stream are lost to black, blended with their neighbours, or replaced by those of another clip."""

from collections.abc import Iterator

import cv2
import numpy as np
from numpy.random import Generator

from rewardlab.core.episode import Episode, Frames, with_frames
from rewardlab.core.errors import NotApplicable
from rewardlab.core.seeding import pick
from rewardlab.perturb.contract import Episodes, PerturbedEpisode, Spec, on_episode, on_frames
from rewardlab.perturb.temporal.frame_indices import share_of


@on_frames(Spec("temporal", "share of frames", (0.05, 0.15, 0.3, 0.5), "THUMOS14-C", "per_frame"))
def black_frames(frames: Frames, share: float, rng: Generator) -> Frames:
    """The picture drops out to black for some frames, never for the last one."""
    count = len(frames)
    if count == 1:
        raise NotApplicable("a clip of one frame has no frame to lose")
    lost = rng.permutation(count - 1)[: share_of(count, share)]
    return _replaced(frames, np.sort(lost), np.zeros_like(frames[:1]))


@on_frames(Spec("temporal", "frames blended into one", (3, 5, 7, 11), "mini-Kinetics-C, length kept", stage="stream"))
def frame_blend(frames: Frames, window: int, rng: Generator) -> Frames:
    """A long exposure leaves ghosts of what moves; towards both ends it shortens, so the last frame is sharp."""
    if len(frames) < 3:
        raise NotApplicable(f"a clip of {len(frames)} frames has no neighbours to blend")
    return np.stack(list(_running_means(frames, window // 2)))


@on_episode(
    "frames",
    Spec(
        "temporal",
        "share of the length",
        (0.05, 0.1, 0.2, 0.3),
        label="keeps_if",
        randomness="per_clip",
        uses_dataset=True,
    ),
)
def splice_foreign(episode: Episode, share: float, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
    """Somewhere in the middle the recorder writes another robot's clip into this one; the end is this one's."""
    frames = episode.frames
    count, height, width = frames.shape[:3]
    if count < 3:
        raise NotApplicable(f"a clip of {count} frames has no middle")
    peer = _foreigner(episode, rng, dataset)
    length = min(share_of(count, share), count - 2)
    start = round(count * rng.uniform(0.4, 0.6) - length / 2)
    places = np.arange(length) + min(max(start, 1), count - 1 - length)
    foreign = peer.clip.source.read(peer.clip.order[places * len(peer.clip) // count])
    resized = np.stack([cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA) for frame in foreign])
    return PerturbedEpisode(with_frames(episode, _replaced(frames, places, resized)), "same")


def _foreigner(episode: Episode, rng: Generator, dataset: Episodes) -> Episode:
    """Return an episode of another task, whatever order the dataset come in."""
    mine = (episode.origin.task, episode.instruction)
    others = {p.id: p for p in dataset if p.origin.task != mine[0] and p.instruction != mine[1]}
    if not others:
        raise NotApplicable("no episode of another task to splice in")
    return others[pick(sorted(others), rng)]


def _replaced(frames: Frames, places: np.ndarray[tuple[int], np.dtype[np.int64]], pixels: Frames) -> Frames:
    result = frames.copy()
    result[places] = pixels
    return result


def _running_means(frames: Frames, most: int) -> Iterator[Frames]:
    """Yield the mean of each frame and its neighbours on both sides, `most` of them or fewer at the ends."""
    total = np.zeros(frames.shape[1:], np.float32)
    first, last = 0, -1  # the frames that `total` holds
    for place in range(len(frames)):
        half = min(most, place, len(frames) - 1 - place)
        while last < place + half:
            last += 1
            total += frames[last]
        while first < place - half:
            total -= frames[first]
            first += 1
        yield cv2.convertScaleAbs(total, alpha=1 / (2 * half + 1))
