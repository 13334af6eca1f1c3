"""Logs of EnvLogger, the source format of RLDS: steps.riegeli holds the steps of episodes one after the other."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from rewardlab.core.episode import Clip, Episode, Origin
from rewardlab.core.errors import DataError
from rewardlab.core.limits import CLIP_FRAMES, ROWS
from rewardlab.data.camera_choice import camera_note, choose_cameras, episode_id, short_name
from rewardlab.data.contract import Contents, Problem, Reader
from rewardlab.data.dataset_files import require_inside
from rewardlab.data.encoded_images import image_size
from rewardlab.data.envlogger.log_images import LogImages, step_values
from rewardlab.data.envlogger.log_values import Value
from rewardlab.data.envlogger.riegeli_file import read_records
from rewardlab.data.hdf5.environment import task_of_environment
from rewardlab.data.presentation_times import DEFAULT_FPS
from rewardlab.data.sparse_reward import success_of_rewards, truth_of_success
from rewardlab.data.task_text import bounded_task, task_beside

_STEPS, _METADATA = "steps.riegeli", "metadata.riegeli"
_PATTERNS = (_STEPS, f"*/{_STEPS}", f"*/*/{_STEPS}")  # as in LOG/TIMESTAMP/steps.riegeli
_STEP_TYPE, _REWARD = "0/0", "0/1"  # a step is a time step, an action and what else was logged
_FIRST = 0  # the type of the first step of an episode
_MAGIC = (b"\xff\xd8", b"\x89PNG")


@dataclass
class _Found:
    """An episode while its steps come in."""

    first: int
    cameras: tuple[str, ...]
    size: int  # bytes of one frame
    rewards: list[float] = field(default_factory=list)


def recognises(path: Path) -> bool:
    """Tell whether the folder has a log, at most two folders down."""
    return bool(_files(path))


def read_folder(path: Path) -> Contents:
    """Read every episode as one camera saw it."""
    return read_camera(path, "")


def read_camera(path: Path, wanted: str) -> Contents:
    """Read every step, and the episodes as the named camera saw them or as all did; no frame is decoded."""
    episodes: list[Episode] = []
    problems: list[Problem] = []
    for file in _files(path):
        place = file.relative_to(path).as_posix()
        try:
            require_inside(path, file)
            task = _task(path, file)
            for number, found in enumerate(_found(file)):
                if len(episodes) + len(problems) >= ROWS.value:
                    raise DataError(f"episodes from {number} on are not read, {ROWS.describe()}")
                episodes += _episodes(file, f"{place}#{number}", found, task, wanted)
        except DataError as error:
            problems.append(Problem(place, str(error)))
    return Contents(tuple(episodes), tuple(problems))


def notes(path: Path) -> tuple[Problem, ...]:
    """Say which camera is read where the first log has several."""
    try:
        return camera_note(next(_found(_files(path)[0])).cameras)
    except (DataError, StopIteration):  # told as a problem
        return ()


def _found(file: Path) -> Iterator[_Found]:
    """Yield the episodes of a log; each begins with a step of the first type."""
    open_episode: _Found | None = None
    for number, data in enumerate(read_records(file)):
        values = step_values(data)
        kind = values[_STEP_TYPE].number if _STEP_TYPE in values else None
        if open_episode is None or kind == _FIRST:
            if open_episode is not None:
                yield open_episode
            open_episode = _first_step(number, values)
        reward = values[_REWARD].number if _REWARD in values else None
        open_episode.rewards.append(reward if reward is not None and np.isfinite(reward) else 0.0)
    if open_episode is not None:
        yield open_episode


def _first_step(number: int, values: dict[str, Value]) -> _Found:
    cameras = tuple(sorted(name for name, value in values.items() if _is_picture(value)))
    if not cameras:
        few = ", ".join(list(values)[:6])
        raise DataError(f"step {number} holds no JPEG, PNG or array of pixels, but {few}; log the frames as well")
    first = values[cameras[0]]
    width, height = image_size(first.data) if first.pixels is None else first.pixels.shape[1::-1]
    return _Found(number, cameras, 3 * width * height)


def _episodes(file: Path, name: str, found: _Found, task: str, wanted: str) -> Iterator[Episode]:
    count = len(found.rewards)
    if count > CLIP_FRAMES.value:
        raise DataError(f"{count:,} steps, {CLIP_FRAMES.describe()}")
    truth = truth_of_success(success_of_rewards(found.rewards))
    every = np.arange(count)
    for camera in choose_cameras(found.cameras, wanted):
        clip = Clip(LogImages(file, camera, found.first, count), every, every, DEFAULT_FPS, found.size)
        origin = Origin(subset=file.parent.parent.name, task=task, camera=short_name(camera))
        yield Episode(episode_id(name, camera, found.cameras), task, clip, truth, origin)


def _task(root: Path, file: Path) -> str:
    """Return the task of a log: what task.txt says, else what its environment is for."""
    log = file.parent.parent
    about = (
        next((step_values(data) for data in islice(read_records(log / _METADATA), 1)), {}) if _has_metadata(log) else {}
    )
    environment = about["env_name"].text.rpartition(":")[2] if "env_name" in about else ""
    return bounded_task(task_beside(root) or (task_of_environment(environment, file) if environment else ""))


def _has_metadata(log: Path) -> bool:
    if not (log / _METADATA).is_file():
        return False
    require_inside(log, log / _METADATA)
    return True


def _is_picture(value: Value) -> bool:
    return value.data.startswith(_MAGIC) or value.pixels is not None


def _files(path: Path) -> list[Path]:
    return sorted(file for pattern in _PATTERNS for file in path.glob(pattern) if file.is_file())


ENVLOGGER = Reader(
    "envlogger",
    "logs of EnvLogger in Riegeli files, from which RLDS datasets are made; several cameras; needs the extra envlogger",
    "steps.riegeli of an EnvLogger log",
    recognises,
    read_folder,
    notes,
    read_camera,
)
