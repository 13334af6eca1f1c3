"""Columns of LeRobot datasets that rewardlab does not read: a conversion to LeRobot keeps them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

import rewardlab
from rewardlab.core.episode import strip_labels
from rewardlab.data import open_dataset
from rewardlab.data.contract import Batch
from rewardlab.data.convert import grouped_rollouts
from rewardlab.data.lerobot_writer import LEROBOT
from tests.data.lerobot_writer import EPISODES, write_rows, write_v2, write_v3

FRAMES = sum(episode.count for episode in EPISODES)
MORE = {  # features that this and later versions of LeRobot have, or that a stranger added
    "action": {"dtype": "float32", "shape": [2], "names": ["x", "y"]},
    "observation.state": {"dtype": "float32", "shape": [3], "names": None},
    "next.success": {"dtype": "bool", "shape": [1], "names": None},
    "language": {"dtype": "language", "shape": [1], "names": None},
    "note": {"dtype": "string", "shape": [1], "names": None},
    "subtask_index": {"dtype": "int64", "shape": [1], "names": None},
}


def with_more_columns(folder: Path, version: str) -> Path:
    """Write a dataset with columns that rewardlab does not read, described and not, of frames and of episodes."""
    (write_v2 if version == "v2.1" else write_v3)(folder)
    info = json.loads((folder / "meta" / "info.json").read_text())
    (folder / "meta" / "info.json").write_text(json.dumps(info | {"features": info["features"] | MORE}))
    start = 0
    for path in sorted((folder / "data").rglob("*.parquet")):
        table = pq.read_table(path)
        here = np.arange(start, start + len(table))
        start += len(table)
        made: dict[str, Any] = {
            "action": pa.array([[n, -n] for n in here], pa.list_(pa.float32(), 2)),
            "observation.state": pa.array([[n, 0.5, 1] for n in here], pa.list_(pa.float32())),
            "language": [[{"role": "user", "content": f"said {n}"}] if n % 2 else None for n in here],
            "note": [f"note {n % 3}" for n in here],
            "subtask_index": [n % 2 for n in here],
            "scratch": list(here),
        }
        kept = table.drop_columns(["action"])
        pq.write_table(pa.table({**dict(zip(kept.column_names, kept.columns, strict=True)), **made}), path)
    write_rows(folder / "meta" / "subtasks.parquet", {"subtask_index": [0, 1], "subtask": ["reach", "lift"]})
    about: list[dict[str, Any]] = [{"operator": "Ann", "grade": 2}, {"operator": None, "grade": 3}, {"grade": 4}]
    if version == "v2.1":
        path = folder / "meta" / "episodes.jsonl"
        rows = [json.loads(line) | more for line, more in zip(path.read_text().splitlines(), about, strict=True)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        path = folder / "meta" / "episodes" / "chunk-000" / "file-000.parquet"
        table = pq.read_table(path).append_column("stats/action/min", pa.array([[0.0, 0.0]] * len(about)))
        for name in ("operator", "grade"):
            table = table.append_column(name, pa.array([each.get(name) for each in about]))
        pq.write_table(table, path)
    return folder


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_a_conversion_keeps_columns_of_frames_and_of_episodes(version: str, tmp_path: Path) -> None:
    source, out = with_more_columns(tmp_path / "source", version), tmp_path / "out"
    rewardlab.data_convert(f"{source}@all", out, to="lerobot")
    before = [row for path in sorted((source / "data").rglob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    after = pq.read_table(out / "data" / "chunk-000" / "file-000.parquet")
    assert [{name: row[name] for name in MORE} for row in before] == after.select(list(MORE)).to_pylist()
    assert after.schema.field("action").type == pa.list_(pa.float32(), 2)
    assert "scratch" not in after.column_names  # no feature describes it: LeRobot could not read the file
    info = json.loads((out / "meta" / "info.json").read_text())
    assert {name: info["features"][name] for name in MORE} == MORE
    episodes = pq.read_table(out / "meta" / "episodes" / "chunk-000" / "file-000.parquet")
    assert episodes["operator"].to_pylist() == ["Ann", None, None] and episodes["grade"].to_pylist() == [2, 3, 4]
    assert pq.read_table(out / "meta" / "subtasks.parquet")["subtask"].to_pylist() == ["reach", "lift"]
    stages = [episode.label.stages for episode in open_dataset(out).episodes]
    assert stages == [episode.label.stages for episode in open_dataset(source).episodes] and all(stages)


def test_statistics_are_those_of_the_columns_for_every_episode_and_for_all(tmp_path: Path) -> None:
    out = tmp_path / "out"
    rewardlab.data_convert(with_more_columns(tmp_path / "source", "v3.0"), out, to="lerobot")
    states = np.array([[n, 0.5, 1] for n in range(FRAMES)])
    whole = json.loads((out / "meta" / "stats.json").read_text())["observation.state"]
    table = pq.read_table(out / "meta" / "episodes" / "chunk-000" / "file-000.parquet").to_pylist()
    starts = np.cumsum([0, *(episode.count for episode in EPISODES)])
    for measures, rows in (
        (whole, states),
        *(
            ({what: row[f"stats/observation.state/{what}"] for what in whole}, states[start:end])
            for row, start, end in zip(table, starts, starts[1:], strict=False)
        ),
    ):
        assert measures["count"] == [len(rows)]
        for what in ("min", "max", "mean", "std"):
            assert_allclose(np.array(measures[what]), getattr(rows, what)(axis=0), atol=1e-9)
    camera = np.array(table[0]["stats/observation.images.front/mean"])
    assert camera.shape == (3, 1, 1) and "stats/note/min" not in table[0]


def test_a_conversion_at_another_rate_keeps_the_rows_of_the_frames_that_it_shows(tmp_path: Path) -> None:
    out = tmp_path / "out"
    rewardlab.data_convert(with_more_columns(tmp_path / "source", "v3.0"), out, to="lerobot", fps=5)
    shown = [episode.clip.order for episode in open_dataset(tmp_path / "source").episodes]
    starts = np.cumsum([0, *map(len, shown)])
    kept = pq.read_table(out / "data" / "chunk-000" / "file-000.parquet")
    first = [row[0] for row in kept["action"].to_pylist()]
    lengths = [len(episode.clip) for episode in open_dataset(out).episodes]
    for part, start, end in zip(np.split(first, np.cumsum(lengths)[:-1]), starts, starts[1:], strict=False):
        assert part[0] == start and part[-1] == end - 1 and set(np.diff(part)[:-1]) == {2}


def test_a_conversion_that_was_stopped_at_the_end_goes_on_with_the_same_columns(tmp_path: Path) -> None:
    source, out = with_more_columns(tmp_path / "source", "v3.0"), tmp_path / "out"
    rollouts = tuple(grouped_rollouts(open_dataset(source).episodes, joins=True))
    rows, path = LEROBOT.write(out, Batch(0, rollouts)), out / "data" / "chunk-000" / "file-000.parquet"
    made = []
    for _ in range(2):  # the second time on the files of the first
        LEROBOT.finish(out, rows)
        made.append(pq.read_table(path))
    assert made[0].equals(made[1]) and set(MORE) <= set(made[0].column_names)


def test_values_of_several_kinds_are_kept_as_json(tmp_path: Path) -> None:
    source, out = with_more_columns(tmp_path / "source", "v2.1"), tmp_path / "out"
    path = source / "meta" / "episodes.jsonl"
    notes: list[object] = ["good", {"by": "Ann", "at": [1, 2.5]}, 7]
    rows = [json.loads(line) | {"notes": each} for line, each in zip(path.read_text().splitlines(), notes, strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    rewardlab.data_convert(source, out, to="lerobot")
    kept = pq.read_table(out / "meta" / "episodes" / "chunk-000" / "file-000.parquet")["notes"].to_pylist()
    assert [json.loads(each) for each in kept] == notes


def test_a_model_sees_none_of_them(tmp_path: Path) -> None:
    episode = open_dataset(with_more_columns(tmp_path, "v3.0")).episodes[0]
    assert episode.columns is not None and "next.success" in episode.columns.features()
    assert strip_labels(episode).columns is None
