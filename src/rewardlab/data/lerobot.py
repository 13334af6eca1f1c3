"""LeRobot datasets: Parquet rows beside one video per episode (v2.0, v2.1) or per many episodes (v3.x).

Sections: dataset metadata, ground truth that rewardlab adds, list of episodes, rows of an episode, subtasks, episodes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rewardlab.core.episode import (
    DONE,
    LEVELS,
    NOT_BEGUN,
    UNDER_WAY,
    Clip,
    Episode,
    Label,
    Positions,
    Provenance,
    Stage,
)
from rewardlab.core.errors import DataError
from rewardlab.core.limits import CLIP_FRAMES, ROWS
from rewardlab.core.records import read_json
from rewardlab.data.contract import Contents, Problem, Reader, bounded_contents
from rewardlab.data.images import ParquetImages
from rewardlab.data.lerobot_columns import INFO, SUBTASKS, LeRobotColumns
from rewardlab.data.reading import (
    ALL_CAMERAS,
    bounded_text,
    camera_note,
    choose_cameras,
    episode_id,
    label_of_success,
    short_name,
    success_of_rewards,
)
from rewardlab.data.roboreward_rows import failure_of, parse_row, valid_fps
from rewardlab.data.safe_files import column_values, path_inside, read_table, require_inside, shown, text_lines
from rewardlab.data.safe_video import rate_and_positions
from rewardlab.data.video import VideoFile, segment_of_video

if TYPE_CHECKING:
    import pyarrow


# `meta/info.json`: the metadata of a dataset.

_VERSION = re.compile(r"v2\.[01]|v3\.\d+")  # minor versions of 3 keep what is read here
_NEWEST = "v3.0"  # of those that were tried
_DEPTH = ("is_depth_map", "video.is_depth_map")  # keys that mark depth maps in new and older datasets
_FIELD = re.compile(r"\{(\w+)(?::0?(\d)d)?\}")  # as in {episode_index:06d}


@dataclass(frozen=True)
class DatasetInfo:
    """The content of `meta/info.json`; the two paths are templates."""

    folder: Path
    version: str
    fps: float
    robot: str
    chunk_size: int
    data_path: str
    video_path: str
    cameras: Mapping[str, str]  # by key: `video`, or `image` if the data files hold one image per row

    @property
    def is_v3(self) -> bool:
        """Tell whether files hold several episodes."""
        return self.version.startswith("v3.")

    def data_file(self, values: Mapping[str, int | str]) -> Path:
        """Return the file of rows that the template and these values name."""
        return path_inside(self.folder, _fill_template(self.data_path, values), "data_path")

    def video_file(self, values: Mapping[str, int | str]) -> Path:
        """Return the video that the template and these values name."""
        return path_inside(self.folder, _fill_template(self.video_path, values), "video_path")


def read_dataset_info(folder: Path) -> DatasetInfo:
    """Read and check `meta/info.json`."""
    require_inside(folder, folder / INFO)
    try:
        info = read_json(folder / INFO)
    except (ValueError, OSError) as error:
        raise DataError(f"{INFO}: cannot be read ({error}); copy the dataset again") from None
    if not isinstance(info, dict):
        raise DataError(f"{INFO}: expected an object, got {type(info).__name__}; copy the dataset again")
    version, chunk_size = info.get("codebase_version"), info.get("chunks_size", 1000)
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        what = f"codebase_version must be v2.0, v2.1 or v3.x, got {shown(version)}"
        raise DataError(f"{INFO}: {what}; convert the dataset with the scripts of LeRobot")
    fps = valid_fps(str(INFO), info.get("fps"))
    if isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size < 1:
        raise DataError(f"{INFO}: chunks_size must be a whole number above 0, got {shown(chunk_size)}")
    return DatasetInfo(
        folder,
        version,
        fps,
        str(info.get("robot_type") or "")[:100],
        chunk_size,
        _template(info, "data_path"),
        _template(info, "video_path") if info.get("video_path") is not None else "",
        _cameras(info),
    )


def _fill_template(template: str, values: Mapping[str, int | str]) -> str:
    """Return a path template with its fields filled in; an untrusted template never goes to `str.format`."""

    def fill(match: re.Match[str]) -> str:
        name, width = match.groups()
        if name not in values:
            raise DataError(f"{INFO}: the path {shown(template)} has the unknown field {shown(name)}")
        return str(values[name]).zfill(int(width or 0))

    return _FIELD.sub(fill, template)


def _template(info: Mapping[str, Any], key: str) -> str:
    value = info.get(key)
    if not isinstance(value, str) or not value:
        raise DataError(f"{INFO}: {key} must be a path template, got {shown(value)}")
    return value


def _cameras(info: Mapping[str, Any]) -> dict[str, str]:
    features = info.get("features")
    if not isinstance(features, dict):
        raise DataError(f"{INFO}: features must be an object, got {shown(features)}")
    found: dict[str, str] = {}
    for key, feature in features.items():
        if isinstance(feature, dict) and feature.get("dtype") in ("video", "image"):
            about = feature.get("info") or feature.get("video_info") or {}
            if not (isinstance(about, dict) and any(about.get(mark) for mark in _DEPTH)):
                found[key] = feature["dtype"]
    return found


# Ground truth that rewardlab adds to a LeRobot dataset: level and success of an episode, progress of every frame.
#
# The progress file has the columns and metadata of the progress files of LeRobot's reward models, with `truth` as the
# name of the model. No other progress file is read: predictions of a model are not labels.

LEVEL, SUCCESS = "truth/level", "truth/success"  # columns of the table of episodes
FAILURE = {"truth/failure_cause": "failure_cause", "truth/failure_frame": "failure_frame"}  # as rows call them
PROGRESS_FILE = "truth_progress.parquet"
_MODEL, _TRUTH = b"reward_model_path", b"truth"
_PROGRESS_COLUMNS = ("index", "episode_index", "frame_index", "progress_sparse", "progress_dense")

Progress = Sequence[float] | None


def progress_table(episodes: Sequence[tuple[int, Progress]], model: str = "truth") -> "pyarrow.Table":
    """Return one row per frame from the length and the progress of each episode; null where progress is None or nan."""
    import pyarrow as pa

    lengths = [length for length, _ in episodes]
    values: list[float | None] = []
    for length, progress in episodes:
        values += [None] * length if progress is None else progress
    columns = {
        "index": pa.array(np.arange(sum(lengths))),
        "episode_index": pa.array(np.repeat(np.arange(len(lengths)), lengths)),
        "frame_index": pa.array(np.concatenate([np.arange(length) for length in lengths])),
        **dict.fromkeys(_PROGRESS_COLUMNS[3:], pa.array(values, pa.float32(), from_pandas=True)),
    }
    return pa.table(columns).replace_schema_metadata({_MODEL: model.encode()})


def read_progress(folder: Path) -> dict[int, tuple[float, ...]]:
    """Return the true progress of episodes from the file that rewardlab adds; empty if there is none."""
    if not (folder / PROGRESS_FILE).is_file():
        return {}
    table = read_table(folder, folder / PROGRESS_FILE, _PROGRESS_COLUMNS)
    missing = [name for name in _PROGRESS_COLUMNS if name not in table.column_names]
    if missing or (table.schema.metadata or {}).get(_MODEL) != _TRUTH:
        columns = ", ".join(_PROGRESS_COLUMNS)
        raise DataError(f"{PROGRESS_FILE}: expected ground truth in the columns {columns}; remove the file")
    episodes, values = (table[name].to_numpy() for name in ("episode_index", "progress_dense"))
    if np.any(np.diff(episodes) < 0):
        raise DataError(f"{PROGRESS_FILE}: the rows are not in the order of their episodes; copy the dataset again")
    starts = np.flatnonzero(np.diff(episodes, prepend=-1))
    parts = zip(episodes[starts].tolist(), np.split(values, starts[1:]), strict=True)
    found = {}
    for index, part in parts:
        if not np.isnan(part).any():
            if part.min() < 0 or part.max() > 1:
                raise DataError(f"{PROGRESS_FILE}: progress must be from 0 to 1, got {part.min()} to {part.max()}")
            found[index] = tuple(part.astype(np.float64).tolist())
    return found


# The lists of episodes and of tasks: how long each episode is, and which files hold it.

_V2_EPISODES = Path("meta") / "episodes.jsonl"
_V2_TASKS = Path("meta") / "tasks.jsonl"
_V3_EPISODES = Path("meta") / "episodes"
_V3_TASKS = Path("meta") / "tasks.parquet"
_V3_FILE_COLUMNS = ("chunk_index", "file_index")  # columns that identify a file

PathValues = Mapping[str, int | str]  # values for the fields of a path template


@dataclass(frozen=True)
class VideoLocation:
    """The video of one camera, and the second at which the episode starts in it."""

    values: PathValues
    start: float = 0.0


@dataclass(frozen=True)
class EpisodeEntry:
    """One episode, listed in the file `table`; `videos` has the cameras stored as videos, `label` our ground truth."""

    index: int
    length: int
    table: Path
    data: PathValues
    videos: Mapping[str, VideoLocation] = field(default_factory=dict)
    label: Label | None = None


def _v2_entries(info: DatasetInfo) -> Iterator[EpisodeEntry]:
    keys = [key for key, stored in info.cameras.items() if stored == "video"]
    for row in _json_rows(info.folder, _V2_EPISODES):
        index, length = (_whole_number(_V2_EPISODES, row, key) for key in ("episode_index", "length"))
        values: PathValues = {"episode_chunk": index // info.chunk_size, "episode_index": index}
        videos = {key: VideoLocation({**values, "video_key": key}) for key in keys}
        yield EpisodeEntry(index, _length(_V2_EPISODES, length), _V2_EPISODES, values, videos)


def _v3_entries(info: DatasetInfo) -> Iterator[EpisodeEntry]:
    keys = [key for key, stored in info.cameras.items() if stored == "video"]
    plain = ["episode_index", "length", *(f"data/{part}" for part in _V3_FILE_COLUMNS)]
    names = [*plain, *(f"videos/{key}/{part}" for key in keys for part in (*_V3_FILE_COLUMNS, "from_timestamp"))]
    for path in sorted((info.folder / _V3_EPISODES).glob("chunk-*/file-*.parquet")):
        table, place = read_table(info.folder, path, [*names, LEVEL, SUCCESS, *FAILURE]), path.relative_to(info.folder)
        missing = [name for name in names if name not in table.column_names]
        if missing:
            raise DataError(f"{place}: the column {missing[0]!r} is missing; copy the dataset again")
        columns = [column_values(table[name]) for name in table.column_names]
        for cells in zip(*columns, strict=True):
            yield _v3_entry(place, dict(zip(table.column_names, cells, strict=True)), keys)


def _v3_entry(place: Path, row: Mapping[str, object], keys: list[str]) -> EpisodeEntry:
    index, length = _whole_number(place, row, "episode_index"), _length(place, _whole_number(place, row, "length"))
    data = {part: _whole_number(place, row, f"data/{part}") for part in _V3_FILE_COLUMNS}
    videos = {}
    for key in keys:
        values = {part: _whole_number(place, row, f"videos/{key}/{part}") for part in _V3_FILE_COLUMNS}
        start = row[f"videos/{key}/from_timestamp"]
        if not isinstance(start, int | float) or not 0 <= start < 1e9:
            raise DataError(f"{place}: videos/{key}/from_timestamp must be 0 or more seconds, got {shown(start)}")
        videos[key] = VideoLocation({**values, "video_key": key}, float(start))
    if LEVEL not in row and SUCCESS not in row:
        return EpisodeEntry(index, length, place, data, videos)
    level, success = row.get(LEVEL), row.get(SUCCESS)
    if (level is not None and level not in LEVELS) or not isinstance(success, bool | None):
        raise DataError(f"{place}: {LEVEL} and {SUCCESS} must be 1 to 5 and true or false, got {level} and {success}")
    failed = {key: row.get(column) for column, key in FAILURE.items()}
    failure = failure_of(str(place), failed, length, succeeded=bool(success))
    label = Label(int(level) if isinstance(level, int) else None, success, failure=failure)
    return EpisodeEntry(index, length, place, data, videos, label)


def read_tasks(info: DatasetInfo) -> dict[int, str]:
    """Return the instruction of every task index."""
    if not info.is_v3:
        rows = _json_rows(info.folder, _V2_TASKS)
        return {_whole_number(_V2_TASKS, row, "task_index"): str(row.get("task") or "") for row in rows}
    return _texts_by_index(info, _V3_TASKS, "task")


def _texts_by_index(info: DatasetInfo, name: Path, what: str) -> dict[int, str]:
    """Return the texts of a table of tasks or subtasks by their index; pandas may have stored them as its own index."""
    table = read_table(info.folder, info.folder / name)
    texts = [column for column in table.column_names if column != f"{what}_index"]
    if f"{what}_index" not in table.column_names or not texts:
        raise DataError(f"{name}: expected the columns {what}_index and {what}, got {shown(table.column_names)}")
    text = what if what in texts else texts[0]
    pairs = zip(column_values(table[f"{what}_index"]), column_values(table[text]), strict=True)
    return {index: said for index, said in pairs if isinstance(index, int) and isinstance(said, str)}


def _json_rows(folder: Path, name: Path) -> Iterator[Mapping[str, object]]:
    try:
        for number, text in text_lines(folder, folder / name):
            try:
                yield parse_row(text)
            except DataError as error:
                raise DataError(f"{name}, line {number}: {error}") from None
    except FileNotFoundError:
        raise DataError(f"{name}: the file does not exist; copy the dataset again") from None


def _whole_number(place: Path, row: Mapping[str, object], key: str) -> int:
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**40:
        raise DataError(f"{place}: {key} must be a whole number of 0 or more, got {shown(value)}")
    return value


def _length(place: Path, length: int) -> int:
    if not 0 < length <= CLIP_FRAMES.value:
        raise DataError(f"{place}: an episode of {length:,} frames; at least 1 is expected, {CLIP_FRAMES.describe()}")
    return length


# The rows of an episode in a data file: when its frames were taken, its task, and whether it succeeded.

_ROW_COLUMNS = ("timestamp", "task_index", "episode_index", "next.success", "next.reward", "subtask_index")
_TICKS_PER_SECOND = 1_000_000
_MAX_SECONDS = 1e6


@dataclass(frozen=True, eq=False)
class EpisodeRows:
    """The content of the rows of an episode; `path` is their file, `first` the index of the first row in it."""

    path: Path
    first: int
    fps: float
    positions: Positions
    task_index: int
    label: Label
    subtasks: tuple[int, ...] = ()  # the index of the subtask at each frame, below 0 for none; empty without subtasks


def read_rows(path: Path, table: "pyarrow.Table", entry: EpisodeEntry, stated_fps: float) -> EpisodeRows:
    """Return the rows of an episode; DataError if their number is not its length."""
    for name in ("timestamp", "task_index", "episode_index"):
        if name not in table.column_names:
            raise DataError(f"{path}: the column {name!r} is missing; copy the dataset again")
    episodes = _numbers(path, table, "episode_index").astype(np.int64)
    if np.any(np.diff(episodes) < 0):
        raise DataError(f"{path}: the rows are not in the order of their episodes; copy the dataset again")
    first, end = np.searchsorted(episodes, [entry.index, entry.index + 1]).tolist()
    if end - first != entry.length:
        raise DataError(f"{path}: {end - first} rows, but the list of episodes gives {entry.length}")
    rows = table.slice(first, end - first)
    times = _numbers(path, rows, "timestamp")
    if not np.isfinite(times).all() or np.abs(times).max() > _MAX_SECONDS or np.any(np.diff(times) < 0):
        raise DataError(f"{path}: timestamps must be increasing seconds; copy the dataset again")
    stamps = np.round(times * _TICKS_PER_SECOND).astype(np.int64).tolist()
    fps, positions = rate_and_positions(stamps, Fraction(1, _TICKS_PER_SECOND), stated_fps)
    task = int(_numbers(path, rows, "task_index")[0])
    success: bool | None = None
    if "next.success" in rows.column_names:
        success = bool(_numbers(path, rows, "next.success")[-1])
    elif "next.reward" in rows.column_names:
        success = success_of_rewards(_numbers(path, rows, "next.reward").tolist())
    subtasks: tuple[int, ...] = ()
    if "subtask_index" in rows.column_names:
        given = (_first_of(value) for value in column_values(rows["subtask_index"]))
        subtasks = tuple(value if isinstance(value, int) else -1 for value in given)
    return EpisodeRows(path, first, fps, positions, task, label_of_success(success), subtasks)


def _first_of(value: object) -> object:
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


def _numbers(path: Path, rows: "pyarrow.Table", name: str) -> "np.typing.NDArray[np.float64]":
    """Return a column of numbers; LeRobot also writes them as lists of one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = rows[name].combine_chunks()
    if pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        column = pc.list_flatten(column)
    if column.null_count or len(column) != rows.num_rows:
        raise DataError(f"{path}: the column {name!r} must have one number per row; copy the dataset again")
    try:
        return np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{path}: the column {name!r} must hold numbers, got {column.type}") from None


