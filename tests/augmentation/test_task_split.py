"""Splits share no task and no video, whatever copies are planted, and hold so many episodes of each source."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rewardlab
from rewardlab.augmentation.rows import DatasetRow, read_dataset
from rewardlab.augmentation.split import Leak, find_leaks, sample_sources, split_rows
from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import rng_for
from rewardlab.core.settings import Execution
from rewardlab.core.video_encoding import encode
from rewardlab.data.task_split import deal
from tests.conftest import write_rows

SHARES = {"train": 0.5, "test": 0.5}
COUNT = 8


def scene(name: str, count: int = 16, side: int = 64) -> np.ndarray:
    """A scene of coarse blocks in which one block moves, unlike that of any other name."""
    rng = rng_for(0, "scene", name)
    blocks = rng.integers(0, 255, (1, side // 16, side // 16, 3), dtype=np.uint8)
    frames = np.repeat(blocks.repeat(16, axis=1).repeat(16, axis=2), count, axis=0)
    for index in range(count):
        frames[index, 24:36, 2 + 3 * index : 14 + 3 * index] = (240, 30, 30)
    return frames


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scenes")
    (folder / "lab").mkdir()
    for number in range(COUNT):
        encode(scene(str(number)), folder / f"lab/{number}.mp4", fps=10)
    rows = [{"file_name": f"lab/{n}.mp4", "task": f"push the block number {n}", "reward": 5} for n in range(COUNT)]
    return write_rows(folder, rows)


@pytest.fixture
def parts(data: Path, tmp_path: Path) -> dict[str, list[DatasetRow]]:
    rows = read_dataset(str(data), skip_invalid=False)
    return split_rows(rows, SHARES, 0, tmp_path, map)


def leaks_of(parts: dict[str, list[DatasetRow]], tmp_path: Path) -> list[Leak]:
    return find_leaks(parts, tmp_path, map)


def planted(parts: dict[str, list[DatasetRow]], row: DatasetRow) -> dict[str, list[DatasetRow]]:
    return {**parts, "test": [*parts["test"], row]}


def test_sound_splits_have_no_leak(parts: dict[str, list[DatasetRow]], tmp_path: Path) -> None:
    assert {name: len(rows) for name, rows in parts.items()} == {"train": 4, "test": 4}
    assert leaks_of(parts, tmp_path) == []


def test_a_task_in_two_splits_is_found_whatever_its_case(parts: dict[str, list[DatasetRow]], tmp_path: Path) -> None:
    words = parts["train"][0].original_task
    moved = parts["test"][0].changed({"original_task": f"  {words.upper()}."}, {})
    (leak,) = leaks_of(planted(parts, moved), tmp_path)
    assert (leak.what, leak.splits) == ("task", ("train", "test"))
    assert leak.episodes[0] == parts["train"][0].row["file_name"]


def test_a_video_in_two_splits_is_found_in_made_rows_too(parts: dict[str, list[DatasetRow]], tmp_path: Path) -> None:
    made = parts["test"][0].changed({"reward": 2}, {"stage": "clip"})
    stolen = replace(made, episode=replace(made.episode, clip=parts["train"][1].episode.clip))
    assert [leak.what for leak in leaks_of(planted(parts, stolen), tmp_path)] == ["video"]


def test_a_copy_of_another_size_and_quality_is_found(
    parts: dict[str, list[DatasetRow]], data: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(data, folder)
    number = Path(str(parts["train"][0].row["file_name"])).stem
    large = scene(number).repeat(2, axis=1).repeat(2, axis=2)
    encode(large[:-1], folder / "lab/copy.mp4", fps=10, crf=35)
    with (folder / "metadata.jsonl").open("a") as file:
        file.write(json.dumps({"file_name": "lab/copy.mp4", "task": "do something else", "reward": 5}) + "\n")
    rows = read_dataset(str(folder), skip_invalid=False)
    (leak,) = leaks_of(planted(parts, rows[-1]), tmp_path)
    assert (leak.what, leak.episodes) == ("near video", (f"lab/{number}.mp4", "lab/copy.mp4"))
    again = split_rows(rows, SHARES, 0, tmp_path, map)  # kept on one side, the copy leaks nothing
    sides = [
        name for name, each in again.items() for row in each if Path(row.row["file_name"]).stem in (number, "copy")
    ]
    assert len(set(sides)) == 1 and leaks_of(again, tmp_path) == []


def test_every_split_gets_a_task_where_there_are_enough() -> None:
    shares = {"train": 0.8, "val": 0.1, "test": 0.1}
    six = deal(dict.fromkeys("abcdef", 4), shares)
    assert Counter(six.values()) == {"train": 4, "val": 1, "test": 1}
    assert set(deal({"a": 100, "b": 1, "c": 1}, shares).values()) == set(shares)
    twenty = deal(dict.fromkeys(range(20), 1), shares)
    assert Counter(twenty.values()) == {"train": 16, "val": 2, "test": 2}


def test_misspelt_and_rewritten_descriptions_stay_together(data: Path, tmp_path: Path) -> None:
    rows = read_dataset(str(data), skip_invalid=False)
    for place in range(1, COUNT):
        rows[place] = rows[place].changed({"task": "Push the block."} if place < 5 else {}, {"stage": "rewrite"})
    parts = split_rows(rows, SHARES, 0, tmp_path, map)
    sides = {name for name, each in parts.items() for row in each if row.row["task"] == "Push the block."}
    assert len(sides) == 1
    one_task = [row.changed({"task": "Push the block."}, {}) for row in rows]
    with pytest.raises(PlanError, match="would be empty: 2 splits of 1 tasks"):
        split_rows(one_task, SHARES, 0, tmp_path, map)


def test_so_many_episodes_of_each_source_are_drawn_with_all_that_was_made_of_them(data: Path) -> None:
    rows = read_dataset(str(data), skip_invalid=False)
    every = [*rows, *(row.changed({"reward": 1}, {"stage": "clip"}) for row in rows)]
    some = sample_sources(every, 3, seed=0)
    ids = [row.provenance["source_episode"] for row in some]
    assert len(ids) == 6 and len(set(ids)) == 3
    assert sample_sources(every, 0, seed=0) == every
    assert {row.provenance["source_episode"] for row in sample_sources(rows, 3, seed=0)} == set(ids)


def test_the_split_stage_writes_a_dataset_for_each_split(data: Path, tmp_path: Path) -> None:
    made = rewardlab.data_augment(
        data,
        stage="split",
        out=tmp_path / "out",
        splits=("train=0.5", "test=0.5"),
        execution=Execution(engine="local", quiet=True),
    )
    counts = {name: len(rewardlab.open_dataset(made.folder / name).episodes) for name in SHARES}
    assert counts == {"train": 4, "test": 4}
