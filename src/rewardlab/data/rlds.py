"""RLDS datasets as TensorFlow Datasets stores them: TFRecord files of episodes beside a features.json.

In the order of reading: features, frames, instruction and label of a record, then the episodes of all files.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np

from rewardlab.core.episode import Clip, Episode, Frames, Indices, Label, Provenance, read_in_order
from rewardlab.core.errors import DataError
from rewardlab.core.limits import CLIP_FRAMES, FRAME_PIXELS
from rewardlab.core.records import read_json
from rewardlab.core.seeding import digest
from rewardlab.data.contract import Contents, Found, Problem, Reader, bounded_contents
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
from rewardlab.data.safe_files import few, require_inside, shown
from rewardlab.data.safe_video import DEFAULT_FPS
from rewardlab.data.tfrecord import Feature, Record, parse_example, read_record, read_records

# What the steps hold: from `features.json`, or from a record where that file is missing.

FEATURES = "features.json"
STEPS = "steps/"
_RGB = 3  # channels
_KNOWN = ("FeaturesDict", "Dataset", "Sequence", "Tensor", "Scalar", "Text", "Image", "ClassLabel", "Optional")
_NUMBERED = re.compile(r"(\d{1,9})/(.+)/encoded")  # as in 12/image_main/encoded, of BAIR and the like


@dataclass(frozen=True)
class StepFeatures:
    """The cameras, all names, and the features of a kind that is not known, each as `name (class)`."""

    cameras: tuple[str, ...]
    names: frozenset[str] | None  # None where no file lists them
    unknown: tuple[str, ...] = ()


def read_features(folder: Path) -> StepFeatures | None:
    """Return what features.json says, or None where it is not there."""
    path = folder / FEATURES
    if not path.is_file():
        return None
    require_inside(folder, path)
    try:
        leaves = list(_leaves(read_json(path), ""))
    except (ValueError, OSError) as error:
        raise DataError(f"{FEATURES}: cannot be read ({error}); copy the dataset again") from None
    cameras = sorted(name for name, kind, spec in leaves if kind == "Image" and _is_rgb(name, spec))
    names = frozenset(name for name, _, _ in leaves)
    if not cameras:
        what = f"no RGB Image among the features of steps, but {few(sorted(names))}"
        raise DataError(f"{FEATURES}: {what}; expected RLDS episodes with camera frames")
    unknown = tuple(f"{name} ({kind})" for name, kind, _ in leaves if kind not in _KNOWN)
    return StepFeatures(tuple(cameras), names, unknown)


def features_of_record(features: Mapping[str, Feature]) -> StepFeatures:
    """Return what a record shows: its features that begin as JPEG or PNG images do are cameras."""
    pictures = sorted(name for name, feature in features.items() if is_encoded(next(feature.each(), b"")))
    in_steps = [name for name in pictures if name.startswith(STEPS)]
    numbered = sorted({camera for _, camera, _ in _numbered(features)}, key=lambda name: ("main" not in name, name))
    cameras = in_steps or numbered or [name for name in pictures if "/" not in name]
    if not cameras:
        what = f"no JPEG or PNG among the features of the record, which are {few(sorted(features))}"
        raise DataError(f"{what}; expected RLDS episodes with camera frames, {FEATURES} beside them is missing")
    return StepFeatures(tuple(cameras), None)


def _leaves(spec: Any, name: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield name, class and description of every feature that holds values."""
    if not isinstance(spec, dict):
        raise ValueError(f"the feature {shown(name)} is not an object")
    kind = str(spec.get("pythonClassName", "")).rpartition(".")[2]
    inner = spec.get("featuresDict")
    if isinstance(inner, dict) and isinstance(inner.get("features"), dict):
        for key, each in inner["features"].items():
            yield from _leaves(each, f"{name}/{key}" if name else key)
    elif kind == "Dataset" and isinstance(spec.get("sequence"), dict):
        yield from _leaves(spec["sequence"].get("feature"), name)
    else:
        yield name, kind, spec


def _is_rgb(name: str, spec: Mapping[str, Any]) -> bool:
    image = spec.get("image")
    image = image if isinstance(image, dict) else {}
    shape = image.get("shape")
    sides = shape.get("dimensions") if isinstance(shape, dict) else None
    channels = str(sides[-1]) if isinstance(sides, list) and sides else str(_RGB)
    return name.startswith(STEPS) and image.get("dtype", "uint8") == "uint8" and channels == str(_RGB)


def _numbered(features: Mapping[str, Feature]) -> Iterator[tuple[int, str, str]]:
    """Yield step, camera and name of the features that hold one frame each."""
    for name, feature in features.items():
        match = _NUMBERED.fullmatch(name)
        if match and feature.kind == "bytes":
            yield int(match[1]), match[2], name


# Frames of one episode in a TFRecord file: the record is read again and only the frames asked for are decoded.


