"""A part of a video as a source of frames: several episodes may lie one after the other in one file."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rewardlab.core.episode import Frames, Indices, InMemoryFrames
from rewardlab.core.errors import DataError
from rewardlab.core.limits import CLIP_MB
from rewardlab.core.seeding import digest
from rewardlab.data.dataset_files import digest_of_shared_file
from rewardlab.data.video_container import VideoInfo, opened
from rewardlab.data.video_orientation import read_orientation

if TYPE_CHECKING:
    from av import VideoFrame

_HALF = 0.5  # of a frame


@dataclass(frozen=True, eq=False)
class VideoSegment:
    """The frames of a video from `first` on; `stamps` are their presentation stamps, by which they are found."""

    path: Path
    first: int
    stamps: Indices
    frame_bytes: int

    @property
    def count(self) -> int:
        """Return how many frames the segment has."""
        return len(self.stamps)

    @cached_property
    def digest(self) -> str:
        """Identify the segment by the bytes of its file and its place there."""
        return digest(digest_of_shared_file(self.path), self.first, self.count)

    def read(self, indices: Indices) -> Frames:
        """Decode these frames, in this order, from the key frame before the first of them."""
        if len(indices) * self.frame_bytes > CLIP_MB.in_bytes:
            raise DataError(f"{self.path}: {len(indices):,} frames do not fit into memory, in MB {CLIP_MB.describe()}")
        kept = np.unique(indices)
        return InMemoryFrames(self._decode(kept), kept, self.count, self.digest).read(indices)

    def _decode(self, kept: Indices) -> Frames:
        from av.video.reformatter import VideoReformatter

        wanted = self.stamps[kept].tolist()
        pixels: list[Frames] = []
        converter = VideoReformatter()  # one for all frames: to set one up takes longer than to convert a small frame
        for frame in self._frames(wanted[0]):
            if frame.pts != wanted[len(pixels)]:
                continue
            if frame.is_corrupt:
                raise DataError(f"{self.path}: frame {self.first + int(kept[len(pixels)])} is damaged; copy it again")
            if not pixels:
                orientation = read_orientation(frame, self.path)
            rgb = converter.reformat(frame, format="rgb24").to_ndarray()
            pixels.append(orientation.turn(rgb.astype(np.uint8, copy=False)))
            if len(pixels) == len(wanted):
                return _stack(self.path, pixels)
        missing = self.first + int(kept[len(pixels)])
        raise DataError(f"{self.path}: frame {missing} does not decode; the file is damaged, copy it again")

    def _frames(self, stamp: int) -> Iterator["VideoFrame"]:
        """Yield frames from one that is shown no later than the stamp; from the first where seeking goes too far."""
        for seeks in (True, False):
            with opened(self.path) as (container, stream):
                if seeks:
                    container.seek(stamp, stream=stream, backward=True)
                frames = container.decode(stream)
                first = next(frames, None)
                if seeks and (first is None or first.pts is None or first.pts > stamp):
                    continue
                if first is not None:
                    yield first
                    yield from frames
                return


def segment_of_video(path: Path, info: VideoInfo, start: float, count: int) -> VideoSegment:
    """Return so many frames of a video from the one at a second on; DataError where the file does not hold them."""
    if info.stamps is None:
        raise DataError(f"{path}: frames without times cannot be told apart; encode the video again")
    first = _frame_at(info, start)
    if first + count > info.count:
        where = f"frames {first} to {first + count - 1}"
        raise DataError(f"{path}: {where} are asked for, but it holds {info.count}; copy the file again")
    return VideoSegment(path, first, info.stamps[first : first + count].copy(), info.frame_bytes)


def _frame_at(info: VideoInfo, start: float) -> int:
    """Return the frame that is shown closest to a second; one past the end where none is within half a frame."""
    apart = np.abs(info.positions - start * info.fps)
    return int(apart.argmin()) if apart.min() <= _HALF else round(start * info.fps)


def _stack(path: Path, pixels: list[Frames]) -> Frames:
    if len({each.shape for each in pixels}) > 1:
        raise DataError(f"{path}: frames have different sizes; encode the video at one size")
    return np.stack(pixels)
