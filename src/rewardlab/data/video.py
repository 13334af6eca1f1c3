"""Videos: which frames are shown, decoding, checking every frame, writing or copying; one video as a dataset."""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from rewardlab.core.episode import (
    Clip,
    Episode,
    FramePolicy,
    Frames,
    FrameSource,
    Indices,
    InMemoryFrames,
    Positions,
    Provenance,
    hold_frames,
    read_in_order,
    show_only,
    view_episodes,
)
from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.limits import CLIP_FRAMES, CLIP_MB, FRAME_PIXELS, VIDEO_MB, VIDEO_PIXELS
from rewardlab.core.seeding import digest
from rewardlab.core.storage import atomic_write
from rewardlab.data.contract import Batch, Contents, Problem, Reader, WrittenRow
from rewardlab.data.known_files import found_of_file
from rewardlab.data.reading import bounded_text, task_beside
from rewardlab.data.safe_files import VIDEO_SUFFIXES, digest_of_file, digest_of_shared_file
from rewardlab.data.safe_video import Orientation, VideoInfo, VideoLocation, opened, read_info, read_orientation

if TYPE_CHECKING:
    from av import VideoFrame


_READ_AT_ONCE = 4  # videos: half of the work leaves Python, and a disk or a server answers several at a time
_BEGUN_TOGETHER = 1000  # videos: an interrupt waits for no more
_READING = 1  # raised by hand when `read_info` says something else of the same file


def info_of_file(path: Path) -> VideoInfo:
    """Return the info of a video; it is read again only after the file was written to (`found_of_file`)."""
    with suppress(OSError):  # then the reader says what is wrong
        facts = path.stat()
        return _info_of_version(path, facts.st_size, facts.st_mtime_ns)
    return read_info(path)


@lru_cache(maxsize=10_000)
def _info_of_version(path: Path, _size: int, _changed: int) -> VideoInfo:
    """Return the info, within one process one object for all who ask."""
    limits = (CLIP_FRAMES, FRAME_PIXELS, VIDEO_PIXELS, VIDEO_MB)
    reader = " ".join([str(_READING), "PyAV", _pyav_version(), *(str(limit.value) for limit in limits)])
    return _info_of_text(found_of_file("video", path, lambda: _text_of_info(read_info(path)), reader))


@cache
def _pyav_version() -> str:
    return version("av")  # PyAV itself is slow to load


def _text_of_info(info: VideoInfo) -> str:
    """Write an info down: positions only where they are not even, even stamps as the first and the step."""
    positions = None if info.positions.dtype == np.int64 else info.positions.tolist()
    stamps = None if info.stamps is None else info.stamps.tolist()
    if stamps and len(stamps) > 1 and len({*np.diff(stamps).tolist()}) == 1:
        stamps = [stamps[0], stamps[1] - stamps[0]]
    return json.dumps([info.count, info.fps, positions, stamps, info.width, info.height])


def _info_of_text(text: str) -> VideoInfo:
    count, fps, positions, stamps, width, height = json.loads(text)
    every = np.arange(count)
    times = every if positions is None else np.array(positions, np.float64)
    if stamps is not None:
        stamps = stamps[0] + stamps[1] * every if len(stamps) == 2 else np.array(stamps, np.int64)
    return VideoInfo(count, fps, times, stamps, width, height)


def open_videos(paths: Sequence[Path]) -> None:
    """Read the infos of videos, several at a time; who asks for one then finds it, or is told what is wrong with it."""

    def look(some: Sequence[Path]) -> None:
        for path in some:
            with suppress(DataError):
                info_of_file(path)

    for _ in map_threads(look, [paths[start::_READ_AT_ONCE] for start in range(_READ_AT_ONCE)], _READ_AT_ONCE):
        pass


def read_digests(episodes: Sequence[Episode]) -> None:
    """Read the video files of episodes for their digests, several at a time; DataError where one cannot be read."""
    sources = (source for episode in episodes for source in (episode.clip.source, *episode.views.values()))
    files = {id(each): each for each in sources if isinstance(each, VideoFile) and "digest" not in vars(each)}
    remaining = iter(files.values())
    while some := list(islice(remaining, _BEGUN_TOGETHER)):
        for video, found in zip(some, map_threads(_digest_of_video, some, _READ_AT_ONCE), strict=True):
            vars(video)["digest"] = found  # where the property keeps it; Python 3.11 computes one property at a time


def _digest_of_video(video: "VideoFile") -> str:
    if not isinstance(video.path, Path):
        return video.path.digest
    return found_of_file("digest", video.path, partial(digest_of_file, video.path))