# Subtasks: `meta/subtasks.parquet` has their texts, and `subtask_index` says which one each frame shows.


def read_subtasks(info: DatasetInfo) -> dict[int, str]:
    """Return the instruction of every subtask index; empty where the dataset has no subtasks."""
    return _texts_by_index(info, SUBTASKS, "subtask") if (info.folder / SUBTASKS).is_file() else {}


def stages_of_subtasks(subtasks: Sequence[int], texts: Mapping[int, str], success: bool | None) -> tuple[Stage, ...]:
    """Return one stage per stretch of frames of one subtask; it is done where the next stretch begins.

    The last stretch is done in the last frame, unless the episode failed.
    """
    edges = [0, *(np.flatnonzero(np.diff(subtasks)) + 1).tolist(), len(subtasks)]
    found = []
    for start, stop in pairwise(edges):
        text = texts.get(subtasks[start], "")
        if not text.strip():  # no subtask, or one without words
            continue
        done = stop - 1 if stop == len(subtasks) and success is not False else stop
        states = [NOT_BEGUN] * start + [UNDER_WAY] * (done - start) + [DONE] * (len(subtasks) - done)
        found.append(Stage(bounded_text(text, str(SUBTASKS)), tuple(states)))
    return tuple(found)


# Episodes: one for each recording and chosen camera.

