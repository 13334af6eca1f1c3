"""A folder of videos, or of folders of frames, with a table that says what is in each: CSV, JSON lines or Parquet."""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from rewardlab.core.episode import Clip, Episode
from rewardlab.core.errors import DataError
from rewardlab.core.limits import ROWS
from rewardlab.data.bounded_contents import bounded_contents
from rewardlab.data.contract import Contents, Problem, Reader
from rewardlab.data.dataset_files import has_video, path_inside
from rewardlab.data.image_folder import image_clip
from rewardlab.data.metadata_notes import notes_of_rows
from rewardlab.data.roboreward_folder import RowEpisodes
from rewardlab.data.roboreward_row import Row
from rewardlab.data.table_rows import TABLE_SUFFIXES, table_rows
from rewardlab.data.video_decoding import VideoFile

_PREFERRED = "metadata"  # the name of the table where there are several


def recognises(path: Path) -> bool:
    """Tell whether the path is a table, or a folder with one: called metadata, or above videos."""
    tables = _tables(path)
    if path.is_file() or any(table.stem == _PREFERRED for table in tables):
        return bool(tables)
    return bool(tables) and has_video(path) and not any(path.glob(f"*/{_PREFERRED}.*"))


def read_table_of_videos(path: Path) -> Contents:
    """Read every row of the table and every video's container; frames are decoded later, when asked for."""
    table = _table(path)
    rows = RowEpisodes(table.parent, _clip)
    numbered = ((f"{table.name}, line {number}", row) for number, row in table_rows(table))
    contents = bounded_contents(((place, partial(_episode, rows, row)) for place, row in numbered), "row")
    if contents.episodes or contents.problems:
        return contents
    return Contents((), (Problem(table.name, "holds no row; write one per video"),))


def notes(path: Path) -> tuple[Problem, ...]:
    """Return what is odd in the rows and stops no run."""
    table = _table(path)
    return notes_of_rows(table.parent, islice(_sound_rows(table), ROWS.value))


def _sound_rows(table: Path) -> Iterator[tuple[int, Row]]:
    return ((number, row) for number, row in table_rows(table) if not isinstance(row, DataError))


def _episode(rows: RowEpisodes, row: Row | DataError) -> Episode:
    if isinstance(row, DataError):
        raise row
    return rows.episode(row)


def _clip(folder: Path, name: str, fps: float | None) -> Clip:
    if (folder / name).is_dir():
        path_inside(folder, f"{name}/frames", "file_name")  # the folder may be a link that leads out
        return image_clip(folder, folder / name, fps)
    return VideoFile(path_inside(folder, name, "file_name")).clip(fps)


def _table(path: Path) -> Path:
    tables = _tables(path)
    preferred = [table for table in tables if table.stem == _PREFERRED]
    if len(tables) > 1 and len(preferred) != 1:
        names = ", ".join(table.name for table in tables)
        raise DataError(f"{path} holds several tables ({names}); name the one to read, such as {tables[0]}")
    return (preferred or tables)[0]


def _tables(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix.lower() in TABLE_SUFFIXES else []
    names = sorted(path.iterdir()) if path.is_dir() else []
    visible = [each for each in names if each.suffix.lower() in TABLE_SUFFIXES and not each.name.startswith(".")]
    return [each for each in visible if each.is_file()]


TABLE = Reader(
    "table",
    "videos or folders of frames with a table, CSV, JSON lines or Parquet: a video and a task per row, maybe a label",
    "a table (.csv, .jsonl, .parquet) of videos",
    recognises,
    read_table_of_videos,
    notes,
)
