"""Small LeRobot datasets, written with pyarrow and the encoder alone, as an independent account of the layout."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rewardlab.core.video_encoding import encode
from tests.conftest import moving_square

FPS = 10
KEYS = ("observation.images.wrist", "observation.images.front")
TASKS = ("open the drawer", "push the red block")


@dataclass(frozen=True)
class Recorded:
    """One episode to write: its number, its frames and which task it is."""

    index: int
    count: int
    task: int
    success: bool = False

    def frames(self, key: str) -> np.ndarray:
        return moving_square(f"{self.index} {key}", count=self.count)


EPISODES = (Recorded(0, 12, 0, True), Recorded(1, 7, 1), Recorded(2, 9, 0))


def write_info(folder: Path, version: str, dtype: str = "video", **changes: object) -> None:
    (folder / "meta").mkdir(parents=True, exist_ok=True)
    v3 = version == "v3.0"
    place = "chunk-{chunk_index:03d}/file-{file_index:03d}" if v3 else "chunk-{episode_chunk:03d}"
    tail = "" if v3 else "/episode_{episode_index:06d}"
    info = {
        "codebase_version": version,
        "robot_type": "so100",
        "fps": FPS,
        "chunks_size": 1000,
        "data_path": f"data/{place}{tail}.parquet",
        "video_path": f"videos/{{video_key}}/{place}.mp4" if v3 else f"videos/{place}/{{video_key}}{tail}.mp4",
        "features": {
            **{key: {"dtype": dtype, "shape": [48, 48, 3]} for key in KEYS},
            "observation.images.depth_map": {"dtype": "video", "info": {"video.is_depth_map": True}},
            "action": {"dtype": "float32", "shape": [2]},
        },
    }
    (folder / "meta" / "info.json").write_text(json.dumps(info | changes))


def rows(episode: Recorded, times: np.ndarray | None = None) -> dict[str, list[Any]]:
    stamps = np.arange(episode.count) / FPS if times is None else times
    last = [False] * (episode.count - 1) + [episode.success]
    return {
        "timestamp": stamps.astype(np.float32).tolist(),
        "frame_index": list(range(episode.count)),
        "episode_index": [episode.index] * episode.count,
        "task_index": [episode.task] * episode.count,
        "action": [[0.0, 1.0]] * episode.count,
        "next.success": last,
    }


def with_images(columns: dict[str, list[Any]], episode: Recorded) -> dict[str, list[Any]]:
    for key in KEYS:
        coded = [cv2.imencode(".png", frame[..., ::-1])[1].tobytes() for frame in episode.frames(key)]
        columns[key] = [{"bytes": data, "path": None} for data in coded]
    return columns


def write_v2(folder: Path, version: str = "v2.1", *, images: bool = False) -> Path:
    """Write one Parquet file and one video per camera for each episode."""
    write_info(folder, version, "image" if images else "video")
    lines = [{"episode_index": e.index, "tasks": [TASKS[e.task]], "length": e.count} for e in EPISODES]
    (folder / "meta" / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    tasks = [{"task_index": index, "task": task} for index, task in enumerate(TASKS)]
    (folder / "meta" / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in tasks))
    for episode in EPISODES:
        name = f"episode_{episode.index:06d}"
        columns = with_images(rows(episode), episode) if images else rows(episode)
        write_rows(folder / "data" / "chunk-000" / f"{name}.parquet", columns)
        for key in () if images else KEYS:
            write_video(folder / "videos" / "chunk-000" / key / f"{name}.mp4", episode.frames(key))
    return folder


def write_v3(folder: Path, *, images: bool = False) -> Path:
    """Write one Parquet file and one video per camera for all episodes."""
    write_info(folder, "v3.0", "image" if images else "video")
    every = [with_images(rows(e), e) if images else rows(e) for e in EPISODES]
    joined = {name: [value for each in every for value in each[name]] for name in every[0]}
    write_rows(folder / "data" / "chunk-000" / "file-000.parquet", joined)
    starts = np.cumsum([0, *(e.count for e in EPISODES)])[:-1]
    table: dict[str, list[Any]] = {
        "episode_index": [e.index for e in EPISODES],
        "tasks": [[TASKS[e.task]] for e in EPISODES],
        "length": [e.count for e in EPISODES],
        "data/chunk_index": [0] * len(EPISODES),
        "data/file_index": [0] * len(EPISODES),
    }
    for key in () if images else KEYS:
        table |= {f"videos/{key}/{part}": [0] * len(EPISODES) for part in ("chunk_index", "file_index")}
        table |= {f"videos/{key}/from_timestamp": (starts / FPS).tolist()}
        write_video(
            folder / "videos" / key / "chunk-000" / "file-000.mp4", np.concatenate([e.frames(key) for e in EPISODES])
        )
    write_rows(folder / "meta" / "episodes" / "chunk-000" / "file-000.parquet", table)
    write_rows(folder / "meta" / "tasks.parquet", {"task_index": [0, 1], "__index_level_0__": list(TASKS)})
    return folder


def write_rows(path: Path, columns: dict[str, list[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def write_video(path: Path, frames: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    encode(frames, path, FPS)
