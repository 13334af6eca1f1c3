"""Logs of EnvLogger, the source format of RLDS: steps.riegeli holds the steps of episodes one after the other.

In the order of reading: the values of a step, its frames, then the episodes of all logs.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Clip, Episode, Frames, Indices, Provenance, read_in_order
from rewardlab.core.errors import DataError
from rewardlab.core.limits import CLIP_FRAMES, CLIP_MB, JSON_DEPTH
from rewardlab.core.seeding import digest
from rewardlab.data.contract import Contents, Found, Problem, Reader, bounded_contents
from rewardlab.data.hdf5 import task_of_environment
from rewardlab.data.images import decode_images, image_size, is_encoded
from rewardlab.data.reading import (
    bounded_text,
    camera_note,
    choose_cameras,
    episode_id,
    label_of_success,
    short_name,
    success_of_rewards,
    task_beside,
)
from rewardlab.data.riegeli import message_fields, read_records
from rewardlab.data.safe_files import digest_of_shared_file, few, require_inside
from rewardlab.data.safe_video import DEFAULT_FPS

# The values of a step: arrays by their path, in nested messages of protocol buffers.

_SCALAR = -438 % 2**64  # the one dimension of what is no array
_ARRAY, _TUPLE, _MAPPING = 2, 3, 4  # fields of a value
_FLOATS, _FLOAT32_BYTES, _DOUBLES, _BOOLS, _TEXTS, _BIG_INT, _UINT8 = 1, 15, 2, 7, 8, 10, 13


@dataclass(frozen=True)
class Value:
    """An array as it is stored: its shape (empty for a scalar), the field that says its type, and its bytes."""

    shape: tuple[int, ...]
    kind: int
    data: bytes

    @property
    def pixels(self) -> NDArray[np.uint8] | None:
        """Return the picture that the array is, (H, W, 3), or None."""
        if self.kind != _UINT8 or len(self.shape) != 3 or self.shape[2] != 3 or len(self.data) != np.prod(self.shape):
            return None
        return np.frombuffer(self.data, np.uint8).reshape(self.shape)

    @property
    def number(self) -> float | None:
        """Return the number that the value is, or None."""
        if self.kind == _BIG_INT:
            return float(int.from_bytes(self.data, "big", signed=True))
        kinds = {_FLOATS: "<f4", _FLOAT32_BYTES: ">f4", _DOUBLES: "<f8", _BOOLS: "u1"}
        if self.kind not in kinds or len(self.data) != np.dtype(kinds[self.kind]).itemsize:
            return None
        return float(np.frombuffer(self.data, kinds[self.kind])[0])

    @property
    def text(self) -> str:
        """Return the text that the value is; empty for anything else."""
        return self.data.decode("utf-8", "replace") if self.kind == _TEXTS else ""


def named_values(record: bytes) -> dict[str, Value]:
    """Return the arrays of a record by their path, such as 0/3/Can_pos; ValueError where it holds something else."""
    return dict(_walk(record, "", 0))


def _walk(data: bytes, path: str, depth: int) -> Iterator[tuple[str, Value]]:
    if depth > JSON_DEPTH.value:
        raise ValueError(f"too many values inside each other, {JSON_DEPTH.describe()}")
    for kind, inner in _messages(data):
        if kind == 1:
            yield path, _array(inner)
        elif kind in (_ARRAY, _TUPLE):
            for place, (_, each) in enumerate(_messages(inner)):
                yield from _walk(each, f"{path}/{place}".strip("/"), depth + 1)
        elif kind == _MAPPING:
            for _, entry in _messages(inner):
                pair = dict(_messages(entry))
                name = pair.get(1, b"").decode("utf-8", "replace")
                yield from _walk(pair.get(2, b""), f"{path}/{name}".strip("/"), depth + 1)


def _array(data: bytes) -> Value:
    stated = dict(_messages(data))
    sides = [dict(message_fields(dim)).get(1, 0) for _, dim in _messages(stated.get(1, b""))]
    shape = () if sides == [_SCALAR] else tuple(int(side) for side in sides)
    values = list(message_fields(stated.get(2, b"")))
    kind, first = values[0] if values else (0, b"")
    return Value(shape, kind, first if isinstance(first, bytes) else bytes([first & 0xFF]))


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of the fields that are messages or texts."""
    for number, content in message_fields(data):
        if isinstance(content, int):
            raise ValueError(f"field {number} is a number, not a message")
        yield number, content


def step_values(data: bytes) -> dict[str, Value]:
    """Return the arrays of a step by their path; DataError where it is none."""
    try:
        return named_values(data)
    except (ValueError, RecursionError) as error:
        raise DataError(f"a step is no value of EnvLogger ({error}); copy the log again") from None


# Frames: the chunks that hold the steps are decoded again, and only the frames asked for.


