"""HDF5 files: demonstrations of robomimic, robosuite and LIBERO, and trajectories of RoboNet."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from rewardlab.core.episode import Clip, Episode, Frames, FrameSource, Indices, Provenance
from rewardlab.core.errors import DataError
from rewardlab.core.limits import CLIP_FRAMES, VIDEO_MB
from rewardlab.core.records import parse_json
from rewardlab.core.seeding import digest
from rewardlab.data.bounded_hdf5 import (
    Hdf5Frames,
    array_at,
    child_array,
    child_group,
    opened_hdf5,
    read_numbers,
    require_frames,
    text_attribute,
)
from rewardlab.data.contract import Contents, Found, Problem, Reader, bounded_contents
from rewardlab.data.reading import (
    bounded_text,
    camera_note,
    choose_cameras,
    episode_id,
    label_of_success,
    success_of_rewards,
    task_beside,
)
from rewardlab.data.safe_files import few, files_with_suffix, require_inside
from rewardlab.data.safe_video import DEFAULT_FPS
from rewardlab.data.video import VideoFile

if TYPE_CHECKING:
    import h5py


# Demonstrations: data/demo_N/obs holds the frames of every camera, as robomimic writes them.

_LANGUAGE = ("language_instruction", "language", "lang", "task_description", "instruction")
_TASKS = {  # robosuite environments, by the name of the class
    "Lift": "lift the cube",
    "PickPlaceCan": "pick up the can and place it in the bin",
    "NutAssemblySquare": "place the square nut on the square peg",
    "TwoArmTransport": "move the hammer from one table to the bin on the other",
    "ToolHang": "hang the tool on the frame",
    "Stack": "stack the red cube on the green cube",
    "Door": "open the door",
    "Wipe": "wipe the table clean",
}
_FILES = {  # robomimic files begin with the name of their task
    "lift": "Lift",
    "can": "PickPlaceCan",
    "square": "NutAssemblySquare",
    "transport": "TwoArmTransport",
    "tool_hang": "ToolHang",
}
_NO_FRAMES = "low-dimensional data hold no frames: render them with dataset_states_to_obs.py of robomimic"


@dataclass(frozen=True)
class Environment:
    """What is known of all demonstrations of a file; empty or None where it is not said."""

    name: str
    robot: str
    fps: float
    language: str
    is_sparse: bool | None  # whether the reward is 1 for success and 0 before


def read_environment(data: "h5py.Group") -> Environment:
    """Return what the attributes of the group `data` say."""
    stated = [_object(text_attribute(data, name)) for name in ("env_args", "env_info", "problem_info")]
    arguments, info, problem = stated
    inner = arguments.get("env_kwargs")
    settings = inner if isinstance(inner, dict) else info
    robots, rate, shaped = (settings.get(name) for name in ("robots", "control_freq", "reward_shaping"))
    return Environment(
        str(arguments.get("env_name") or info.get("env_name") or text_attribute(data, "env"))[:100],
        " ".join(map(str, robots))[:100] if isinstance(robots, list) else str(robots or "")[:100],
        float(rate) if isinstance(rate, int | float) and 0 < rate < 1000 else DEFAULT_FPS,
        language_of(problem) or language_of({name: text_attribute(data, name) for name in _LANGUAGE}),
        None if not isinstance(shaped, bool) else not shaped,
    )


def language_of(stated: Mapping[str, Any]) -> str:
    """Return the instruction under one of its usual names; LIBERO writes it as a list of words too."""
    for name in _LANGUAGE:
        value = stated.get(name)
        text = " ".join(map(str, value)) if isinstance(value, list) else value
        if isinstance(text, str) and text.strip():
            return text.strip().strip('"')
    return ""


def task_of_environment(name: str, path: Path) -> str:
    """Return the task of a known environment, else the words of its name; by the file's name where it has none."""
    begins = next((kind for start, kind in _FILES.items() if re.match(rf"{start}(_|\b)", path.stem.lower())), "")
    kind = name or begins
    return _TASKS.get(kind) or " ".join(word.lower() for word in re.findall(r"[A-Z]?[a-z]+", kind))


def _object(text: str) -> Mapping[str, Any]:
    try:
        found = parse_json(text, allow_nonfinite=True) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _demos(file: "h5py.File") -> "Iterator[tuple[str, h5py.Group]]":
    """Yield the demonstrations in the order of their numbers."""
    data = child_group(file, "data")
    names = [name for name in data if name.rpartition("_")[2].isdecimal()] if data is not None else []
    for name in sorted(names, key=lambda each: int(each.rpartition("_")[2])):
        demo = child_group(data, name)
        if demo is not None:
            yield name, demo


def _cameras(demo: "h5py.Group", name: str) -> list[str]:
    obs = child_group(demo, "obs")
    arrays = {camera: child_array(obs, camera) for camera in obs} if obs is not None else {}
    found = [
        camera
        for camera, array in arrays.items()
        if array is not None and array.dtype == np.uint8 and len(array.shape) == 4 and array.shape[-1] == 3
    ]
    if not found:
        raise DataError(f"no frames (T, H, W, 3) of bytes in {name}/obs; {_NO_FRAMES}")
    return found


