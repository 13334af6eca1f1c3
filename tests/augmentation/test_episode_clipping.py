"""Clips by known progress: no label hangs on a digit that the dataset rounded away."""

import json
from pathlib import Path

import numpy as np
import pytest

import rewardlab
from rewardlab.core.settings import Execution
from rewardlab.core.video_encoding import encode
from tests.conftest import write_rows


def levels_of_clips(folder: Path, progress: list[float]) -> set[int]:
    (folder / "lab").mkdir(parents=True)
    encode(np.zeros((len(progress), 32, 32, 3), np.uint8), folder / "lab/0.mp4", fps=10)
    write_rows(folder, [{"file_name": "lab/0.mp4", "task": "push it", "reward": 5, "progress": progress}])
    rewardlab.data_augment(folder, stage="clip", out=folder / "made", execution=Execution(quiet=True))
    rows = [json.loads(line) for line in (folder / "made" / "metadata.jsonl").read_text().splitlines()]
    return {row["reward"] for row in rows}


@pytest.mark.parametrize("border", [0.1, 0.0999, 0.1004])
def test_a_frame_at_the_border_of_two_levels_gives_no_clip(tmp_path: Path, border: float) -> None:
    assert levels_of_clips(tmp_path, [0.0, border, 0.5, 0.8, 1.0]) == {3, 4, 5}


def test_frames_beside_the_border_give_clips_of_either_level(tmp_path: Path) -> None:
    assert levels_of_clips(tmp_path, [0.0, 0.098, 0.102, 0.5, 0.8, 1.0]) == {1, 2, 3, 4, 5}