@dataclass(frozen=True)
class LogImages:
    """What one camera saw in so many steps of a log from the given one on."""

    path: Path
    camera: str
    first: int
    count: int

    @cached_property
    def digest(self) -> str:
        """Identify the frames by the bytes of their file and their place in it."""
        return digest(digest_of_shared_file(self.path), self.camera, self.first, self.count)

    def read(self, indices: Indices) -> Frames:
        """Decode these frames, in this order."""
        return read_in_order(indices, self._decode)

    def _decode(self, kept: Indices) -> Frames:
        wanted = set(kept.tolist())
        try:
            steps = read_records(self.path, self.first, self.count)
            found = [step_values(data)[self.camera] for place, data in enumerate(steps) if place in wanted]
            if found[0].pixels is None:
                return decode_images((value.data for value in found), len(found))
            pixels = [each for value in found if (each := value.pixels) is not None and each.shape == found[0].shape]
            if len(pixels) < len(found):
                raise DataError("frames have different sizes; store them at one size")
            if sum(each.nbytes for each in pixels) > CLIP_MB.in_bytes:
                raise DataError(f"{len(found):,} frames do not fit into memory: {CLIP_MB.describe(' MB')}")
            return np.stack(pixels)
        except (DataError, KeyError) as error:
            raise DataError(f"{self.path}, {self.camera} from step {self.first} on: {error}") from None


# The logs of a dataset, and their episodes.

_STEPS, _METADATA = "steps.riegeli", "metadata.riegeli"
_PATTERNS = (_STEPS, f"*/{_STEPS}", f"*/*/{_STEPS}")  # as in LOG/TIMESTAMP/steps.riegeli
_STEP_TYPE, _REWARD = "0/0", "0/1"  # a step is a time step, an action and what else was logged
_FIRST = 0  # the type of the first step of an episode


@dataclass
class _EpisodeSteps:
    """An episode while its steps come in."""

    first: int
    cameras: tuple[str, ...]
    size: int  # bytes of one frame
    rewards: list[float] = field(default_factory=list)


def _files(path: Path) -> list[Path]:
    return sorted(file for pattern in _PATTERNS for file in path.glob(pattern) if file.is_file())


def _episode_steps(file: Path) -> Iterator[_EpisodeSteps]:
    """Yield the episodes of a log; each begins with a step of the first type."""
    open_episode: _EpisodeSteps | None = None
    for number, data in enumerate(read_records(file)):
        values = step_values(data)
        kind = values[_STEP_TYPE].number if _STEP_TYPE in values else None
        if open_episode is None or kind == _FIRST:
            if open_episode is not None:
                yield open_episode
            pictures = {name for name, each in values.items() if is_encoded(each.data) or each.pixels is not None}
            if not pictures:
                held = few(list(values))
                raise DataError(
                    f"step {number} holds no JPEG, PNG or array of pixels, but {held}; log the frames as well"
                )
            cameras = tuple(sorted(pictures))
            first = values[cameras[0]]
            width, height = image_size(first.data) if first.pixels is None else first.pixels.shape[1::-1]
            open_episode = _EpisodeSteps(number, cameras, 3 * width * height)
        reward = values[_REWARD].number if _REWARD in values else None
        open_episode.rewards.append(reward if reward is not None and np.isfinite(reward) else 0.0)
    if open_episode is not None:
        yield open_episode


def _found(root: Path, file: Path, wanted: str) -> Iterator[Found[Episode]]:
    """Yield the place of every episode of a log and what makes it; where the log cannot be read on, why."""
    place = file.relative_to(root).as_posix()
    try:
        require_inside(root, file)
        task = _task(root, file)
        for number, steps in enumerate(_episode_steps(file)):
            for camera in choose_cameras(steps.cameras, wanted):
                yield place, partial(_episode, file, f"{place}#{number}", steps, task, camera)
    except DataError as error:
        yield place, error


def _episode(file: Path, name: str, steps: _EpisodeSteps, task: str, camera: str) -> Episode:
    count = len(steps.rewards)
    if count > CLIP_FRAMES.value:
        raise DataError(f"{count:,} steps, {CLIP_FRAMES.describe()}")
    label = label_of_success(success_of_rewards(steps.rewards))
    every = np.arange(count)
    clip = Clip(LogImages(file, camera, steps.first, count), every, every, DEFAULT_FPS, steps.size)
    provenance = Provenance(subset=file.parent.parent.name, task=task, camera=short_name(camera))
    return Episode(episode_id(name, camera, steps.cameras), task, clip, label, provenance)


def _task(root: Path, file: Path) -> str:
    """Return the task of a log: what task.txt says, else what its environment is for."""
    metadata, environment = file.parent.parent / _METADATA, ""
    if metadata.is_file():
        require_inside(metadata.parent, metadata)
        about = next((step_values(data) for data in read_records(metadata)), {})
        environment = about["env_name"].text.rpartition(":")[2] if "env_name" in about else ""
    return bounded_text(task_beside(root) or (task_of_environment(environment, file) if environment else ""))


def recognises(path: Path) -> bool:
    """Tell whether the folder has a log, at most two folders down."""
    return bool(_files(path))


def read_camera(path: Path, wanted: str) -> Contents:
    """Read every episode from the named camera, from all, or, if `wanted` is empty, from one; decode no frame."""
    return bounded_contents((each for file in _files(path) for each in _found(path, file, wanted)), "episode")


def notes(path: Path) -> tuple[Problem, ...]:
    """Say which camera is read where the first log has several."""
    try:
        return camera_note(next(_episode_steps(_files(path)[0])).cameras)
    except (DataError, StopIteration):  # told as a problem
        return ()


ENVLOGGER = Reader(
    "envlogger",
    "logs of EnvLogger in Riegeli files, from which RLDS datasets are made; several cameras; needs the extra envlogger",
    "steps.riegeli of an EnvLogger log",
    recognises,
    partial(read_camera, wanted=""),
    notes,
    read_camera,
)
