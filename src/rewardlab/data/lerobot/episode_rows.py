"""The rows of an episode in a LeRobot data file: when its frames were taken, its task, and whether it succeeded."""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rewardlab.core.episode import Indices, Positions, Truth
from rewardlab.core.errors import DataError
from rewardlab.data.lerobot.dataset_info import DatasetInfo
from rewardlab.data.lerobot.episode_entries import EpisodeEntry
from rewardlab.data.parquet_columns import read_table
from rewardlab.data.presentation_times import rate_and_positions
from rewardlab.data.sparse_reward import success_of_rewards, truth_of_success

if TYPE_CHECKING:
    import pyarrow

_COLUMNS = ("timestamp", "task_index", "episode_index", "next.success", "next.reward")
_TICKS = 1_000_000  # per second
_LONGEST = 1e6  # seconds


@dataclass(frozen=True, eq=False)
class EpisodeRows:
    """What the rows of an episode say; `first` is the first of them in the file, `path` that file."""

    path: Path
    first: int
    fps: float
    positions: Positions
    task_index: int
    truth: Truth


class DataFiles:
    """The data files of one dataset; the last ones are kept, for several episodes may share one."""

    def __init__(self, info: DatasetInfo) -> None:
        self.info = info
        self._table = lru_cache(maxsize=2)(lambda path: read_table(info.folder, path, _COLUMNS))

    def rows(self, entry: EpisodeEntry) -> EpisodeRows:
        """Return the rows of an episode; DataError where there are more or fewer than its length."""
        path = self.info.data_file(entry.data)
        table = self._table(path)
        for name in ("timestamp", "task_index", "episode_index"):
            if name not in table.column_names:
                raise DataError(f"{path}: the column {name!r} is missing; copy the dataset again")
        first, end = _span(path, _numbers(path, table, "episode_index").astype(np.int64), entry.index)
        if end - first != entry.length:
            raise DataError(f"{path}: {end - first} rows, but the list of episodes says {entry.length}")
        return _episode_rows(path, table.slice(first, end - first), first, self.info.fps)


def _span(path: Path, episodes: Indices, index: int) -> tuple[int, int]:
    if np.any(np.diff(episodes) < 0):
        raise DataError(f"{path}: the rows are not in the order of their episodes; copy the dataset again")
    first, end = np.searchsorted(episodes, [index, index + 1])
    return int(first), int(end)


def _episode_rows(path: Path, rows: "pyarrow.Table", first: int, fps: float) -> EpisodeRows:
    times = _numbers(path, rows, "timestamp")
    if not np.isfinite(times).all() or np.abs(times).max() > _LONGEST or np.any(np.diff(times) < 0):
        raise DataError(f"{path}: timestamps must be seconds that rise; copy the dataset again")
    stamps = np.round(times * _TICKS).astype(np.int64).tolist()
    rate, positions = rate_and_positions(stamps, Fraction(1, _TICKS), fps)
    task = int(_numbers(path, rows, "task_index")[0])
    return EpisodeRows(path, first, rate, positions, task, truth_of_success(_success(path, rows)))


def _success(path: Path, rows: "pyarrow.Table") -> bool | None:
    if "next.success" in rows.column_names:
        return bool(_numbers(path, rows, "next.success")[-1])
    if "next.reward" in rows.column_names:
        return success_of_rewards(_numbers(path, rows, "next.reward").tolist())
    return None


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
