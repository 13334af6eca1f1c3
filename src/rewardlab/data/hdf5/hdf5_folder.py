"""HDF5 files of demonstrations: data/demo_N/obs holds the frames of every camera, as robomimic writes them.

Trajectories of RoboNet, one per file, are read as well.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rewardlab.core.episode import Clip, Episode, Origin
from rewardlab.core.errors import DataError
from rewardlab.core.limits import CLIP_FRAMES, ROWS
from rewardlab.data.camera_choice import camera_note, choose_cameras, episode_id
from rewardlab.data.contract import Contents, Problem, Reader
from rewardlab.data.dataset_files import require_inside
from rewardlab.data.hdf5.environment import Environment, language_of_demo, read_environment, task_of_environment
from rewardlab.data.hdf5.hdf5_file import (
    Hdf5Frames,
    child_array,
    child_group,
    opened_hdf5,
    read_numbers,
    require_frames,
)
from rewardlab.data.hdf5.robonet import cameras_of_trajectory, episodes_of_trajectory
from rewardlab.data.sparse_reward import success_of_rewards, truth_of_success
from rewardlab.data.task_text import bounded_task, task_beside

if TYPE_CHECKING:
    import h5py

_SUFFIXES = (".hdf5", ".h5")
_NO_FRAMES = "low-dimensional data hold no frames: render them with dataset_states_to_obs.py of robomimic"


def recognises(path: Path) -> bool:
    """Tell whether the path is an HDF5 file, or a folder with some."""
    return bool(_files(path))


def read_folder(path: Path) -> Contents:
    """Read every demonstration as one camera saw it."""
    return read_camera(path, "")


def read_camera(path: Path, wanted: str) -> Contents:
    """Read every demonstration as the named camera saw it, or as all did; no frame is read."""
    episodes: list[Episode] = []
    problems: list[Problem] = []
    for file in _files(path):
        try:
            require_inside(file.parent, file)
            for each in _read_file(file, wanted):
                if isinstance(each, Problem):
                    problems.append(each)
                else:
                    episodes.append(each)
                if len(episodes) + len(problems) >= ROWS.value:
                    raise DataError(f"not read to its end, {ROWS.describe()}")
        except DataError as error:
            problems.append(Problem(file.name, str(error)))
    return Contents(tuple(episodes), tuple(problems))


def notes(path: Path) -> tuple[Problem, ...]:
    """Say which camera is read where the first file has several."""
    try:
        with opened_hdf5(_files(path)[0]) as file:
            return camera_note(cameras_of_trajectory(file) or _cameras(next(demo for _, demo in _demos(file))))
    except (DataError, StopIteration):  # told as a problem
        return ()


def _read_file(path: Path, wanted: str) -> Iterator[Episode | Problem]:
    with opened_hdf5(path) as file:
        if cameras_of_trajectory(file):
            yield from episodes_of_trajectory(path, file, wanted)
            return
        data = child_group(file, "data")
        if data is None or not any(True for _ in _demos(file)):
            held = ", ".join(list(file)[:6]) or "nothing"
            raise DataError(f"expected demonstrations in data/demo_0, data/demo_1, ..., got {held}; name another file")
        environment = read_environment(data)
        for name, demo in _demos(file):
            try:
                yield from _episodes(path, name, demo, environment, wanted)
            except DataError as error:
                yield Problem(f"{path.name}, {name}", str(error))


def _demos(file: "h5py.File") -> "Iterator[tuple[str, h5py.Group]]":
    """Yield the demonstrations in the order of their numbers."""
    data = child_group(file, "data")
    names = [name for name in data if name.rpartition("_")[2].isdecimal()] if data is not None else []
    for name in sorted(names, key=lambda each: int(each.rpartition("_")[2])):
        demo = child_group(data, name)
        if demo is not None:
            yield name, demo


def _episodes(
    path: Path, name: str, demo: "h5py.Group", environment: Environment, wanted: str
) -> Iterator[Episode | Problem]:
    cameras = _cameras(demo)
    if not cameras:
        raise DataError(f"no frames (T, H, W, 3) of bytes in {name}/obs; {_NO_FRAMES}")
    written = language_of_demo(demo) or environment.language or task_beside(path.parent)
    task = bounded_task(written or task_of_environment(environment.name, path))
    truth = truth_of_success(_success(demo, environment))
    for camera in choose_cameras(cameras, wanted):
        origin = Origin(subset=path.stem, task=task, embodiment=environment.robot, camera=camera)
        clip = _clip(path, name, demo, camera, environment.fps)
        yield Episode(episode_id(f"{path.name}#{name}", camera, cameras), task, clip, truth, origin)


def _clip(path: Path, name: str, demo: "h5py.Group", camera: str, fps: float) -> Clip:
    array = demo["obs"][camera]
    require_frames(array)
    if not 0 < array.shape[0] <= CLIP_FRAMES.value:
        raise DataError(f"{camera} has {array.shape[0]:,} frames; at least 1 is expected, {CLIP_FRAMES.describe()}")
    size = int(np.prod(array.shape[1:]))
    every = np.arange(array.shape[0])
    return Clip(Hdf5Frames(path, ("data", name, "obs", camera), len(every), size), every, every, fps, size)


def _cameras(demo: "h5py.Group") -> list[str]:
    obs = child_group(demo, "obs")
    found = [(name, child_array(obs, name)) for name in obs] if obs is not None else []
    return [name for name, array in found if array is not None and _holds_frames(array)]


def _holds_frames(array: "h5py.Dataset") -> bool:
    return array.dtype == np.uint8 and len(array.shape) == 4 and array.shape[-1] == 3


def _success(demo: "h5py.Group", environment: Environment) -> bool | None:
    rewards = read_numbers(demo, "rewards")
    if environment.is_sparse and rewards:
        return max(rewards) >= 1
    return success_of_rewards(rewards)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix.lower() in _SUFFIXES else []
    names = sorted(path.iterdir()) if path.is_dir() else []
    return [each for each in names if each.suffix.lower() in _SUFFIXES and each.is_file()]


HDF5 = Reader(
    "hdf5",
    "HDF5 demonstrations of robomimic, robosuite and LIBERO (data/demo_N/obs) and RoboNet; needs the extra hdf5",
    "HDF5 files of demonstrations",
    recognises,
    read_folder,
    notes,
    read_camera,
)
