"""LeRobot v3.0 written: videos, tables, statistics.

Columns of the table of episodes that begin with `truth/` are ours; LeRobot leaves them alone. Of a LeRobot dataset,
columns that nothing here reads, such as actions, are kept. Statistics are written for each episode too: where LeRobot
removes episodes, it puts those of the others together.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, product
from pathlib import Path
from typing import Any

import numpy as np

from rewardlab.core.episode import Frames
from rewardlab.core.errors import DataError
from rewardlab.core.storage import atomic_write, write_file, write_parquet
from rewardlab.data.contract import Batch, Rollout, Writer, WrittenRow
from rewardlab.data.lerobot import FAILURE, LEVEL, PROGRESS_FILE, SUCCESS, progress_table
from rewardlab.data.lerobot_columns import INFO, ROW_NUMBERS
from rewardlab.data.video import frame_pieces

FILES_PER_CHUNK = 1000
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
_NUMBERS = {name: "float32" if name == "timestamp" else "int64" for name in ROW_NUMBERS}


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


def episode_table(rows: Sequence[WrittenRow], starts: Any, stats: Sequence[WrittenRow]) -> Any:
    """Return where each episode is, in rows of data and in the video of every camera, its statistics and its truth."""
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
        for place, end in enumerate(("from", "to")):
            columns[f"videos/{key}/{end}_timestamp"] = [row["seconds"][place] for row in rows]
    for key, measures in stats[0].items():
        columns |= {f"stats/{key}/{what}": [each[key][what] for each in stats] for what in measures}
    columns[LEVEL] = pa.array([row["level"] for row in rows], pa.int8())
    columns[SUCCESS] = pa.array([row["success"] for row in rows], pa.bool_())
    if any(row["failure_cause"] is not None for row in rows):
        columns |= {column: [row[key] for row in rows] for column, key in FAILURE.items()}
    columns["truth/source_id"] = [row["id"] for row in rows]
    for name in dict.fromkeys(name for row in rows for name in row["values"]):
        columns.setdefault(name, _as_column([row["values"].get(name) for row in rows]))
    return pa.table(columns)


def _as_column(values: Sequence[Any]) -> Any:
    """Return values of one kind as a column, and of several kinds as JSON."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        return pa.array([None if value is None else json.dumps(value) for value in values], pa.string())


def _columns(rows: Sequence[WrittenRow], indices: Mapping[str, int], number: int, start: int) -> dict[str, Any]:
    """Return the columns of numbers of consecutive episodes; the first has this number and starts at this frame."""
    lengths = [row["length"] for row in rows]
    return {
        "timestamp": np.concatenate([np.arange(row["length"]) / row["fps"] for row in rows]),
        "frame_index": np.concatenate([np.arange(length) for length in lengths]),
        "episode_index": np.repeat(np.arange(number, number + len(rows)), lengths),
        "index": np.arange(start, start + sum(lengths)),
        "task_index": np.repeat([indices[row["task"]] for row in rows], lengths),
    }


def _measures(values: Any) -> WrittenRow:
    """Return what LeRobot keeps of a column of numbers, or of lists of them."""
    table = values.reshape(len(values), -1)
    found = {what: getattr(table, what)(axis=0).tolist() for what in ("min", "max", "mean", "std")}
    return {**found, "count": [len(table)]}


def _joint_measures(parts: Sequence[WrittenRow]) -> WrittenRow:
    """Return the measures of a whole column from those of its parts."""
    least, most, mean, std, count = (
        np.array([part[what] for part in parts]) for what in ("min", "max", "mean", "std", "count")
    )
    total = count.sum()
    middle = (mean * count).sum(axis=0) / total
    spread = np.sqrt(((std**2 + (mean - middle) ** 2) * count).sum(axis=0) / total)
    found = {"min": least.min(axis=0), "max": most.max(axis=0), "mean": middle, "std": spread}
    return {**{what: values.tolist() for what, values in found.items()}, "count": [int(total)]}


def _numbers(column: Any) -> Any:
    """Return a column of numbers or of lists of one length as an array; None for others, which have no statistics."""
    try:
        found = np.asarray(column.to_pylist(), np.float64)
    except (TypeError, ValueError):
        return None
    return found if np.isfinite(found).all() and found.size else None


def _pixel_moments(levels: Any) -> list[list[int]]:
    """Return what the statistics of pixels are made of, from how often each channel has each level."""
    every, present = np.arange(256), levels > 0
    ends = present.argmax(axis=1), 255 - present[:, ::-1].argmax(axis=1)
    moments: list[list[int]] = np.stack([*ends, levels.sum(axis=1), levels @ every, levels @ every**2]).tolist()
    return moments