@dataclass(frozen=True)
class VideoFile:
    """A video on disk, or kept in another file, as a source of frames; nothing is opened until asked."""

    path: VideoLocation

    @cached_property
    def digest(self) -> str:
        """Identify the video by its bytes."""
        return _digest_of_video(self)

    @cached_property
    def info(self) -> VideoInfo:
        """Count the frames and read their times; an unreadable, truncated or oversized file is a DataError."""
        return info_of_file(self.path) if isinstance(self.path, Path) else read_info(self.path)

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
            raise DataError(f"{self.path}: {size} do not fit into memory: {CLIP_MB.describe(' MB')}")
        return read_in_order(indices, self._decode)

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
                    if frame.is_corrupt:
                        raise DataError(f"{self.path}: frame {index} is damaged; copy the file again")
                    if (frame.width, frame.height) != (self.info.width, self.info.height):
                        size = f"{frame.width} x {frame.height} pixels, not {self.info.width} x {self.info.height}"
                        raise DataError(f"{self.path}: frame {index} has {size}; encode the video at one size")
                    yield frame
                    index += 1
                if packet.is_corrupt:
                    raise DataError(f"{self.path}: the bytes of frame {index} are damaged; copy the file again")


def frame_policy(text: str) -> FramePolicy:
    """Read `uniform:N`, `fps:X` or `all`; every policy shows the true first and last frame."""
    name, _, argument = text.partition(":")
    try:
        if name == "uniform" and int(argument) >= 2:
            return lambda positions, _fps: spread_evenly(len(positions), int(argument))
        if name == "fps" and float(argument) > 0:
            return lambda positions, fps: _every(positions, fps / float(argument))
        if text == "all":
            return lambda positions, _fps: np.arange(len(positions))
    except ValueError:
        pass
    raise PlanError(f"frames must be uniform:N (N of at least 2), fps:X (X above 0) or all, got {text!r}")


def sample_frames(episode: Episode, policy: FramePolicy) -> Episode:
    """Return the episode with only the frames that the policy shows.

    Frames that a perturbation made and nobody will see are let go; those of a video are shared and stay.
    """
    sampled = show_only(episode, policy(episode.clip.positions, episode.clip.fps))
    source, kept = sampled.clip.source, np.unique(sampled.clip.order)
    if not isinstance(source, InMemoryFrames) or source.name or len(kept) == len(source.kept):
        return sampled
    return replace(sampled, clip=hold_frames(sampled.clip, kept))


def spread_evenly(count: int, shown: int) -> Indices:
    """Return so many of a count of frames, the first and the last among them; all where there are fewer."""
    return np.unique(np.round(np.linspace(0, count - 1, min(shown, count))).astype(np.int64))


def _every(positions: Positions, step: float) -> Indices:
    """Return, for each tick of a clock, the latest frame there is by then; and the last one."""
    if positions.dtype == np.float64:  # frames at times of their own: those that stand in the picture at a tick
        next_tick = np.ceil(positions / step - 1e-9) * step  # the first at or after each frame
        shown = next_tick[:-1] < positions[1:] - 1e-9 * step
        return np.unique(np.concatenate([[0], np.flatnonzero(shown), [len(positions) - 1]]))
    ticks = np.round(np.arange(0, positions[-1] + 0.5, max(step, 1.0)))
    latest = np.searchsorted(positions, ticks, side="right") - 1
    return np.unique(np.append(np.maximum(latest, 0), len(positions) - 1))


def _too_few(path: VideoLocation, decoded: int, wanted: int) -> str:
    return f"{path}: only {decoded} of {wanted} frames decode; the file is damaged, copy it again"


# A part of a video: several episodes may follow each other in one file.


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
            raise DataError(f"{self.path}: {len(indices):,} frames do not fit into memory: {CLIP_MB.describe(' MB')}")
        return read_in_order(indices, self._decode)

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
                if len({each.shape for each in pixels}) > 1:
                    raise DataError(f"{self.path}: frames have different sizes; encode the video at one size")
                return np.stack(pixels)
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
    apart = np.abs(info.positions - start * info.fps)
    first = (
        int(apart.argmin()) if apart.min() <= 0.5 else round(start * info.fps)
    )  # within half a frame, else past the end
    if first + count > info.count:
        where = f"frames {first} to {first + count - 1}"
        raise DataError(f"{path}: {where} are asked for, but it holds {info.count}; copy the file again")
    return VideoSegment(path, first, info.stamps[first : first + count].copy(), info.frame_bytes)


# The check of a dataset: every frame is decoded, and none is kept.

_LARGE_PIXELS = 500_000  # of a frame; a decoder holds up to 17 of them
_FRAMES_AT_ONCE = 25  # of what is no video file of its own
_LARGE = Lock()  # so that videos with large frames are decoded one after the other
_CHECKED_AT_ONCE = 4  # videos; each holds the frames that its decoder refers to


