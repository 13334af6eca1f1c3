"""LeRobot v3.0: Parquet rows and one video per camera for many episodes, and a Parquet file of their true progress.

Columns of the table of episodes that begin with `truth/` are ours; LeRobot leaves them alone.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rewardlab.core.errors import DataError
from rewardlab.core.run import atomic_write, write_parquet
from rewardlab.data.lerobot.dataset_info import INFO
from rewardlab.data.lerobot.truth_columns import PROGRESS_FILE, progress_table
from rewardlab.data.writers.contract import Batch, Rollout, Row, Writer
from rewardlab.data.writers.lerobot_metadata import (
    DATA_PATH,
    FILES_PER_CHUNK,
    VIDEO_PATH,
    dataset_info,
    episode_table,
    statistics,
    task_table,
)
from rewardlab.data.writers.video_copy import frame_pieces
from rewardlab.h264_encoding import encode_pieces

_EPISODES = Path("meta") / "episodes" / "chunk-000" / "file-000.parquet"


def write_batch(folder: Path, batch: Batch) -> list[Row]:
    """Write the video of every camera; the rows of data are written at the end, when all tasks are known."""
    place = {"chunk_index": batch.number // FILES_PER_CHUNK, "file_index": batch.number % FILES_PER_CHUNK}
    keys = [f"observation.images.{camera}" for camera in batch.rollouts[0].cameras]
    sizes = [_write_video(folder / VIDEO_PATH.format(video_key=key, **place), batch, i) for i, key in enumerate(keys)]
    starts = np.cumsum([0, *(len(rollout.first.clip) for rollout in batch.rollouts)])
    return [_row(rollout, place, dict(zip(keys, sizes)), int(start)) for rollout, start in zip(batch.rollouts, starts)]


def finish(folder: Path, rows: Sequence[Row]) -> None:
    """Write the data files, the tables of episodes and tasks, the progress, the statistics and, last, the info."""
    import pyarrow as pa

    shapes = {key: tuple(shape) for row in rows for key, shape in row["shapes"].items()}
    for row in rows:
        if {key: tuple(shape) for key, shape in row["shapes"].items()} != shapes:
            raise DataError(f"{row['id']}: frames of another size than the others; LeRobot has one per camera")
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    indices = {task: index for index, task in enumerate(tasks)}
    starts = np.cumsum([0, *(row["length"] for row in rows)])
    for place, numbers in _by_file(rows).items():
        path = folder / DATA_PATH.format(chunk_index=place[0], file_index=place[1])
        path.parent.mkdir(parents=True, exist_ok=True)
        write_parquet(pa.concat_tables(_data(rows[n], n, int(starts[n]), indices) for n in numbers), path)
    (folder / _EPISODES).parent.mkdir(parents=True, exist_ok=True)
    write_parquet(episode_table(rows, starts), folder / _EPISODES)
    write_parquet(task_table(tasks), folder / "meta" / "tasks.parquet")
    if any(row["progress"] is not None for row in rows):
        write_parquet(progress_table([(row["length"], row["progress"]) for row in rows]), folder / PROGRESS_FILE)
    _write_json(folder / "meta" / "stats.json", statistics(rows, indices))
    _write_json(folder / INFO, dataset_info(rows, shapes, tasks))


def _write_video(path: Path, batch: Batch, view: int) -> tuple[int, int, int]:
    """Write what one camera saw of all rollouts, and return height, width and channels."""
    clips = [rollout.views[view].clip for rollout in batch.rollouts]
    shape = clips[0].source.read(clips[0].order[:1]).shape[1:]
    path.parent.mkdir(parents=True, exist_ok=True)
    starts = set(np.cumsum([0, *(len(clip) for clip in clips)]).tolist())
    fps = clips[0].fps
    times = None if fps == round(fps) else np.arange(sum(map(len, clips))) / fps
    pieces = (_of_size(piece, shape, path) for clip in clips for piece in frame_pieces(clip))
    with atomic_write(path) as partial:
        encode_pieces(pieces, partial, fps, times=times, key_frames=starts)
    height, width, channels = shape
    return height + height % 2, width + width % 2, channels


def _of_size(piece: Any, shape: tuple[int, ...], path: Path) -> Any:
    if piece.shape[1:] != shape:
        raise DataError(f"{path.name}: frames of {piece.shape[1:]} and {shape}; LeRobot has one size per camera")
    return piece


def _row(rollout: Rollout, place: dict[str, int], shapes: dict[str, tuple[int, int, int]], start: int) -> Row:
    episode = rollout.first
    length = len(episode.clip)
    return {
        "id": episode.id,
        "task": episode.instruction,
        "robot": episode.origin.embodiment,
        "fps": episode.clip.fps,
        "length": length,
        "file": [place["chunk_index"], place["file_index"]],
        "seconds": [start / episode.clip.fps, (start + length) / episode.clip.fps],
        "shapes": {key: list(shape) for key, shape in shapes.items()},
        "level": episode.truth.level,
        "success": episode.truth.success,
        "progress": episode.truth.progress,
    }


def _by_file(rows: Sequence[Row]) -> dict[tuple[int, int], list[int]]:
    found: dict[tuple[int, int], list[int]] = {}
    for number, row in enumerate(rows):
        found.setdefault((row["file"][0], row["file"][1]), []).append(number)
    return found


def _data(row: Row, number: int, start: int, indices: Mapping[str, int]) -> Any:
    """Return the rows of one episode."""
    import pyarrow as pa

    frames = np.arange(row["length"])
    columns = {
        "timestamp": pa.array((frames / row["fps"]).astype(np.float32)),
        "frame_index": pa.array(frames),
        "episode_index": pa.array(np.full(len(frames), number)),
        "index": pa.array(start + frames),
        "task_index": pa.array(np.full(len(frames), indices[row["task"]])),
    }
    return pa.table(columns)


def _write_json(path: Path, content: Row) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial:
        partial.write_text(json.dumps(content, indent=4, allow_nan=False) + "\n", encoding="utf-8")


LEROBOT = Writer(
    "lerobot",
    "LeRobot v3.0, several episodes per video, with truth_progress.parquet where progress is known",
    write_batch,
    finish,
    batch_frames=5_000,
    joins_cameras=True,
    one_rate=True,
)
