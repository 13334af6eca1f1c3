"""What we write into a LeRobot dataset beside its own: true level and success of an episode, progress of every frame.

The progress file has the columns and the metadata of those that reward models of LeRobot write; the name of the model
says that it is the truth. Only this file is read again: progress that a model wrote is no truth.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rewardlab.core.episode import LEVELS, Truth
from rewardlab.core.errors import DataError
from rewardlab.data.parquet_columns import read_table

if TYPE_CHECKING:
    import pyarrow

LEVEL, SUCCESS = "truth/level", "truth/success"  # columns of the table of episodes
PROGRESS_FILE = "truth_progress.parquet"
_MODEL, _TRUTH = b"reward_model_path", b"truth"
_COLUMNS = ("index", "episode_index", "frame_index", "progress_sparse", "progress_dense")

Progress = Sequence[float] | None


def progress_table(episodes: Sequence[tuple[int, Progress]], model: str = "truth") -> "pyarrow.Table":
    """Return one row per frame from the length and the progress of each episode; null where it is none or nan."""
    import pyarrow as pa

    lengths = [length for length, _ in episodes]
    values: list[float | None] = []
    for length, progress in episodes:
        values += [None] * length if progress is None else progress
    columns = {
        "index": pa.array(np.arange(sum(lengths))),
        "episode_index": pa.array(np.repeat(np.arange(len(lengths)), lengths)),
        "frame_index": pa.array(np.concatenate([np.arange(length) for length in lengths])),
        **dict.fromkeys(_COLUMNS[3:], pa.array(values, pa.float32(), from_pandas=True)),
    }
    return pa.table(columns).replace_schema_metadata({_MODEL: model.encode()})


def truth_of_row(place: Path, row: Mapping[str, object]) -> Truth | None:
    """Return what the table of episodes says of the truth; None where it has no column of ours."""
    if LEVEL not in row and SUCCESS not in row:
        return None
    level, success = row.get(LEVEL), row.get(SUCCESS)
    if (level is not None and level not in LEVELS) or not isinstance(success, bool | None):
        raise DataError(f"{place}: {LEVEL} and {SUCCESS} must be 1 to 5 and true or false, got {level} and {success}")
    return Truth(int(level) if isinstance(level, int) else None, success)


def read_progress(folder: Path) -> dict[int, tuple[float, ...]]:
    """Return the true progress of episodes, where a file of ours says it."""
    if not (folder / PROGRESS_FILE).is_file():
        return {}
    table = read_table(folder, folder / PROGRESS_FILE, _COLUMNS)
    missing = [name for name in _COLUMNS if name not in table.column_names]
    if missing or (table.schema.metadata or {}).get(_MODEL) != _TRUTH:
        raise DataError(f"{PROGRESS_FILE}: expected {', '.join(_COLUMNS)} of the truth; remove the file")
    episodes, values = (table[name].to_numpy() for name in ("episode_index", "progress_dense"))
    if np.any(np.diff(episodes) < 0):
        raise DataError(f"{PROGRESS_FILE}: the rows are not in the order of their episodes; copy the dataset again")
    starts = np.flatnonzero(np.diff(episodes, prepend=-1))
    parts = zip(episodes[starts].tolist(), np.split(values, starts[1:]))
    return {index: _checked(part) for index, part in parts if not np.isnan(part).any()}


def _checked(part: "np.typing.NDArray[np.float32]") -> tuple[float, ...]:
    if part.min() < 0 or part.max() > 1:
        raise DataError(f"{PROGRESS_FILE}: progress must be from 0 to 1, got {part.min()} to {part.max()}")
    return tuple(part.astype(np.float64).tolist())
