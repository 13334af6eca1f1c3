"""The list of episodes of a LeRobot dataset: how long each is, and which files hold it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rewardlab.core.episode import Truth
from rewardlab.core.errors import DataError
from rewardlab.core.limits import CLIP_FRAMES
from rewardlab.data.dataset_files import shown, text_lines
from rewardlab.data.lerobot.dataset_info import DatasetInfo
from rewardlab.data.lerobot.truth_columns import LEVEL, SUCCESS, truth_of_row
from rewardlab.data.parquet_columns import column_values, read_table
from rewardlab.data.roboreward_row import parse_row

_V2_EPISODES = Path("meta") / "episodes.jsonl"
_V2_TASKS = Path("meta") / "tasks.jsonl"
_V3_EPISODES = Path("meta") / "episodes"
_V3_TASKS = Path("meta") / "tasks.parquet"

PathValues = Mapping[str, int | str]  # what fills the template of a path


@dataclass(frozen=True)
class VideoPlace:
    """The video of one camera, and the second at which the episode starts in it."""

    values: PathValues
    start: float = 0.0


@dataclass(frozen=True)
class EpisodeEntry:
    """One episode; `videos` has the cameras that are stored as videos, `truth` what we wrote of it, if we did."""

    index: int
    length: int
    data: PathValues
    videos: Mapping[str, VideoPlace] = field(default_factory=dict)
    truth: Truth | None = None


def read_entries(info: DatasetInfo) -> Iterator[EpisodeEntry]:
    """Yield the episodes that the dataset lists, in its order."""
    return _v3_entries(info) if info.is_v3 else _v2_entries(info)


def read_tasks(info: DatasetInfo) -> dict[int, str]:
    """Return the instruction of every task index."""
    if info.is_v3:
        return _v3_tasks(info)
    rows = _json_rows(info.folder, _V2_TASKS)
    return {_whole(_V2_TASKS, row, "task_index"): str(row.get("task") or "") for row in rows}


def _v2_entries(info: DatasetInfo) -> Iterator[EpisodeEntry]:
    keys = [camera.key for camera in info.cameras if camera.stored == "video"]
    for row in _json_rows(info.folder, _V2_EPISODES):
        index, length = (_whole(_V2_EPISODES, row, key) for key in ("episode_index", "length"))
        values: PathValues = {"episode_chunk": index // info.chunk_size, "episode_index": index}
        videos = {key: VideoPlace({**values, "video_key": key}) for key in keys}
        yield EpisodeEntry(index, _length(_V2_EPISODES, length), values, videos)


def _v3_entries(info: DatasetInfo) -> Iterator[EpisodeEntry]:
    keys = [camera.key for camera in info.cameras if camera.stored == "video"]
    plain = ["episode_index", "length", "data/chunk_index", "data/file_index"]
    parts = ("chunk_index", "file_index", "from_timestamp")
    names = [*plain, *(f"videos/{key}/{part}" for key in keys for part in parts)]
    for path in sorted((info.folder / _V3_EPISODES).glob("chunk-*/file-*.parquet")):
        table, place = read_table(info.folder, path, [*names, LEVEL, SUCCESS]), path.relative_to(info.folder)
        missing = [name for name in names if name not in table.column_names]
        if missing:
            raise DataError(f"{place}: the column {missing[0]!r} is missing; copy the dataset again")
        for values in zip(*(column_values(table[name]) for name in table.column_names)):
            yield _v3_entry(place, dict(zip(table.column_names, values)), keys)


def _v3_entry(place: Path, row: Mapping[str, object], keys: list[str]) -> EpisodeEntry:
    values = {part: _whole(place, row, f"data/{part}") for part in ("chunk_index", "file_index")}
    index, length = _whole(place, row, "episode_index"), _length(place, _whole(place, row, "length"))
    videos = {key: _v3_video(place, row, key) for key in keys}
    return EpisodeEntry(index, length, dict(values), videos, truth_of_row(place, row))


def _v3_video(place: Path, row: Mapping[str, object], key: str) -> VideoPlace:
    values = {part: _whole(place, row, f"videos/{key}/{part}") for part in ("chunk_index", "file_index")}
    start = row[f"videos/{key}/from_timestamp"]
    if not isinstance(start, int | float) or not 0 <= start < 1e9:
        raise DataError(f"{place}: videos/{key}/from_timestamp must be a second from 0 on, got {shown(start)}")
    return VideoPlace({**values, "video_key": key}, float(start))


def _v3_tasks(info: DatasetInfo) -> dict[int, str]:
    table = read_table(info.folder, info.folder / _V3_TASKS)
    texts = [name for name in table.column_names if name != "task_index"]
    if "task_index" not in table.column_names or not texts:
        raise DataError(f"{_V3_TASKS}: expected the columns task_index and task, got {shown(table.column_names)}")
    name = "task" if "task" in texts else texts[0]
    indices, names = column_values(table["task_index"]), column_values(table[name])
    return {index: text for index, text in zip(indices, names) if isinstance(index, int) and isinstance(text, str)}


def _json_rows(folder: Path, name: Path) -> Iterator[Mapping[str, object]]:
    try:
        for number, text in text_lines(folder, folder / name):
            try:
                yield parse_row(text)
            except DataError as error:
                raise DataError(f"{name}, line {number}: {error}") from None
    except FileNotFoundError:
        raise DataError(f"{name}: the file does not exist; copy the dataset again") from None


def _whole(place: Path, row: Mapping[str, object], key: str) -> int:
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**40:
        raise DataError(f"{place}: {key} must be a whole number from 0 on, got {shown(value)}")
    return value


def _length(place: Path, length: int) -> int:
    if not 0 < length <= CLIP_FRAMES.value:
        raise DataError(f"{place}: an episode of {length:,} frames; at least 1 is expected, {CLIP_FRAMES.describe()}")
    return length