def check_videos(contents: Contents) -> Contents:
    """Return the contents without the episodes whose video does not decode, each a problem that names file and frame.

    A change of the file that decodes without any error cannot be seen this way.
    """
    every = (source for episode in contents.episodes for source in (episode.clip.source, *episode.views.values()))
    sources = {id(source): source for source in every}  # episodes may share one
    workers = min(_CHECKED_AT_ONCE, os.cpu_count() or 1)
    damages = dict(zip(sources, map_threads(_damage, list(sources.values()), workers), strict=True))
    sound, problems = [], list(contents.problems)
    for episode in contents.episodes:
        found = (damages[id(source)] for source in (episode.clip.source, *episode.views.values()))
        damage = next((why for why in found if why is not None), None)
        if damage is None:
            sound.append(episode)
        else:
            problems.append(Problem(f"episode {episode.id}", damage))
    return replace(contents, episodes=tuple(sound), problems=tuple(problems))


def _damage(source: FrameSource) -> str | None:
    """Return what is wrong with the frames of a source, or None."""
    try:
        if isinstance(source, VideoFile):
            with _LARGE if source.info.width * source.info.height > _LARGE_PIXELS else nullcontext():
                source.check_frames()
        else:
            for start in range(0, source.count, _FRAMES_AT_ONCE):
                source.read(np.arange(start, min(start + _FRAMES_AT_ONCE, source.count)))
    except DataError as error:
        return str(error)
    return None


# One video file as a dataset of one episode; the task is in a task.txt beside it, or in its name.


def recognises(path: Path) -> bool:
    """Tell whether the path is a file named like a video."""
    return path.is_file() and path.suffix.lower() in VIDEO_SUFFIXES


def read_video(path: Path) -> Contents:
    """Read the video as one episode."""
    try:
        task = bounded_text(task_beside(path.parent) or task_beside(path.parent, path.name))
        return Contents((Episode(path.name, task, VideoFile(path).clip(), provenance=Provenance(task=task)),), ())
    except DataError as error:
        return Contents((), (Problem(path.name, str(error)),))


VIDEO = Reader(
    "video",
    "one video file; the task is in a task.txt beside it, or in its name",
    "one video file",
    recognises,
    read_video,
)


# Writing the video of an episode: a copy where a file shows exactly this, else a new encoding.


def write_video(episode: Episode, target: Path) -> None:
    """Write what an episode shows as a video, in one step."""
    from rewardlab.core.video_encoding import encode_pieces  # here: PyAV is slow to load, and reading rows needs none

    target.parent.mkdir(parents=True, exist_ok=True)
    source = copied_file(episode.clip)
    with atomic_write(target) as partial:
        if source is not None:
            shutil.copyfile(source, partial)
        else:
            is_plain = episode.clip.is_even and episode.clip.fps == round(episode.clip.fps)
            encode_pieces(
                frame_pieces(episode.clip), partial, episode.clip.fps, times=None if is_plain else episode.times
            )


def write_videos(folder: Path, batch: Batch, row_of: Callable[[Episode, str], WrittenRow]) -> list[WrittenRow]:
    """Write one video per rollout, and return the row of each, made of the episode and the name of its video."""
    rows = []
    for rollout in batch.rollouts:
        name = f"{rollout.name}.mp4"
        row = row_of(rollout.first, name)
        write_video(rollout.first, folder / name)
        for camera, place in row.get("views", {}).items():  # of layouts that have a place for them
            write_video(view_episodes(rollout.first)[camera], folder / place)
        rows.append(row)
    return rows


def frame_pieces(clip: Clip) -> Iterator[Frames]:
    """Yield the frames that a clip shows, as many at a time as memory may hold."""
    size = clip.frame_bytes or clip.source.read(clip.order[:1]).nbytes
    together = max(1, CLIP_MB.in_bytes // size)
    for start in range(0, len(clip), together):
        yield clip.source.read(clip.order[start : start + together])


def copied_file(clip: Clip) -> Path | None:
    """Return the mp4 file that shows exactly this clip, or None where there is none."""
    source = clip.source
    if not isinstance(source, VideoFile) or not isinstance(source.path, Path) or source.path.suffix.lower() != ".mp4":
        return None
    whole = np.array_equal(clip.order, np.arange(source.count))
    as_filmed = np.array_equal(clip.positions, source.info.positions) and clip.fps == source.info.fps
    return source.path if whole and as_filmed else None


Item = TypeVar("Item")
Result = TypeVar("Result")


def map_threads(work: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Iterator[Result]:
    """Yield what a function makes of each item, in order, on threads: for work that leaves Python, such as decoding."""
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        try:
            yield from pool.map(work, items)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
