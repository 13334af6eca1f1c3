"""Columns of LeRobot datasets that nothing here reads, such as actions and states, kept when a dataset is written.

Kept are the columns of the rows that `meta/info.json` describes, and every column of the table of episodes. Left out
are those that the writer makes itself: numbers of rows, places in files, statistics and ground truth.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewardlab.core.episode import Indices
from rewardlab.core.records import read_json
from rewardlab.core.storage import write_parquet
from rewardlab.core.trial_table import with_plain_texts
from rewardlab.data.roboreward_rows import parse_row
from rewardlab.data.safe_files import column_values, opened_parquet, read_table, text_lines

if TYPE_CHECKING:
    import pyarrow

INFO = Path("meta") / "info.json"
SUBTASKS = Path("meta") / "subtasks.parquet"
ROW_NUMBERS = ("timestamp", "frame_index", "episode_index", "index", "task_index")  # columns that are made anew
_MADE = {"episode_index", "tasks", "length", "dataset_from_index", "dataset_to_index"}  # of the table of episodes
_MADE_GROUPS = ("data/", "videos/", "meta/", "stats/", "truth/")
_Version = tuple[int, int]  # of a file: when it was changed, and its size


@dataclass(frozen=True)
class LeRobotColumns:
    """The columns of the episode `index`: its rows begin at `first` in the file `rows`; the file `table` lists it.

    Nothing is read before it is asked for.
    """

    folder: Path
    rows: Path
    first: int
    length: int
    table: Path
    index: int

    def features(self) -> dict[str, Any]:
        """Return what each column of the rows holds, as `meta/info.json` says; cameras are no columns."""
        described = _features(self.folder / INFO, _version(self.folder / INFO)).items()
        numbers = {name: it for name, it in described if name not in ROW_NUMBERS and isinstance(it, dict)}
        return {name: it for name, it in numbers.items() if it.get("dtype") not in ("video", "image")}

    def frames(self, indices: Indices) -> "pyarrow.Table":
        """Return the rows of these frames, counted from the first of the episode."""
        table = _rows(self.folder, self.rows, tuple(self.features()), _version(self.rows))
        return table.slice(self.first, self.length).take(indices)

    def episode(self) -> dict[str, Any]:
        """Return what the table of episodes holds of it, as JSON holds it."""
        return _episodes(self.folder, self.folder / self.table, _version(self.folder / self.table)).get(self.index, {})

    def copy_texts(self, folder: Path) -> None:
        """Copy what the numbers in the columns stand for: the texts of subtasks."""
        if (self.folder / SUBTASKS).is_file() and "subtask_index" in self.features():
            (folder / SUBTASKS).parent.mkdir(parents=True, exist_ok=True)
            write_parquet(with_plain_texts(read_table(self.folder, self.folder / SUBTASKS)), folder / SUBTASKS)


def _version(path: Path) -> _Version:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=2)
def _features(path: Path, _: _Version) -> Mapping[str, Any]:
    described: Mapping[str, Any] = read_json(path)["features"]
    return described


@lru_cache(maxsize=2)
def _rows(folder: Path, path: Path, names: tuple[str, ...], _: _Version) -> "pyarrow.Table":
    return with_plain_texts(read_table(folder, path, names)).replace_schema_metadata(None)


@lru_cache(maxsize=2)
def _episodes(folder: Path, path: Path, _: _Version) -> Mapping[int, dict[str, Any]]:
    """Return the columns that are kept of every episode in a file that lists episodes."""
    if path.suffix == ".jsonl":
        rows = [dict(parse_row(text)) for _, text in text_lines(folder, path)]
    else:
        with opened_parquet(folder, path) as file:
            names = ["episode_index", *filter(_is_kept, file.schema_arrow.names)]
        table = read_table(folder, path, names)
        columns = {name: list(column_values(table[name])) for name in table.column_names}
        rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    return {
        index: {name: _plain(value) for name, value in row.items() if _is_kept(name)}
        for row in rows
        if isinstance(index := row.get("episode_index"), int)
    }


def _is_kept(name: str) -> bool:
    return name not in _MADE and not name.startswith(_MADE_GROUPS)


def _plain(value: object) -> Any:
    """Return a value as JSON holds it."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | None) else str(value)
