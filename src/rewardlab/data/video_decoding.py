"""Videos: decode with PyAV, choose frames, and say exactly which frames were shown."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer

from rewardlab.core.episode import Episode, Frames, Indices, InMemoryFrames, show_only
from rewardlab.core.errors import DataError, PlanError

FramePolicy = Callable[[Indices, float], Indices]  # (when each frame comes, fps) -> which ones to show


@dataclass(frozen=True)
class VideoInfo:
    """What the container says and holds, read without decoding."""

    count: int
    fps: float


def read_info(path: Path) -> VideoInfo:
    """Read frame count and rate by walking the packets; raise DataError if the file is broken."""
    with _opened(path) as container:
        stream = container.streams.video[0]
        packets = [packet.is_discard for packet in container.demux(stream) if packet.size]
        hidden = sum(packets)  # cut off by an edit list: there, but never shown
        count = len(packets) - hidden
        declared = stream.frames
        rate = stream.average_rate or stream.guessed_rate
    if count == 0 or count + hidden < declared:
        raise DataError(f"{path}: truncated video, {count} of {declared} frames are there; copy the file again")
    return VideoInfo(count, float(rate) if rate else 10.0)


def decode(path: Path, kept: Indices) -> Frames:
    """Decode the named frames (rising, without repeats) in one sequential pass."""
    wanted = set(kept.tolist())
    frames = []
    with _opened(path) as container:
        container.streams.video[0].thread_type = "NONE"
        for index, frame in enumerate(container.decode(video=0)):
            if index in wanted:
                frames.append(frame.to_ndarray(format="rgb24"))
            if len(frames) == len(wanted):
                break
    if len(frames) < len(wanted):
        raise DataError(
            f"{path}: only {len(frames)} of {len(wanted)} frames decode; the file is damaged, copy it again"
        )
    return np.stack(frames).astype(np.uint8, copy=False)


@dataclass(frozen=True)
class VideoFile:
    """A video on disk as a source of frames; nothing is opened until asked."""

    path: Path

    @cached_property
    def digest(self) -> str:
        """Identify the file by its bytes."""
        try:
            return sha256(self.path.read_bytes()).hexdigest()[:16]
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read ({error.strerror}); is the dataset still there?") from error

    @cached_property
    def info(self) -> VideoInfo:
        """Count the frames and read the rate; an unreadable or truncated file is a DataError."""
        return read_info(self.path)

    @property
    def count(self) -> int:
        """Return how many frames the video holds."""
        return self.info.count

    def read(self, indices: Indices) -> Frames:
        """Decode these frames, in this order."""
        kept = np.unique(indices)
        return InMemoryFrames(decode(self.path, kept), kept, self.count, self.digest).read(indices)


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
    return show_only(episode, policy(episode.clip.positions, episode.clip.fps))


def _uniform(count: int, shown: int) -> Indices:
    return np.unique(np.round(np.linspace(0, count - 1, min(shown, count))).astype(np.int64))


def _every(positions: Indices, step: float) -> Indices:
    """Return, for each tick of a clock, the latest frame there is by then; and the last one."""
    ticks = np.round(np.arange(0, positions[-1] + 0.5, max(step, 1.0)))
    latest = np.searchsorted(positions, ticks, side="right") - 1
    return np.unique(np.append(np.maximum(latest, 0), len(positions) - 1))


@contextmanager
def _opened(path: Path) -> Iterator[InputContainer]:
    """Open a video and turn every way it can be broken into one DataError."""
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise DataError(f"{path}: no video stream in the file; expected an mp4 or another video")
            yield container
    except FileNotFoundError:
        raise DataError(f"{path}: the file does not exist; correct file_name or add the video") from None
    except (av.FFmpegError, OSError) as error:
        raise DataError(f"{path}: cannot be read as a video ({error.strerror}); copy or encode it again") from error