def frames_of_camera(features: Mapping[str, Feature], camera: str) -> list[memoryview]:
    """Return the frames of a camera as they are stored, in the order of the steps."""
    if camera in features:
        return list(features[camera].each())
    found = sorted((step, name) for step, each, name in _numbered(features) if each == camera)
    missing = next((place for place, (step, _) in enumerate(found) if step != place), None)
    if missing is not None:
        raise DataError(f"step {missing} of {camera} is missing; copy the file again")
    return [view for _, name in found for view in features[name].each()]


def decode_frames(features: Mapping[str, Feature], camera: str, images: Sequence[memoryview]) -> Frames:
    """Return the frames: JPEG and PNG decoded, bare bytes of one feature per step as a square of RGB."""
    if not images or _holds_files(features, camera, images[0]):
        return decode_images((bytes(image) for image in images), len(images))
    sizes = {len(image) for image in images}
    if len(sizes) > 1:
        raise DataError(f"frames of {min(sizes):,} and {max(sizes):,} bytes; store them at one size")
    width, height = _raw_size(images[0])
    return np.stack([np.frombuffer(image, np.uint8).reshape(height, width, 3) for image in images])


def _holds_files(features: Mapping[str, Feature], camera: str, image: memoryview) -> bool:
    return camera in features or is_encoded(image)


