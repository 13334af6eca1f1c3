"""RLDS datasets as TensorFlow Datasets stores them: TFRecord files of episodes beside a features.json."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from rewardlab.core.episode import Clip, Episode, Origin, Truth
from rewardlab.core.errors import DataError
from rewardlab.core.limits import CLIP_FRAMES, ROWS
from rewardlab.data.camera_choice import camera_note, choose_cameras, episode_id, short_name
from rewardlab.data.contract import Contents, Problem, Reader
from rewardlab.data.dataset_files import require_inside
from rewardlab.data.presentation_times import DEFAULT_FPS
from rewardlab.data.rlds.feature_spec import features_of_record, read_features
from rewardlab.data.rlds.language import instruction_of
from rewardlab.data.rlds.record_images import RecordImages
from rewardlab.data.rlds.record_layout import frame_size, frames_of_camera
from rewardlab.data.rlds.tf_example import Feature, parse_example
from rewardlab.data.rlds.tfrecord import Record, read_records
from rewardlab.data.sparse_reward import success_of_rewards, truth_of_success
from rewardlab.data.task_text import bounded_task, task_beside

_PATTERNS = ("*.tfrecord*", "*/*.tfrecord*", "*/*/*.tfrecord*")  # as in NAME/VERSION/NAME-train.tfrecord-00000-of-00001
_SHARD = re.compile(r"(.+?)(?:-([A-Za-z]\w*))?\.tfrecords?(?:-\d+(?:-of-(\d+))?)?")
_PURPOSES = {"softmotion30_44k": "push the objects"}  # of datasets without words, by their folder: BAIR robot pushing
_SUCCESS = ("episode_metadata/success", "episode_metadata/is_success", "success", "steps/success", "steps/is_success")


def recognises(path: Path) -> bool:
    """Tell whether the path is a TFRecord file, or a folder with some, at most two folders down."""
    return next(_files(path), None) is not None


def read_folder(path: Path) -> Contents:
    """Read every episode as one camera saw it."""
    return read_camera(path, "")


def read_camera(path: Path, wanted: str) -> Contents:
    """Read every record, checksums checked, as the named camera saw it or as all did; no frame is decoded."""
    episodes: list[Episode] = []
    problems: list[Problem] = []
    for file in sorted(_files(path)):
        shard = _Shard(path, file, wanted)
        try:
            require_inside(shard.root, file)
            for record in read_records(file):
                if len(episodes) + len(problems) >= ROWS.value:
                    raise DataError(f"records from {record.number} on are not read, {ROWS.describe()}")
                shard.learn_cameras(record)
                _add(shard, record, episodes, problems)
        except DataError as error:
            problems.append(Problem(shard.name, str(error)))
    return Contents(tuple(episodes), tuple(problems))


def notes(path: Path) -> tuple[Problem, ...]:
    """Say which camera is read, which features are not known, and which files are not in this copy."""
    found: list[Problem] = []
    for folder in sorted({file.parent for file in _files(path)}):
        try:
            found += _notes_of(folder, sorted(file for file in _files(path) if file.parent == folder))
        except DataError:  # told as a problem
            continue
    return tuple(found)


def _add(shard: "_Shard", record: Record, episodes: list[Episode], problems: list[Problem]) -> None:
    try:
        episodes.extend(shard.episodes(record))
    except DataError as error:
        problems.append(Problem(f"{shard.name}, record {record.number}", str(error)))


class _Shard:
    """One file of records, and what its features are, once known."""

    def __init__(self, path: Path, file: Path, wanted: str) -> None:
        self.file, self.wanted = file, wanted
        self.root = path if path.is_dir() else path.parent
        self.name = file.relative_to(self.root).as_posix()
        self.cameras: tuple[str, ...] = ()
        self.chosen: tuple[str, ...] = ()

    def learn_cameras(self, record: Record) -> None:
        """Find the cameras, by the first record where no features.json says them, and choose among them."""
        if not self.chosen:
            found = read_features(self.file.parent) or features_of_record(parse_example(record.data))
            self.cameras, self.chosen = found.cameras, choose_cameras(found.cameras, self.wanted)

    def episodes(self, record: Record) -> list[Episode]:
        """Return what each chosen camera saw of the episode in a record."""
        features = parse_example(record.data)
        return [self._episode(record, features, camera) for camera in self.chosen]

    def _episode(self, record: Record, features: Mapping[str, Feature], camera: str) -> Episode:
        images = frames_of_camera(features, camera)
        if not images:
            has = ", ".join(sorted(features)[:6])
            raise DataError(f"no frames in {camera}, which the dataset says it has; the record has {has}, ...")
        if len(images) > CLIP_FRAMES.value:
            raise DataError(f"{len(images):,} steps, {CLIP_FRAMES.describe()}")
        task = instruction_of(features, len(images)) or task_beside(self.root, Path(self.name).parent.as_posix())
        task = bounded_task(task or next((what for name, what in _PURPOSES.items() if name in self.file.parts), ""))
        width, height = frame_size(features, camera, images[0])
        source = RecordImages(self.file, record.number, record.offset, len(record.data), camera, len(images))
        every = np.arange(len(images))
        clip = Clip(source, every, every, DEFAULT_FPS, 3 * width * height)
        name = episode_id(f"{self.name}#{record.number}", camera, self.cameras)
        origin = Origin(subset=_dataset_name(self.file), task=task, camera=short_name(camera))
        return Episode(name, task, clip, _truth(features), origin)


def _truth(features: Mapping[str, Feature]) -> Truth:
    for name in _SUCCESS:
        said = features[name].numbers() if name in features else np.zeros(0)
        if said.size:
            return truth_of_success(bool(said[-1]))
    rewards = features["steps/reward"].numbers() if "steps/reward" in features else np.zeros(0)
    return truth_of_success(success_of_rewards(rewards.tolist()))


def _notes_of(folder: Path, files: list[Path]) -> Iterator[Problem]:
    first = next(read_records(files[0]), None)
    features = parse_example(first.data) if first else {}
    known = read_features(folder) or features_of_record(features)
    yield from camera_note(known.cameras)
    if known.unknown:
        yield Problem(str(folder / "features.json"), f"features that are not read: {', '.join(known.unknown)}")
    unlisted = sorted(set(features) - known.names) if known.names is not None else []
    if unlisted:
        yield Problem(files[0].name, f"features that features.json does not name: {', '.join(unlisted)}")
    yield from _missing_files([file.name for file in files])


def _missing_files(names: list[str]) -> Iterator[Problem]:
    """Say where a name such as train.tfrecord-00000-of-00008 promises more files than there are."""
    matches = [match for name in names if (match := _SHARD.fullmatch(name)) and match[3]]
    groups = [(f"{match[1]}-{match[2]}" if match[2] else match[1], int(match[3])) for match in matches]
    for group, total in sorted(set(groups)):
        here = groups.count((group, total))
        if here < total:
            yield Problem(group, f"{here} of {total} files are here; the episodes of the others are left out")


def _dataset_name(file: Path) -> str:
    match = _SHARD.fullmatch(file.name)
    return match[1] if match else file.stem


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        return iter([path] if ".tfrecord" in path.name else [])
    return (file for pattern in _PATTERNS for file in path.glob(pattern) if file.is_file() and file.name[0] != ".")


RLDS = Reader(
    "rlds",
    "RLDS episodes in TFRecord files with features.json, as in Open X-Embodiment; no TensorFlow; several cameras",
    "TFRecord files of RLDS episodes",
    recognises,
    read_folder,
    notes,
    read_camera,
)
