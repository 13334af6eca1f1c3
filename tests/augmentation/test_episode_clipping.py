"""Clips by known progress: no label hangs on a digit that the dataset rounded away."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rewardlab
from rewardlab.core.errors import RunError
from rewardlab.core.settings import Execution
from rewardlab.core.video_encoding import encode
from rewardlab.data import open_dataset
from tests.conftest import write_rows

QUIET = Execution(quiet=True)


def levels_of_clips(folder: Path, progress: list[float]) -> set[int]:
    (folder / "lab").mkdir(parents=True)
    encode(np.zeros((len(progress), 32, 32, 3), np.uint8), folder / "lab/0.mp4", fps=10)
    write_rows(folder, [{"file_name": "lab/0.mp4", "task": "push it", "reward": 5, "progress": progress}])
    rewardlab.data_augment(folder, stage="clip", out=folder / "made", execution=QUIET)
    rows = [json.loads(line) for line in (folder / "made" / "metadata.jsonl").read_text().splitlines()]
    return {row["reward"] for row in rows}


@pytest.mark.parametrize("border", [0.1, 0.0999, 0.1004])
def test_a_frame_at_the_border_of_two_levels_gives_no_clip(tmp_path: Path, border: float) -> None:
    assert levels_of_clips(tmp_path, [0.0, border, 0.5, 0.8, 1.0]) == {3, 4, 5}


def test_frames_beside_the_border_give_clips_of_either_level(tmp_path: Path) -> None:
    assert levels_of_clips(tmp_path, [0.0, 0.098, 0.102, 0.5, 0.8, 1.0]) == {1, 2, 3, 4, 5}


def rollout_of_two_stages(folder: Path) -> list[dict[str, Any]]:
    """Write a success with the frames of its two stages, and return the rows that `clip` makes of it."""
    (folder / "lab").mkdir(parents=True)
    encode(np.zeros((10, 32, 32, 3), np.uint8), folder / "lab/0.mp4", fps=10)
    stages = [{"instruction": "grasp it", "start": 0, "end": 4}, {"instruction": "push it", "start": 5, "end": 9}]
    row = {"file_name": "lab/0.mp4", "task": "push it", "reward": 5, "progress": np.linspace(0, 1, 10).tolist()}
    write_rows(folder, [row | {"stages": stages}])
    rewardlab.data_augment(folder, stage="clip", out=folder / "made", execution=QUIET)
    return [json.loads(line) for line in (folder / "made/metadata.jsonl").read_text().splitlines()]


def test_the_stages_of_a_clip_are_those_that_it_shows(tmp_path: Path) -> None:
    rows = {row["reward"]: row for row in rollout_of_two_stages(tmp_path / "data")}
    assert [(stage["start"], stage["end"]) for stage in rows[2]["stages"]] == [(0, None), (None, None)]
    assert [(stage["start"], stage["end"]) for stage in rows[4]["stages"]] == [(0, 4), (5, None)]
    contents = open_dataset(str(tmp_path / "data/made"))
    assert len(contents.episodes) == len(rows) and not contents.problems


def test_rules_that_see_no_clip_do_not_contradict_its_known_progress(tmp_path: Path) -> None:
    made = rollout_of_two_stages(tmp_path / "data")
    out = tmp_path / "validated"
    rewardlab.data_augment(tmp_path / "data/made", stage="validate", vision="rules", out=out, execution=QUIET)
    kept = [json.loads(line) for line in (out / "metadata.jsonl").read_text().splitlines()]
    assert {row["reward"] for row in kept} == {row["reward"] for row in made} == {2, 3, 4, 5}


def test_a_folder_made_of_other_videos_is_not_continued(tmp_path: Path) -> None:
    rollout_of_two_stages(tmp_path / "data")
    encode(np.full((10, 32, 32, 3), 200, np.uint8), tmp_path / "data/lab/0.mp4", fps=10)
    with pytest.raises(RunError, match="begun with other settings"):
        rewardlab.data_augment(tmp_path / "data", stage="clip", out=tmp_path / "data/made", execution=QUIET)
