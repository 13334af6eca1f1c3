"""Why and when a rollout failed, as rows say it: read, checked, converted, and carried through other frames."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rewardlab
from rewardlab.core.episode import FailureEvent, Label, episode_from_frames, rearrange, show_only, with_frames
from rewardlab.core.errors import DataError
from rewardlab.core.video_encoding import encode
from rewardlab.data import open_dataset
from rewardlab.data.roboreward_rows import label_of
from tests.conftest import moving_square, write_rows
from tests.worlds.conftest import rows_of

ROW = {"file_name": "arm/0.mp4", "task": "lift the cup", "reward": 2}
DROPPED = {"failure_cause": "dropped", "failure_frame": 3}


def dataset(folder: Path, *rows: dict[str, object]) -> Path:
    write_rows(folder, list(rows))
    (folder / "arm").mkdir()
    for number in range(len(rows)):
        encode(moving_square(f"clip {number}", count=6), folder / f"arm/{number}.mp4", fps=10)
    return folder


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"failure_cause": "gravity"}, "must be one of missed_grasp, wrong_object"),
        ({"failure_cause": ["dropped"]}, "must be one of"),
        ({"failure_frame": 2}, "failure_cause must be one of"),
        (DROPPED | {"failure_frame": 6}, "a frame from 0 to 5, got 6"),
        (DROPPED | {"failure_frame": 1.5}, "a frame from 0 to 5"),
        (DROPPED | {"failure_frame": True}, "a frame from 0 to 5"),
        (DROPPED | {"reward": 5}, "the row is a success"),
    ],
)
def test_a_cause_that_makes_no_sense_is_a_problem_of_its_row(changes: dict[str, object], words: str) -> None:
    with pytest.raises(DataError, match=words):
        label_of("arm/0.mp4", ROW | changes, 6)


@pytest.mark.parametrize("layout", ["roboreward", "lerobot"])
def test_conversion_keeps_cause_and_frame(tmp_path: Path, layout: str) -> None:
    second = ROW | {"file_name": "arm/1.mp4", "failure_cause": "collision"}
    third = ROW | {"file_name": "arm/2.mp4", "reward": 5}
    data = dataset(tmp_path / "data", ROW | DROPPED, second, third)
    rewardlab.data_convert(str(data), tmp_path / "out", to=layout)
    found = [episode.label.failure for episode in open_dataset(str(tmp_path / "out")).episodes]
    assert found == [FailureEvent("dropped", 3), FailureEvent("collision"), None]
    if layout == "roboreward":
        assert [row.get("failure_frame") for row in rows_of(tmp_path / "out")] == [3, None, None]


def test_a_table_spells_the_frame_as_a_number(tmp_path: Path) -> None:
    data = dataset(tmp_path / "data", ROW)
    (data / "metadata.jsonl").unlink()
    (data / "metadata.csv").write_text("video,task,reward,failure_cause,failure_frame\narm/0.mp4,lift,2,dropped,3\n")
    (episode,) = open_dataset(str(data)).episodes
    assert episode.label.failure == FailureEvent("dropped", 3)


def test_the_frame_follows_the_frames_that_are_shown() -> None:
    frames = np.arange(10, dtype=np.uint8)[:, None, None, None].repeat(8, 1).repeat(8, 2).repeat(3, 3)
    label = Label(2, False, failure=FailureEvent("dropped", 4))
    episode = episode_from_frames(frames, "lift the cup", label=label)
    sampled = show_only(episode, np.array([0, 3, 6, 9]))
    assert sampled.label.failure == FailureEvent("dropped", 2)  # the first frame shown that is not before it
    assert with_frames(sampled, 255 - sampled.frames).label.failure == FailureEvent("dropped", 2)
    assert rearrange(episode, np.arange(4)).label.failure is None  # it ends before
    assert rearrange(episode, np.arange(10)[::-1]).label.failure == FailureEvent("dropped")  # at no one time
    unlabelled = replace(episode, label=Label(2, False))
    assert unlabelled.hash != episode.hash  # another truth is another trial
