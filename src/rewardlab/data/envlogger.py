"""EnvLogger logs: steps, values, frames."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Clip, Episode, Frames, Indices, InMemoryFrames, Provenance
from rewardlab.core.errors import DataError
from rewardlab.core.limits import CLIP_FRAMES, CLIP_MB, JSON_DEPTH, ROWS
from rewardlab.core.seeding import digest
from rewardlab.data.contract import Contents, Problem, Reader
from rewardlab.data.hdf5 import task_of_environment
from rewardlab.data.images import decode_images, image_size
from rewardlab.data.reading import (
    bounded_task,
    camera_note,
    choose_cameras,
    episode_id,
    label_of_success,
    short_name,
    success_of_rewards,
    task_beside,
)
from rewardlab.data.riegeli import VarintStream, read_records
from rewardlab.data.safe_files import digest_of_shared_file, require_inside
from rewardlab.data.safe_video import DEFAULT_FPS

_SCALAR = -438 % 2**64  # the one dimension of what is no array
_ARRAY, _TUPLE, _MAPPING = 2, 3, 4  # fields of a value
_FLOATS, _FLOAT32_BYTES, _DOUBLES, _BOOLS, _TEXTS, _BYTES, _BIG_INT, _UINT8 = 1, 15, 2, 7, 8, 9, 10, 13

Fields = list[tuple[int, Any]]


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
    for kind, inner in _fields(data):
        if kind == 1:
            yield path, _array(inner)
        elif kind in (_ARRAY, _TUPLE):
            for place, (_, each) in enumerate(_fields(inner)):
                yield from _walk(each, f"{path}/{place}".strip("/"), depth + 1)
        elif kind == _MAPPING:
            for _, entry in _fields(inner):
                pair = dict(_fields(entry))
                name = bytes(pair.get(1, b"")).decode("utf-8", "replace")
                yield from _walk(pair.get(2, b""), f"{path}/{name}".strip("/"), depth + 1)


def _array(data: bytes) -> Value:
    stated: Mapping[int, bytes] = dict(_fields(data))
    sides = [dict(_fields(dim)).get(1, 0) for _, dim in _fields(stated.get(1, b""))]
    shape = () if sides == [_SCALAR] else tuple(sides)
    values = _fields(stated.get(2, b""))
    kind, first = values[0] if values else (0, b"")
    return Value(shape, kind, first if isinstance(first, bytes) else bytes([first & 0xFF]))


def _fields(data: bytes) -> Fields:
    """Return number and content of the fields of a message."""
    stream, found = VarintStream(data), []
    while stream.place < len(data):
        tag = stream.number()
        wire = tag & 7
        if wire not in (0, 1, 2, 5):
            raise ValueError(f"wire type {wire} in a value")
        content: int | bytes = stream.number() if wire == 0 else b""
        if wire:
            content = stream.read({1: 8, 5: 4}.get(wire) or stream.number())
        found.append((tag >> 3, content))
    return found


# Frames of an EnvLogger log: the chunks that hold the steps are decoded again, and only the frames asked for.


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
        kept = np.unique(indices)
        wanted = set(kept.tolist())
        try:
            steps = read_records(self.path, self.first, self.count)
            found = [step_values(data)[self.camera] for place, data in enumerate(steps) if place in wanted]
            frames = _decode(found)
        except (DataError, KeyError) as error:
            raise DataError(f"{self.path}, {self.camera} from step {self.first} on: {error}") from None
        return InMemoryFrames(frames, kept, self.count, self.digest).read(indices)


def step_values(data: bytes) -> dict[str, Value]:
    """Return the arrays of a step by their path; DataError where it is none."""
    try:
        return named_values(data)
    except (ValueError, RecursionError) as error:
        raise DataError(f"a step is no value of EnvLogger ({error}); copy the log again") from None


def _decode(found: list[Value]) -> Frames:
    if found[0].pixels is None:
        return decode_images((value.data for value in found), len(found))
    pixels = [value.pixels for value in found]
    if any(each is None or each.shape != found[0].shape for each in pixels):
        raise DataError("frames have different sizes; store them at one size")
    if sum(len(value.data) for value in found) > CLIP_MB.in_bytes:
        raise DataError(f"{len(found):,} frames do not fit into memory, in MB {CLIP_MB.describe()}")
    return np.stack([each for each in pixels if each is not None])


# Logs of EnvLogger, the source format of RLDS: steps.riegeli holds the steps of episodes one after the other.

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
    truth = label_of_success(success_of_rewards(found.rewards))
    every = np.arange(count)
    for camera in choose_cameras(found.cameras, wanted):
        clip = Clip(LogImages(file, camera, found.first, count), every, every, DEFAULT_FPS, found.size)
        origin = Provenance(subset=file.parent.parent.name, task=task, camera=short_name(camera))
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
