"""CSV, JSON-lines or Parquet tables of videos."""

import csv
import math
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path

from rewardlab.core.episode import Clip
from rewardlab.core.errors import DataError
from rewardlab.core.limits import ROW_BYTES, ROWS
from rewardlab.core.records import parse_json
from rewardlab.data.contract import Contents, Problem, Reader, bounded_contents
from rewardlab.data.images import image_clip
from rewardlab.data.robometer import ROBOMETER_LABELS, robometer_label
from rewardlab.data.roboreward import RowEpisodes
from rewardlab.data.roboreward_rows import KEYS, OTHER_WORDS, Row, notes_of_rows, parse_bounded_row
from rewardlab.data.safe_files import (
    column_values,
    files_with_suffix,
    has_video,
    path_inside,
    read_table,
    shown,
    text_lines,
)
from rewardlab.data.video import VideoFile

_TRUE, _FALSE = ("true", "yes", "1", "1.0"), ("false", "no", "0", "0.0")

NumberedRow = tuple[int, Row | DataError]  # the line or row, and what it holds or why that cannot be read


def table_rows(path: Path) -> Iterator[NumberedRow]:
    """Yield the rows of a table, one at a time, with the keys of the RoboReward layout."""
    readers = {".csv": _csv_rows, ".tsv": _csv_rows, ".jsonl": _json_rows, ".parquet": _parquet_rows}
    for number, row in readers[path.suffix.lower()](path):
        try:
            yield number, row if isinstance(row, DataError) else _common(row)
        except DataError as error:
            yield number, error


def _csv_rows(path: Path) -> Iterator[NumberedRow]:
    lines = text_lines(path.parent, path)
    _, header = next(lines, (0, ""))
    mark = next((mark for mark in ("\t", ",", ";") if mark in header), ",")
    reader = csv.reader(_whole_lines(path, header, lines), delimiter=mark, strict=True)
    try:
        names = [name.strip() for name in next(reader, [])]
        for cells in reader:
            if len(cells) == len(names):
                yield reader.line_num, dict(zip(names, cells, strict=True))
            else:
                what = f"{len(cells)} cells under {len(names)} names of columns"
                yield reader.line_num, DataError(f"{what}; put texts with commas in quotes")
    except csv.Error as error:
        raise DataError(f"{path.name}, line {reader.line_num}: not CSV that can be used ({error})") from None


def _whole_lines(path: Path, header: str, lines: Iterator[tuple[int, str]]) -> Iterator[str]:
    yield header
    for number, text in lines:
        if len(text) > ROW_BYTES.value:
            raise DataError(f"{path.name}, line {number}: longer than a row may be, {ROW_BYTES.describe()}")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise DataError(f"{path.name}, line {number}: not UTF-8 text; save the file in UTF-8") from None
        yield text


def _json_rows(path: Path) -> Iterator[NumberedRow]:
    for number, text in text_lines(path.parent, path):
        try:
            yield number, parse_bounded_row(text)
        except DataError as error:
            yield number, error


def _parquet_rows(path: Path) -> Iterator[NumberedRow]:
    table = read_table(path.parent, path, (*KEYS, *OTHER_WORDS, *ROBOMETER_LABELS))
    columns = [column_values(table[name]) for name in table.column_names]
    for number, cells in enumerate(zip(*columns, strict=True), start=1):
        yield number, dict(zip(table.column_names, cells, strict=True))


def _common(row: Mapping[str, object]) -> Row:
    """Return the row under the keys that are read, its texts as the values that they spell, without empty cells."""
    row, found = {**row, **robometer_label(row)}, dict[str, tuple[str, object]]()
    for name, cell in row.items():
        key = _key(row, name)
        value = _value(key, cell)
        if value in (None, ""):
            continue
        other, stated = found.setdefault(key, (name, value))
        if stated != value:
            both = f"the columns {other} ({shown(stated)}) and {name} ({shown(value)})"
            raise DataError(f"{both} both mean {key}; call the right one {key}")
    return {key: value for key, (_, value) in found.items()}


def _key(row: Mapping[str, object], key: str) -> str:
    meant = OTHER_WORDS.get(key.lower(), key)
    return key if key in KEYS or meant in row else meant


def _value(key: str, value: object) -> object:
    if isinstance(value, float) and math.isnan(value):
        return None  # how an empty cell comes out of pandas
    if key in ("success", "demonstration") and not isinstance(value, bool):
        text = str(value).strip().lower()
        return True if text in _TRUE else False if text in _FALSE else value
    if isinstance(value, str) and key in ("reward", "fps", "progress", "preference", "failure_frame", "views", "world"):
        try:
            return parse_json(value.strip()) if value.strip() else ""
        except ValueError:
            return value  # it spells no number, list or object
    return value


_PREFERRED = "metadata"  # the name of the table where there are several
_tables = partial(files_with_suffix, suffixes=(".csv", ".tsv", ".jsonl", ".parquet"))


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
    found = rows.opened_ahead((f"{table.name}, line {number}", row) for number, row in table_rows(table))
    made = ((place, row if isinstance(row, DataError) else partial(rows.episode, row)) for place, row in found)
    contents = bounded_contents(made, "row")
    if contents.episodes or contents.problems:
        return contents
    return Contents((), (Problem(table.name, "holds no row; write one per video"),))


def notes(path: Path) -> tuple[Problem, ...]:
    """Return what is odd in the rows and stops no run."""
    table = _table(path)
    sound = ((number, row) for number, row in table_rows(table) if not isinstance(row, DataError))
    return notes_of_rows(table.parent, islice(sound, ROWS.value))


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


TABLE = Reader(
    "table",
    "videos or folders of frames with a table, CSV, JSON lines or Parquet: a video and a task per row, maybe a label",
    "a table (.csv, .jsonl, .parquet) of videos",
    recognises,
    read_table_of_videos,
    notes,
)