_NUMBERED = re.compile(r"episode_(\d{6,})(?:\D|$)")


def episode_number(name: str) -> int | None:
    """Return the number in the name of an episode of a LeRobot dataset; None for other names."""
    found = _NUMBERED.match(name)
    return int(found[1]) if found else None


class _Dataset:
    """One dataset while it is read: files that many episodes share are opened once."""

    def __init__(self, info: DatasetInfo, wanted: str) -> None:
        self.info, self.tasks, self.progress = info, read_tasks(info), read_progress(info.folder)
        self.subtasks = read_subtasks(info)
        self._table = lru_cache(maxsize=2)(lambda path: read_table(info.folder, path, _ROW_COLUMNS))
        self.videos: dict[Path, VideoFile] = {}
        listed, self.entries = _entries_with_data(info)
        if not self.entries:
            raise DataError(f"none of the {listed} listed episodes has its data file here; copy the data files too")
        self.cameras = tuple(info.cameras)
        available = (
            self.cameras if wanted not in ("", ALL_CAMERAS) else _cameras_with_frames(info, self.entries, wanted)
        )
        self.chosen = choose_cameras(available, wanted)

    def episode(self, entry: EpisodeEntry, camera: str) -> Episode:
        """Return an episode from one camera; DataError if its files are invalid."""
        path = self.info.data_file(entry.data)
        rows = read_rows(path, self._table(path), entry, self.info.fps)
        instruction = self.tasks.get(rows.task_index, "")
        if not instruction.strip():
            raise DataError(f"{path}: task_index {rows.task_index} has no text among the tasks of the dataset")
        bounded_text(instruction)
        provenance = Provenance(task=instruction, embodiment=self.info.robot, camera=short_name(camera))
        clip = self._clip(entry, camera, rows)
        progress = self.progress.get(entry.index)
        if progress is not None and len(progress) != entry.length:
            raise DataError(f"{PROGRESS_FILE}: {len(progress)} rows, but the list of episodes gives {entry.length}")
        known = entry.label or rows.label
        stages = stages_of_subtasks(rows.subtasks, self.subtasks, known.success) if rows.subtasks else ()
        label = replace(known, progress=progress, stages=stages)
        name = episode_id(f"episode_{entry.index:06d}", camera, self.cameras)
        columns = LeRobotColumns(self.info.folder, rows.path, rows.first, entry.length, entry.table, entry.index)
        return Episode(name, instruction, clip, label, provenance, columns=columns)

    def _clip(self, entry: EpisodeEntry, camera: str, rows: EpisodeRows) -> Clip:
        every = np.arange(entry.length)
        if self.info.cameras[camera] == "image":
            images = ParquetImages(self.info.folder, rows.path, camera, rows.first, entry.length)
            return Clip(images, every, rows.positions, rows.fps)
        place = entry.videos[camera]
        path = self.info.video_file(place.values)
        video = self.videos.setdefault(path, VideoFile(path))
        if self.info.is_v3:
            segment = segment_of_video(path, video.info, place.start, entry.length)
            return Clip(segment, every, rows.positions, rows.fps, segment.frame_bytes)
        if video.count != entry.length:
            raise DataError(f"{path}: {video.count} frames, but the episode has {entry.length} rows; copy it again")
        return Clip(video, every, rows.positions, rows.fps, video.info.frame_bytes)