def _raw_size(image: memoryview) -> tuple[int, int]:
    side = isqrt(len(image) // 3)
    if side == 0 or 3 * side * side != len(image):
        raise DataError(f"a frame of {len(image):,} bytes that is no JPEG, no PNG and no square of RGB pixels")
    if side * side > FRAME_PIXELS.value:
        raise DataError(f"a frame of {side} x {side} pixels, {FRAME_PIXELS.describe()}")
    return side, side


@dataclass(frozen=True)
class RecordImages:
    """What one camera saw of the episode in one record."""

    path: Path
    number: int
    offset: int
    size: int
    camera: str
    count: int

    @cached_property
    def digest(self) -> str:
        """Identify the frames by the bytes of their record, wherever it is kept."""
        return digest(self._record(), self.camera)

    def read(self, indices: Indices) -> Frames:
        """Decode these frames, in this order."""
        return read_in_order(indices, self._decode)

    def _decode(self, kept: Indices) -> Frames:
        features = parse_example(self._record())
        images = frames_of_camera(features, self.camera)
        try:
            return decode_frames(features, self.camera, [images[index] for index in kept])
        except DataError as error:
            raise DataError(f"{self.path}, record {self.number}, {self.camera}: {error}") from None

    def _record(self) -> bytes:
        return read_record(self.path, self.number, self.offset, self.size)


# Instruction and success, in the variants that datasets write them: per step or once, text or numbers.

_TEXTS = (  # last parts of the names, the best first
    *("language_instruction", "natural_language_instruction", "instruction", "language_instruction_2"),
    *("language_instruction_3", "language", "task_description", "task", "goal"),
)
_CODES = ("task_code", "task_name")  # such as lift-any
_PLACES = ("steps/", "steps/observation/", "episode_metadata/", "")
_SUCCESS = ("episode_metadata/success", "episode_metadata/is_success", "success", "steps/success", "steps/is_success")


def instruction_of(features: Mapping[str, Feature], steps: int) -> str:
    """Return the first text that is not empty; empty where there is none."""
    for last, place in product((*_TEXTS, *_CODES), _PLACES):
        name = f"{place}{last}"
        if name in features and (text := _text(name, features[name], steps)):
            return re.sub(r"[-_]+", " ", text) if last in _CODES else text
    return ""


def _text(name: str, feature: Feature, steps: int) -> str:
    written = feature.each()
    if feature.kind == "int":  # the codes of the UTF-8 bytes, filled up with zeros to the same length in every step
        numbers = feature.numbers()
        codes = numbers[: len(numbers) // max(steps, 1)] if name.startswith(STEPS) else numbers
        codes = codes[codes != 0]
        if codes.size == 0 or codes.min() < 0 or codes.max() > 255:
            return ""
        written = iter([memoryview(bytes(codes.astype("uint8")))])
    try:
        return next((text for data in written if (text := bytes(data).decode().strip())), "")
    except UnicodeDecodeError:
        raise DataError(f"{name} is not UTF-8 text; write it as text") from None


def _label(features: Mapping[str, Feature]) -> Label:
    for name in _SUCCESS:
        said = features[name].numbers() if name in features else np.zeros(0)
        if said.size:
            return label_of_success(bool(said[-1]))
    rewards = features["steps/reward"].numbers() if "steps/reward" in features else np.zeros(0)
    return label_of_success(success_of_rewards(rewards.tolist()))


# The files of a dataset, and their episodes.

_PATTERNS = ("*.tfrecord*", "*/*.tfrecord*", "*/*/*.tfrecord*")  # as in NAME/VERSION/NAME-train.tfrecord-00000-of-00001
_SHARD = re.compile(r"(.+?)(?:-([A-Za-z]\w*))?\.tfrecords?(?:-\d+(?:-of-(\d+))?)?")
_PURPOSES = {"softmotion30_44k": "push the objects"}  # of datasets without words, by their folder: BAIR robot pushing


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        return iter([path] if ".tfrecord" in path.name else [])
    return (file for pattern in _PATTERNS for file in path.glob(pattern) if file.is_file() and file.name[0] != ".")


def _found(root: Path, file: Path, wanted: str) -> Iterator[Found[Episode]]:
    """Yield the place of every episode of a file and what makes it; where the file cannot be read on, why."""
    name = file.relative_to(root).as_posix()
    cameras: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    try:
        require_inside(root, file)
        for record in read_records(file):
            if not chosen:  # the first record shows the cameras where no features.json says them
                cameras = (read_features(file.parent) or features_of_record(parse_example(record.data))).cameras
                chosen = choose_cameras(cameras, wanted)
            place = f"{name}, record {record.number}"
            try:
                features = parse_example(record.data)
            except DataError as error:
                yield place, error
                continue
            for camera in chosen:
                yield place, partial(_episode, root, file, record, features, camera, cameras)
    except DataError as error:
        yield name, error


def _episode(
    root: Path, file: Path, record: Record, features: Mapping[str, Feature], camera: str, cameras: tuple[str, ...]
) -> Episode:
    images = frames_of_camera(features, camera)
    if not images:
        has = few(sorted(features))
        raise DataError(f"no frames in {camera}, which the dataset says it has; the record has {has}")
    if len(images) > CLIP_FRAMES.value:
        raise DataError(f"{len(images):,} steps, {CLIP_FRAMES.describe()}")
    inside = file.relative_to(root)
    task = instruction_of(features, len(images)) or task_beside(root, inside.parent.as_posix())
    task = bounded_text(task or next((what for name, what in _PURPOSES.items() if name in file.parts), ""))
    first = images[0]
    width, height = image_size(bytes(first)) if _holds_files(features, camera, first) else _raw_size(first)
    source = RecordImages(file, record.number, record.offset, len(record.data), camera, len(images))
    every = np.arange(len(images))
    clip = Clip(source, every, every, DEFAULT_FPS, 3 * width * height)
    shard = _SHARD.fullmatch(file.name)
    dataset = shard[1] if shard else file.stem
    provenance = Provenance(subset=dataset, task=task, camera=short_name(camera), source=dataset)
    name = episode_id(f"{inside.as_posix()}#{record.number}", camera, cameras)
    return Episode(name, task, clip, _label(features), provenance)


def _notes_of(folder: Path, files: list[Path]) -> Iterator[Problem]:
    first = next(read_records(files[0]), None)
    features = parse_example(first.data) if first else {}
    known = read_features(folder) or features_of_record(features)
    yield from camera_note(known.cameras)
    if known.unknown:
        yield Problem(str(folder / FEATURES), f"features that are not read: {', '.join(known.unknown)}")
    unlisted = sorted(set(features) - known.names) if known.names is not None else []
    if unlisted:
        yield Problem(files[0].name, f"features that {FEATURES} does not name: {', '.join(unlisted)}")
    # A name such as train.tfrecord-00000-of-00008 may promise more files than there are.
    matches = [match for file in files if (match := _SHARD.fullmatch(file.name)) and match[3]]
    groups = [(f"{match[1]}-{match[2]}" if match[2] else match[1], int(match[3])) for match in matches]
    for group, total in sorted(set(groups)):
        here = groups.count((group, total))
        if here < total:
            yield Problem(group, f"{here} of {total} files are here; the episodes of the others are left out")


def recognises(path: Path) -> bool:
    """Tell whether the path is a TFRecord file, or a folder with some, at most two folders down."""
    return next(_files(path), None) is not None


def read_camera(path: Path, wanted: str) -> Contents:
    """Read every episode from the named camera, from all, or, if `wanted` is empty, from one; decode no frame."""
    root = path if path.is_dir() else path.parent
    return bounded_contents((each for file in sorted(_files(path)) for each in _found(root, file, wanted)), "record")


def notes(path: Path) -> tuple[Problem, ...]:
    """Say which camera is read, which features are not known, and which files are not in this copy."""
    found: list[Problem] = []
    for folder in sorted({file.parent for file in _files(path)}):
        try:
            found += _notes_of(folder, sorted(file for file in _files(path) if file.parent == folder))
        except DataError:  # told as a problem
            continue
    return tuple(found)


RLDS = Reader(
    "rlds",
    "RLDS episodes in TFRecord files with features.json, as in Open X-Embodiment; no TensorFlow; several cameras",
    "TFRecord files of RLDS episodes",
    recognises,
    partial(read_camera, wanted=""),
    notes,
    read_camera,
)
