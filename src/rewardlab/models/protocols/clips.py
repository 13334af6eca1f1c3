"""What a prompt shows before its question: the views of an episode, a demonstration of the task, or several clips.

Frames come first and the words that tell which is which behind them, since some chat templates put all images first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Literal

import numpy as np

from rewardlab.core.episode import Episode, Frames, show_only, view_episodes
from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.instructions.parser import words_of
from rewardlab.core.seeding import digest
from rewardlab.core.settings import Help
from rewardlab.models.contract import LATER
from rewardlab.models.vlm import LRUCache, Video, frame_rate

Views = Annotated[
    Literal["images", "tile", "first"],
    Help("for episodes with several cameras: images, one view after the other; tile, all in one picture; first"),
    LATER,
]
DemonstrationData = Annotated[
    str, Help("dataset from which a success of the most similar instruction, another video, is shown first"), LATER
]
Control = Annotated[
    Literal["none", "static"],
    Help("static: the first frame in place of every frame, to test whether progress rises without a change"),
]
ROLLOUT = "the rollout"
_POOL_BYTES = 1 << 28  # of decoded demonstrations


@dataclass(frozen=True, eq=False)
class ShownClips:
    """The videos of a prompt, and the words that tell which is which: none where one video shows one camera."""

    videos: tuple[Video, ...]
    words: str = ""


NamedClip = tuple[str, Video]  # what it shows, in words


def arrange(clips: Sequence[NamedClip]) -> ShownClips:
    """Return the clips one after the other, and the sentences that tell by their frames which is which."""
    videos = tuple(video for _, video in clips)
    if [what for what, _ in clips] == [ROLLOUT]:
        return ShownClips(videos)
    ends = np.cumsum([len(video.frames) for video in videos]).tolist()
    starts = [1, *(end + 1 for end in ends)]
    said = [f"Frames {a} to {b} show {what}." for a, b, (what, _) in zip(starts, ends, clips, strict=False)]
    return ShownClips(videos, " ".join(said) + "\n")


def controlled_frames(episode: Episode, control: str) -> Frames:
    """Return the frames of an episode, or as many copies of the first for the static control."""
    frames = episode.frames
    return frames[np.zeros(len(frames), dtype=np.int64)] if control == "static" else frames


def view_videos(episode: Episode, views: str, control: str = "none", what: str = ROLLOUT) -> list[NamedClip]:
    """Return the clip of an episode, that of every view, or one with all views in each picture."""
    others = view_episodes(episode) if views != "first" else {}
    seen = [controlled_frames(each, control) for each in (episode, *others.values())]
    times, fps = episode.times, frame_rate(episode.times)
    if not others:
        return [(what, Video(seen[0], times, fps))]
    cameras = ("main", *others)
    if views == "tile":
        told = f"{what}; each picture holds one moment as {len(cameras)} cameras saw it, row by row: "
        return [(told + ", ".join(cameras), Video(tiled(seen), times, fps))]
    return [
        (f"{what} as the {name} camera saw it", Video(frames, times, fps))
        for name, frames in zip(cameras, seen, strict=True)
    ]


def tiled(views: Sequence[Frames]) -> Frames:
    """Return pictures with every view in a cell of the size of the first one, in rows, its proportions kept."""
    import cv2

    count, height, width = views[0].shape[:3]
    columns = math.ceil(math.sqrt(len(views)))
    rows = math.ceil(len(views) / columns)
    pictures = np.zeros((count, rows * height, columns * width, 3), np.uint8)
    for place, frames in enumerate(views):
        scale = min(height / frames.shape[1], width / frames.shape[2])
        size = max(1, round(frames.shape[2] * scale)), max(1, round(frames.shape[1] * scale))
        top = place // columns * height + (height - size[1]) // 2
        left = place % columns * width + (width - size[0]) // 2
        for picture, frame in zip(pictures, frames, strict=True):
            same = frame.shape[1::-1] == size
            cell = frame if same else cv2.resize(frame, size, interpolation=cv2.INTER_AREA)
            picture[top : top + size[1], left : left + size[0]] = cell
    return pictures


# Demonstrations in context: one success of another video, for each clip that is asked about.


@dataclass(frozen=True, eq=False)
class Demonstrations:
    """The successes of a dataset, from which the nearest is shown beside each clip; it is opened when first asked."""

    data: str
    videos: LRUCache[Video] = field(default_factory=lambda: LRUCache(_POOL_BYTES))

    @cached_property
    def episodes(self) -> tuple[Episode, ...]:
        """Return the episodes known to be successes; PlanError where there is none."""
        from rewardlab.data import open_dataset

        contents = open_dataset(self.data)
        known = [each for each in contents.episodes if each.label.success is True or each.label.level == 5]
        if not known:
            raise PlanError(f"demonstration={self.data} holds no episode known to be a success; name another dataset")
        return tuple(known)

    @cached_property
    def content(self) -> str:
        """Identify what may be shown: the videos and the instructions, whatever the folder is called."""
        return digest(*(f"{each.clip.source.digest} {each.instruction}" for each in self.episodes))

    def nearest(self, episode: Episode) -> Episode:
        """Return the success with the most words of the instruction in common, of another video; the first of equals.

        DataError where every success is of the video that is asked about.
        """
        asked, video = episode.instruction, episode.original_video
        others = [each for each in self.episodes if each.clip.source.digest != video]
        if not others:
            raise DataError(f"no demonstration: every success in {self.data} is the video that is asked about")
        return max(others, key=lambda each: (each.instruction == asked, _shared_words(each.instruction, asked)))

    def beside(self, episode: Episode) -> NamedClip:
        """Return the demonstration for an episode, in as many frames at most, and what is said of it."""
        from rewardlab.data.video import spread_evenly

        chosen = self.nearest(episode)
        picks = spread_evenly(len(chosen.clip), len(episode.clip))
        key = digest(chosen.clip.source.digest, picks.tobytes())
        video = self.videos.get(key)
        if video is None:
            shown = show_only(chosen, picks)
            video = Video(shown.frames, shown.times - shown.times[0], frame_rate(shown.times))
            self.videos.put(key, video, video.frames.nbytes)
        told = "a demonstration for comparison, another rollout, in which a robot completed this task"
        return f"{told}: {chosen.instruction.rstrip('.')}", video


def with_demonstration(shown: Sequence[NamedClip], episode: Episode, pool: Demonstrations | None) -> ShownClips:
    """Return the clips of an episode behind its demonstration, if demonstrations are shown."""
    if pool is None:
        return arrange(shown)
    return arrange([pool.beside(episode), *((f"{what}, which is to be judged", video) for what, video in shown)])


def demonstrations(data: str) -> Demonstrations | None:
    """Return the demonstrations of a dataset; None without its name."""
    return Demonstrations(data) if data else None


def _shared_words(one: str, other: str) -> float:
    """Return the share of the words of both texts that they have in common."""
    words, others = words_of(one), words_of(other)
    return len(words & others) / max(len(words | others), 1)