def _entries_with_data(info: DatasetInfo) -> tuple[int, list[EpisodeEntry]]:
    """Return how many episodes are listed, and those whose data file exists: a dataset may be copied in part."""
    listed, present, seen = 0, [], set[int]()
    for entry in _v3_entries(info) if info.is_v3 else _v2_entries(info):
        listed += 1
        if entry.index in seen:
            raise DataError(f"episode {entry.index} is listed twice; remove the outdated file of episodes")
        seen.add(entry.index)
        if listed > ROWS.value:
            raise DataError(f"more than {ROWS.value:,} episodes, {ROWS.describe()}")
        if info.data_file(entry.data).exists():
            present.append(entry)
    return listed, present


def count_episodes(info: DatasetInfo) -> int:
    """Return how many episodes the dataset lists, whether their files are here or not."""
    return _entries_with_data(info)[0]


def _cameras_with_frames(info: DatasetInfo, entries: Sequence[EpisodeEntry], wanted: str) -> tuple[str, ...]:
    """Return the cameras that have frames, all cameras if none has.

    If all cameras are wanted, frames in any episode count; otherwise those in the first.
    """
    found = []
    for camera in info.cameras:
        places = (entry.videos.get(camera) for entry in (entries if wanted == ALL_CAMERAS else entries[:1]))
        if any(place is None or info.video_file(place.values).exists() for place in places):
            found.append(camera)
    return tuple(found) or tuple(info.cameras)