def _demonstrations(path: Path, file: "h5py.File", wanted: str) -> Iterator[Found[Episode]]:
    """Yield the episode of each chosen camera of each demonstration; where one cannot be read, why."""
    data = child_group(file, "data")
    if data is None or next(_demos(file), None) is None:
        held = few(list(file)) or "nothing"
        raise DataError(f"expected demonstrations in data/demo_0, data/demo_1, ..., got {held}; name another file")
    environment = read_environment(data)
    for name, demo in _demos(file):
        place = f"{path.name}, {name}"
        try:
            for camera in choose_cameras(_cameras(demo, name), wanted):
                made = _episode(path, name, demo, camera, environment)  # here, where a damaged file is a DataError
                yield place, partial(_given, made)
        except DataError as error:
            yield place, error


def _given(episode: Episode) -> Episode:
    return episode


def _episode(path: Path, name: str, demo: "h5py.Group", camera: str, environment: Environment) -> Episode:
    own = language_of({key: text_attribute(demo, key) for key in _LANGUAGE})
    own = own or language_of(_object(text_attribute(demo, "ep_meta")))
    written = own or environment.language or task_beside(path.parent)
    task = bounded_text(written or task_of_environment(environment.name, path))
    rewards = read_numbers(demo, "rewards")
    success = max(rewards) >= 1 if environment.is_sparse and rewards else success_of_rewards(rewards)
    provenance = Provenance(subset=path.stem, task=task, embodiment=environment.robot, camera=camera)
    array = demo["obs"][camera]
    require_frames(array)
    if not 0 < array.shape[0] <= CLIP_FRAMES.value:
        raise DataError(f"{camera} has {array.shape[0]:,} frames; at least 1 is expected, {CLIP_FRAMES.describe()}")
    size, every = int(np.prod(array.shape[1:])), np.arange(array.shape[0])
    source = Hdf5Frames(path, ("data", name, "obs", camera), len(every), size)
    clip = Clip(source, every, every, environment.fps, size)
    identity = episode_id(f"{path.name}#{name}", camera, _cameras(demo, name))
    return Episode(identity, task, clip, label_of_success(success), provenance)


# RoboNet trajectories: one HDF5 file each, with a whole mp4 file per camera as bytes in an array.

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
            array = array_at(file, self.places)
            if array is None or array.dtype != np.uint8 or len(array.shape) != 1:
                got = "nothing" if array is None else f"{array.dtype} of shape {array.shape}"
                raise DataError(f"{self}: expected the bytes of an mp4 file, got {got}")
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


def _trajectory(path: Path, file: "h5py.File", wanted: str) -> Iterator[Found[Episode]]:
    """Yield what makes the episode of each chosen camera of a trajectory; whether it succeeded is not said."""
    cameras = cameras_of_trajectory(file)
    encoding = text_attribute(child_group(file, "env"), "cam_encoding")
    if encoding != "mp4":
        raise DataError(f"frames are stored as {encoding or 'nothing known'}, only mp4 is read; convert them")
    about = child_group(file, "metadata")
    robot = text_attribute(about, "robot")[:100] if about is not None else ""
    task = bounded_text(task_beside(path.parent) or _TASK)
    for camera in choose_cameras(cameras, wanted):
        provenance = Provenance(subset=path.stem, task=task, embodiment=robot, camera=camera)
        clip = _robonet_clip(path, file, camera)
        yield path.name, partial(Episode, episode_id(path.name, camera, cameras), task, clip, provenance=provenance)


def _robonet_clip(path: Path, file: "h5py.File", camera: str) -> Clip:
    places = ("env", f"{camera}{_SUFFIX}", "frames")
    array = array_at(file, places)
    if array is None:
        raise DataError(f"env/{camera}{_SUFFIX} holds no frames; copy the file again")
    video = VideoFile(EmbeddedVideo(path, places))
    stated = array.attrs.get("T")
    if stated is not None and int(stated) != video.count:
        raise DataError(f"{video.path}: {video.count} frames, but {int(stated)} are stated; copy the file again")
    clip = video.clip()
    return replace(clip, source=SwappedChannels(video)) if text_attribute(array, "image_format") == "BGR" else clip


# The files of a dataset, of either kind.

_files = partial(files_with_suffix, suffixes=(".hdf5", ".h5"))


def _found(path: Path, wanted: str) -> Iterator[Found[Episode]]:
    """Yield the place of every episode of a file and what makes it; where the file cannot be read on, why."""
    try:
        require_inside(path.parent, path)
        with opened_hdf5(path) as file:
            yield from (_trajectory if cameras_of_trajectory(file) else _demonstrations)(path, file, wanted)
    except DataError as error:
        yield path.name, error


def recognises(path: Path) -> bool:
    """Tell whether the path is an HDF5 file, or a folder with some."""
    return bool(_files(path))


def read_camera(path: Path, wanted: str) -> Contents:
    """Read every demonstration as the named camera saw it, as all did, or as one that is chosen; no frame is read."""
    return bounded_contents((each for file in _files(path) for each in _found(file, wanted)), "demonstration")


def notes(path: Path) -> tuple[Problem, ...]:
    """Say which camera is read where the first file has several."""
    try:
        with opened_hdf5(_files(path)[0]) as file:
            name, demo = next(_demos(file), ("", None))
            return camera_note(cameras_of_trajectory(file) or (_cameras(demo, name) if demo is not None else []))
    except DataError:  # told as a problem
        return ()


HDF5 = Reader(
    "hdf5",
    "HDF5 demonstrations of robomimic, robosuite and LIBERO (data/demo_N/obs) and RoboNet; needs the extra hdf5",
    "HDF5 files of demonstrations",
    recognises,
    partial(read_camera, wanted=""),
    notes,
    read_camera,
)
