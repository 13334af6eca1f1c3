"""RoboNet trajectories: one HDF5 file each, with a whole mp4 file per camera as bytes in an array."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from rewardlab.core.episode import Clip, Episode, Frames, FrameSource, Indices, Origin
from rewardlab.core.errors import DataError
from rewardlab.core.limits import VIDEO_MB
from rewardlab.core.seeding import digest
from rewardlab.data.camera_choice import choose_cameras, episode_id
from rewardlab.data.hdf5.hdf5_file import child_array, child_group, opened_hdf5, text_attribute
from rewardlab.data.task_text import bounded_task, task_beside
from rewardlab.data.video_decoding import VideoFile

if TYPE_CHECKING:
    import h5py

_SUFFIX = "_video"  # cam0_video holds what cam0 saw
_TASK = "interact with the objects in the bin"  # nobody asked for more; Open X-Embodiment calls it so


@dataclass(frozen=True)
class EmbeddedVideo:
    """The bytes of an mp4 file in an array; `places` are the names of the groups down to it."""

    path: Path
    places: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.path}, {'/'.join(self.places)}"

    @cached_property
    def digest(self) -> str:
        """Identify the bytes of the video, whatever else the file holds."""
        return digest(self._read())

    def open(self) -> BinaryIO:
        """Return the bytes as a file."""
        return BytesIO(self._read())

    def _read(self) -> bytes:
        with opened_hdf5(self.path) as file:
            group = file
            for name in self.places[:-1]:
                group = child_group(group, name) or file
            array = child_array(group, self.places[-1])
            if array is None or array.dtype != np.uint8 or len(array.shape) != 1:
                raise DataError(f"{self}: expected the bytes of an mp4 file, got {_kind(array)}")
            if array.size > VIDEO_MB.in_bytes:
                raise DataError(f"{self}: {array.size / 1e6:,.0f} MB of video, {VIDEO_MB.describe()}")
            return np.asarray(array[()]).tobytes()


@dataclass(frozen=True)
class SwappedChannels:
    """Frames whose red and blue were swapped when they were recorded, swapped back."""

    source: FrameSource

    @property
    def digest(self) -> str:
        """Identify the frames as they are shown."""
        return digest(self.source.digest, "BGR")

    @property
    def count(self) -> int:
        """Return how many frames there are."""
        return self.source.count

    def read(self, indices: Indices) -> Frames:
        """Return these frames, in this order."""
        return np.ascontiguousarray(self.source.read(indices)[..., ::-1])


def cameras_of_trajectory(file: "h5py.File") -> list[str]:
    """Return the cameras of a RoboNet trajectory; none where the file is no such thing."""
    env = child_group(file, "env")
    names = [name for name in env if name.endswith(_SUFFIX)] if env is not None else []
    return sorted(name.removesuffix(_SUFFIX) for name in names)


def episodes_of_trajectory(path: Path, file: "h5py.File", wanted: str) -> Iterator[Episode]:
    """Yield what each chosen camera saw of a trajectory; whether it succeeded is not said."""
    cameras = cameras_of_trajectory(file)
    encoding = text_attribute(child_group(file, "env"), "cam_encoding")
    if encoding != "mp4":
        raise DataError(f"frames are stored as {encoding or 'nothing known'}, only mp4 is read; convert them")
    about = child_group(file, "metadata")
    robot = text_attribute(about, "robot")[:100] if about is not None else ""
    task = bounded_task(task_beside(path.parent) or _TASK)
    for camera in choose_cameras(cameras, wanted):
        origin = Origin(subset=path.stem, task=task, embodiment=robot, camera=camera)
        yield Episode(episode_id(path.name, camera, cameras), task, _clip(path, file, camera), origin=origin)


def _clip(path: Path, file: "h5py.File", camera: str) -> Clip:
    group = child_group(child_group(file, "env"), f"{camera}{_SUFFIX}")
    array = child_array(group, "frames") if group is not None else None
    if array is None:
        raise DataError(f"env/{camera}{_SUFFIX} holds no frames; copy the file again")
    video = VideoFile(EmbeddedVideo(path, ("env", f"{camera}{_SUFFIX}", "frames")))
    stated = array.attrs.get("T")
    if stated is not None and int(stated) != video.count:
        raise DataError(f"{video.path}: {video.count} frames, but {int(stated)} are stated; copy the file again")
    clip = video.clip()
    return replace(clip, source=SwappedChannels(video)) if text_attribute(array, "image_format") == "BGR" else clip


def _kind(array: "h5py.Dataset | None") -> str:
    return "nothing" if array is None else f"{array.dtype} of shape {array.shape}"