def recognises(folder: Path) -> bool:
    """Tell whether the folder has the metadata file of a LeRobot dataset."""
    return (folder / INFO).is_file()


def read_camera(folder: Path, wanted: str) -> Contents:
    """Read every episode from the named camera, from all cameras, or, if `wanted` is empty, from one chosen here."""
    try:
        dataset = _Dataset(read_dataset_info(folder), wanted)
    except DataError as error:
        raise DataError(f"{folder}: {error}") from None
    made = (
        (episode_id(f"episode {entry.index}", camera, dataset.cameras), partial(dataset.episode, entry, camera))
        for entry, camera in product(dataset.entries, dataset.chosen)
    )
    return bounded_contents(made, "episode")


def notes(folder: Path) -> tuple[Problem, ...]:
    """Return notes on the camera that is read, listed episodes that are not in this copy, and an unknown version."""
    try:
        info = read_dataset_info(folder)
        listed, present = _entries_with_data(info)
    except DataError:
        return ()
    found = camera_note(_cameras_with_frames(info, present, ""))
    if len(present) < listed:
        what = f"{listed - len(present)} of {listed} listed episodes have no data file here and are left out"
        found = (*found, Problem("episodes", what))
    if info.is_v3 and info.version != _NEWEST:
        found = (*found, Problem("codebase_version", f"{info.version} is read as {_NEWEST}, the newest version known"))
    return found


LEROBOT = Reader(
    "lerobot",
    "LeRobot v2.0, v2.1 and v3.x: meta/info.json, Parquet rows and videos, or images in the rows; several cameras",
    "meta/info.json of a LeRobot dataset",
    recognises,
    partial(read_camera, wanted=""),
    notes,
    read_camera,
)
