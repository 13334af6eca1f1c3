"""What describes a LeRobot v3.0 dataset: its info, the tables of episodes and tasks, and statistics of its numbers."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rewardlab.data.lerobot.truth_columns import LEVEL, SUCCESS
from rewardlab.data.writers.contract import Row

FILES_PER_CHUNK = 1000
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
_ENDS = ((0, "from"), (1, "to"))  # of an episode in its video
_NUMBERS = {"timestamp": "float32", "frame_index": "int64", "episode_index": "int64", "index": "int64"}


def task_table(tasks: list[str]) -> Any:
    """Return the tasks with a note by which pandas takes their texts for the index, as LeRobot expects."""
    import pyarrow as pa

    kinds = {"task_index": ("int64", "int64"), "task": ("unicode", "object")}
    columns = [
        {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": stored, "metadata": None}
        for name, (kind, stored) in kinds.items()
    ]
    about = {"index_columns": ["task"], "column_indexes": [], "columns": columns, "pandas_version": "2.2.0"}
    table = pa.table({"task_index": list(range(len(tasks))), "task": tasks})
    return table.replace_schema_metadata({b"pandas": json.dumps(about).encode()})


def episode_table(rows: Sequence[Row], starts: Any) -> Any:
    """Return where each episode is, in rows of data and in the video of every camera, and what is true of it."""
    import pyarrow as pa

    chunks, files = ([row["file"][part] for row in rows] for part in (0, 1))
    columns: dict[str, Any] = {
        "episode_index": list(range(len(rows))),
        "tasks": [[row["task"]] for row in rows],
        "length": [row["length"] for row in rows],
        "data/chunk_index": chunks,
        "data/file_index": files,
        "dataset_from_index": starts[:-1].tolist(),
        "dataset_to_index": starts[1:].tolist(),
        "meta/episodes/chunk_index": [0] * len(rows),
        "meta/episodes/file_index": [0] * len(rows),
    }
    for key in rows[0]["shapes"]:
        columns |= {f"videos/{key}/chunk_index": chunks, f"videos/{key}/file_index": files}
        columns |= {f"videos/{key}/{end}_timestamp": [row["seconds"][i] for row in rows] for i, end in _ENDS}
    columns[LEVEL] = pa.array([row["level"] for row in rows], pa.int8())
    columns[SUCCESS] = pa.array([row["success"] for row in rows], pa.bool_())
    columns["truth/source_id"] = [row["id"] for row in rows]
    return pa.table(columns)


def statistics(rows: Sequence[Row], indices: Mapping[str, int]) -> Row:
    """Return what LeRobot keeps of columns of numbers; pixels are left to it."""
    seconds = np.concatenate([np.arange(row["length"]) / row["fps"] for row in rows])
    numbers = {
        "timestamp": seconds,
        "frame_index": np.concatenate([np.arange(row["length"]) for row in rows]),
        "episode_index": np.repeat(np.arange(len(rows)), [row["length"] for row in rows]),
        "index": np.arange(len(seconds)),
        "task_index": np.repeat([indices[row["task"]] for row in rows], [row["length"] for row in rows]),
    }
    return {name: _measures(column) for name, column in numbers.items()}


def _measures(column: Any) -> Row:
    found = {"min": column.min(), "max": column.max(), "mean": column.mean(), "std": column.std(), "count": len(column)}
    return {what: [float(value)] for what, value in found.items()}


def dataset_info(rows: Sequence[Row], shapes: dict[str, tuple[int, ...]], tasks: list[str]) -> Row:
    """Return what `meta/info.json` holds."""
    fps = rows[0]["fps"]
    numbers = {**_NUMBERS, "task_index": "int64"}
    return {
        "codebase_version": "v3.0",
        "robot_type": Counter(row["robot"] for row in rows).most_common(1)[0][0] or None,
        "total_episodes": len(rows),
        "total_frames": sum(row["length"] for row in rows),
        "total_tasks": len(tasks),
        "chunks_size": FILES_PER_CHUNK,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "fps": int(fps) if fps == round(fps) else fps,
        "splits": {"train": f"0:{len(rows)}"},
        "data_path": DATA_PATH,
        "video_path": VIDEO_PATH,
        "features": {
            **{key: _video_feature(shape, fps) for key, shape in shapes.items()},
            **{name: {"dtype": kind, "shape": [1], "names": None} for name, kind in numbers.items()},
        },
    }


def _video_feature(shape: tuple[int, ...], fps: float) -> Row:
    height, width, channels = shape
    about = {"video.height": height, "video.width": width, "video.channels": channels, "video.fps": fps}
    coded = {"video.codec": "h264", "video.pix_fmt": "yuv420p", "is_depth_map": False, "has_audio": False}
    return {"dtype": "video", "shape": list(shape), "names": ["height", "width", "channels"], "info": about | coded}
