"""Videos: decode with PyAV, choose frames, and say exactly which frames were shown."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rewardlab.core.episode import Clip, Episode, Frames, Indices, InMemoryFrames, Positions, hold_frames, show_only
from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.limits import CLIP_MB
from rewardlab.data.dataset_files import digest_of_file
from rewardlab.data.video_container import VideoInfo, VideoLocation, opened, read_info
from rewardlab.data.video_orientation import Orientation, read_orientation

if TYPE_CHECKING:
    from av import VideoFrame

FramePolicy = Callable[[Positions, float], Indices]  # (when each frame comes, fps) -> which ones to show


@dataclass(frozen=True)
class VideoFile:
    """A video on disk, or kept in another file, as a source of frames; nothing is opened until asked."""

    path: VideoLocation

    @cached_property
    def digest(self) -> str:
        """Identify the video by its bytes."""
        return digest_of_file(self.path) if isinstance(self.path, Path) else self.path.digest

    @cached_property
    def info(self) -> VideoInfo:
        """Count the frames and read their times; an unreadable, truncated or oversized file is a DataError."""
        return read_info(self.path)

    @property
    def count(self) -> int:
        """Return how many frames the video holds."""
        return self.info.count

    def clip(self, fps: float | None = None) -> Clip:
        """Return the clip that shows every frame at its own time, or evenly at the rate that is given."""
        every, info = np.arange(self.count), self.info
        positions = info.positions if fps is None else every
        return Clip(self, every, positions, info.fps if fps is None else fps, info.frame_bytes)

    def read(self, indices: Indices) -> Frames:
        """Decode these frames, in this order."""
        if len(indices) * self.info.frame_bytes > CLIP_MB.in_bytes:
            size = f"{len(indices):,} frames of {self.info.width} x {self.info.height} pixels"
            raise DataError(f"{self.path}: {size} do not fit into memory, in MB {CLIP_MB.describe()}")
        kept = np.unique(indices)
        return InMemoryFrames(self._decode(kept), kept, self.count, self.digest).read(indices)

    def check_frames(self) -> None:
        """Decode every frame and keep none; DataError names the first that is damaged or missing."""
        decoded = 0
        for frame in self._sound_frames():
            if decoded == 0:
                read_orientation(frame, self.path)
            decoded += 1
        if decoded < self.count:
            raise DataError(_too_few(self.path, decoded, self.count))

    def _decode(self, kept: Indices) -> Frames:
        """Decode the named frames (rising, without repeats) in one sequential pass."""
        from av.video.reformatter import VideoReformatter

        frames, filled, orientation = np.empty((0, 0, 0, 3), np.uint8), 0, Orientation()
        converter = VideoReformatter()  # one for all frames: to set one up takes longer than to convert a small frame
        for index, frame in enumerate(self._sound_frames()):
            if index == 0:
                orientation = read_orientation(frame, self.path)
            if index != kept[filled]:
                continue
            rgb = converter.reformat(frame, format="rgb24").to_ndarray()
            pixels = orientation.turn(rgb.astype(np.uint8, copy=False))
            if filled == 0:
                frames = np.empty((len(kept), *pixels.shape), np.uint8)
            frames[filled] = pixels
            filled += 1
            if filled == len(kept):
                return frames
        raise DataError(_too_few(self.path, filled, len(kept)))

    def _sound_frames(self) -> Iterator["VideoFrame"]:
        """Yield the frames in the order of their times; DataError at the first that is not what was recorded.

        What follows a damaged frame is built upon it, so nothing after it is shown either.
        """
        index = 0
        with opened(self.path) as (container, stream):
            for packet in container.demux(stream):
                for frame in packet.decode():
                    self._require_sound(frame, index)
                    yield frame
                    index += 1
                if packet.is_corrupt:
                    raise DataError(f"{self.path}: the bytes of frame {index} are damaged; copy the file again")

    def _require_sound(self, frame: "VideoFrame", index: int) -> None:
        if frame.is_corrupt:
            raise DataError(f"{self.path}: frame {index} is damaged; copy the file again")
        if (frame.width, frame.height) != (self.info.width, self.info.height):
            size = f"{frame.width} x {frame.height} pixels, not {self.info.width} x {self.info.height}"
            raise DataError(f"{self.path}: frame {index} has {size}; encode the video at one size")


def frame_policy(text: str) -> FramePolicy:
    """Read `uniform:N`, `fps:X` or `all`; every policy shows the true first and last frame."""
    name, _, argument = text.partition(":")
    try:
        if name == "uniform" and int(argument) >= 2:
            return lambda positions, fps: _uniform(len(positions), int(argument))
        if name == "fps" and float(argument) > 0:
            return lambda positions, fps: _every(positions, fps / float(argument))
        if text == "all":
            return lambda positions, fps: np.arange(len(positions))
    except ValueError:
        pass
    raise PlanError(f"frames must be uniform:N (N of at least 2), fps:X (X above 0) or all, got {text!r}")


def sample_frames(episode: Episode, policy: FramePolicy) -> Episode:
    """Return the episode with only the frames that the policy shows."""
    return _without_hidden_frames(show_only(episode, policy(episode.clip.positions, episode.clip.fps)))


def _without_hidden_frames(episode: Episode) -> Episode:
    """Let go of what a perturbation made and nobody will see; the frames of a video are shared and stay."""
    source, kept = episode.clip.source, np.unique(episode.clip.order)
    if not isinstance(source, InMemoryFrames) or source.name or len(kept) == len(source.kept):
        return episode
    return replace(episode, clip=hold_frames(episode.clip, kept))


def _uniform(count: int, shown: int) -> Indices:
    return np.unique(np.round(np.linspace(0, count - 1, min(shown, count))).astype(np.int64))


def _every(positions: Positions, step: float) -> Indices:
    """Return, for each tick of a clock, the latest frame there is by then; and the last one."""
    if positions.dtype == np.float64:
        return _every_true_time(positions, step)
    ticks = np.round(np.arange(0, positions[-1] + 0.5, max(step, 1.0)))
    latest = np.searchsorted(positions, ticks, side="right") - 1
    return np.unique(np.append(np.maximum(latest, 0), len(positions) - 1))


def _every_true_time(positions: Positions, step: float) -> Indices:
    """Return the frames that stand in the picture when a clock ticks, the first and the last."""
    next_tick = np.ceil(positions / step - 1e-9) * step  # the first tick at or after each frame
    shown = next_tick[:-1] < positions[1:] - 1e-9 * step
    return np.unique(np.concatenate([[0], np.flatnonzero(shown), [len(positions) - 1]]))


def _too_few(path: VideoLocation, decoded: int, wanted: int) -> str:
    return f"{path}: only {decoded} of {wanted} frames decode; the file is damaged, copy it again"