def _pixel_measures(moments: Any, count: int) -> WrittenRow:
    """Return what LeRobot keeps of a camera: by channel, with levels from 0 to 1."""
    least, most, pixels, total, squares = np.moveaxis(moments, 1, 0)
    mean = total.sum(axis=0) / pixels.sum(axis=0)
    variance = np.maximum(squares.sum(axis=0) / pixels.sum(axis=0) - mean**2, 0)
    found = {"min": least.min(axis=0), "max": most.max(axis=0), "mean": mean, "std": np.sqrt(variance)}
    return {**{what: (values / 255).reshape(-1, 1, 1).tolist() for what, values in found.items()}, "count": [count]}


def dataset_info(
    rows: Sequence[WrittenRow], shapes: dict[str, tuple[int, ...]], tasks: list[str], kept: Sequence[str]
) -> WrittenRow:
    """Return what `meta/info.json` holds; `kept` are the columns of the dataset that was read."""
    fps = rows[0]["fps"]
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
            **{name: {"dtype": kind, "shape": [1], "names": None} for name, kind in _NUMBERS.items()},
            **{name: rows[0]["features"][name] for name in kept},
        },
    }


def _video_feature(shape: tuple[int, ...], fps: float) -> WrittenRow:
    height, width, channels = shape
    about = {"video.height": height, "video.width": width, "video.channels": channels, "video.fps": fps}
    coded = {"video.codec": "h264", "video.pix_fmt": "yuv420p", "is_depth_map": False, "has_audio": False}
    return {"dtype": "video", "shape": list(shape), "names": ["height", "width", "channels"], "info": about | coded}


_EPISODES = Path("meta") / "episodes" / "chunk-000" / "file-000.parquet"


def write_batch(folder: Path, batch: Batch) -> list[WrittenRow]:
    """Write the video of every camera; the rows of data are written at the end, when all tasks are known."""
    place = {"chunk_index": batch.number // FILES_PER_CHUNK, "file_index": batch.number % FILES_PER_CHUNK}
    keys = [f"observation.images.{camera}" for camera in batch.rollouts[0].cameras]
    made = {
        key: _write_video(folder / VIDEO_PATH.format(video_key=key, **place), batch, view)
        for view, key in enumerate(keys)
    }
    shapes = {key: shape for key, (shape, _) in made.items()}
    features = _write_columns(folder / DATA_PATH.format(**place), batch)
    starts = np.cumsum([0, *(len(rollout.first.clip) for rollout in batch.rollouts)])[:-1].tolist()
    return [
        _row(rollout, place, shapes, start)
        | {"pixels": {key: moments[number] for key, (_, moments) in made.items()}, "features": features}
        for number, (rollout, start) in enumerate(zip(batch.rollouts, starts, strict=True))
    ]


def _write_columns(path: Path, batch: Batch) -> WrittenRow:
    """Write the columns that the dataset holds beside those made here, and return their features by name.

    They wait in the place of the data file, to which `finish` adds the others.
    """
    import pyarrow as pa

    kept = [rollout.first.columns for rollout in batch.rollouts]
    known = [columns for columns in kept if columns is not None]
    if not known or len(known) < len(kept):
        return {}
    orders = [rollout.first.clip.order for rollout in batch.rollouts]
    tables = [columns.frames(order) for columns, order in zip(known, orders, strict=True)]
    names = [name for name in known[0].features() if all(name in table.column_names for table in tables)]
    if names:
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = pa.concat_tables([table.select(names) for table in tables], promote_options="permissive")
        write_parquet(whole, path)
        known[0].copy_texts(path.parents[2])
    return {name: known[0].features()[name] for name in names}


def finish(folder: Path, rows: Sequence[WrittenRow]) -> None:
    """Write the data files, the tables of episodes and tasks, the progress, the statistics and, last, the info."""
    shapes = {key: tuple(shape) for row in rows for key, shape in row["shapes"].items()}
    for row in rows:
        if {key: tuple(shape) for key, shape in row["shapes"].items()} != shapes:
            raise DataError(f"{row['id']}: frames of another size than the others; LeRobot has one per camera")
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    indices = {task: index for index, task in enumerate(tasks)}
    starts = np.cumsum([0, *(row["length"] for row in rows)])
    kept = [name for name in rows[0]["features"] if all(name in row["features"] for row in rows)]
    stats: list[WrittenRow] = []
    for (chunk, file), members in groupby(enumerate(rows), key=lambda pair: pair[1]["file"]):
        numbers, together = zip(*members, strict=True)
        path = folder / DATA_PATH.format(chunk_index=chunk, file_index=file)
        columns = _columns(together, indices, numbers[0], int(starts[numbers[0]]))
        stats += _write_rows(path, columns, kept, [row["length"] for row in together])
    measured = [name for name in stats[0] if all(name in each for each in stats)]
    stats = [
        {key: _pixel_measures(np.array([row["pixels"][key]]), row["length"]) for key in shapes}
        | {name: measures[name] for name in measured}
        for row, measures in zip(rows, stats, strict=True)
    ]
    (folder / _EPISODES).parent.mkdir(parents=True, exist_ok=True)
    write_parquet(episode_table(rows, starts, stats), folder / _EPISODES)
    write_parquet(task_table(tasks), folder / "meta" / "tasks.parquet")
    if any(row["progress"] is not None for row in rows):
        write_parquet(progress_table([(row["length"], row["progress"]) for row in rows]), folder / PROGRESS_FILE)
    whole = {key: _pixel_measures(np.array([row["pixels"][key] for row in rows]), int(starts[-1])) for key in shapes}
    whole |= {name: _joint_measures([each[name] for each in stats]) for name in measured}
    _write_json(folder / "meta" / "stats.json", whole)
    _write_json(folder / INFO, dataset_info(rows, shapes, tasks, kept))


def _write_rows(path: Path, columns: dict[str, Any], kept: Sequence[str], lengths: Sequence[int]) -> list[WrittenRow]:
    """Write a data file, and return the statistics of its columns for each of its episodes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({name: column.astype(_NUMBERS[name]) for name, column in columns.items()})
    for name in kept:
        table = table.append_column(name, pq.read_table(path, columns=[name])[name])
    write_parquet(table, path)
    arrays = columns | {name: found for name in kept if (found := _numbers(table[name])) is not None}
    ends = np.cumsum(lengths)[:-1]
    parts = {name: np.split(array, ends) for name, array in arrays.items()}
    return [{name: _measures(parts[name][number]) for name in parts} for number in range(len(lengths))]


def _write_video(path: Path, batch: Batch, view: int) -> tuple[tuple[int, int, int], list[list[list[int]]]]:
    """Write what one camera saw of all rollouts; return height, width and channels, and the moments of each rollout."""
    from rewardlab.core.video_encoding import encode_pieces  # here: PyAV is slow to load

    clips = [rollout.views[view].clip for rollout in batch.rollouts]
    shape = clips[0].source.read(clips[0].order[:1]).shape[1:]
    path.parent.mkdir(parents=True, exist_ok=True)
    starts = set(np.cumsum([0, *(len(clip) for clip in clips)]).tolist())
    fps = clips[0].fps
    times = None if fps == round(fps) else np.arange(sum(map(len, clips))) / fps

    levels = np.zeros((len(clips), shape[-1], 256), np.int64)

    def pieces() -> Iterator[Frames]:
        for number, piece in ((number, piece) for number, clip in enumerate(clips) for piece in frame_pieces(clip)):
            if piece.shape[1:] != shape:
                sizes = [f"{width}x{height}" for height, width in (piece.shape[1:3], shape[:2])]
                raise DataError(
                    f"{batch.rollouts[number].name}: frames of {sizes[0]}, those of {batch.rollouts[0].name} are "
                    f"{sizes[1]}; LeRobot has one size per camera, so convert the clips of each size apart"
                )
            for frame, channel in product(piece, range(shape[-1])):
                levels[number, channel] += np.bincount(frame[..., channel].ravel(), minlength=256)
            yield piece

    with atomic_write(path) as partial:
        encode_pieces(pieces(), partial, fps, times=times, key_frames=starts)
    height, width, channels = shape
    return (height + height % 2, width + width % 2, channels), list(map(_pixel_moments, levels))


def _row(rollout: Rollout, place: dict[str, int], shapes: dict[str, tuple[int, int, int]], start: int) -> WrittenRow:
    episode = rollout.first
    length = len(episode.clip)
    return {
        "id": episode.id,
        "task": episode.instruction,
        "robot": episode.provenance.embodiment,
        "fps": episode.clip.fps,
        "length": length,
        "file": [place["chunk_index"], place["file_index"]],
        "seconds": [start / episode.clip.fps, (start + length) / episode.clip.fps],
        "shapes": {key: list(shape) for key, shape in shapes.items()},
        "level": episode.label.level,
        "success": episode.label.success,
        "progress": episode.label.progress,
        "failure_cause": episode.label.failure and episode.label.failure.cause,
        "failure_frame": episode.label.failure and episode.label.failure.frame,
        "values": episode.columns.episode() if episode.columns is not None else {},
    }


def _write_json(path: Path, content: WrittenRow) -> None:
    write_file(path, json.dumps(content, indent=4, allow_nan=False) + "\n")


LEROBOT = Writer(
    "lerobot",
    "LeRobot v3.0, several episodes per video, with truth_progress.parquet where progress is known",
    write_batch,
    finish,
    batch_frames=5_000,
    joins_cameras=True,
    one_rate=True,
)
