"""Data that people have lying about: videos with a table, folders of frames, one video file."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import av
import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import rewardlab
from rewardlab.core.episode import Label
from rewardlab.core.errors import DataError
from rewardlab.core.video_encoding import encode
from rewardlab.data import choose_split, dataset_notes, open_dataset
from tests.conftest import moving_square, write_rows

ROWS = (
    {"video": "clips/a.mp4", "instruction": "open the drawer, slowly", "label": 5, "success": True},
    {"video": "clips/b.mp4", "instruction": "push the red block", "label": 2, "success": None},
)


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "clips").mkdir(parents=True)
    for name, count in (("a", 9), ("b", 14)):
        encode(moving_square(name, count=count), folder / "clips" / f"{name}.mp4", 10)
    return folder


def write_csv(path: Path, mark: str = ",") -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(ROWS[0]), delimiter=mark)
        writer.writeheader()
        writer.writerows(ROWS)


TABLES: dict[str, Callable[[Path], object]] = {
    "metadata.csv": write_csv,
    "labels.csv": lambda path: write_csv(path, ";"),
    "labels.tsv": lambda path: write_csv(path, "\t"),
    "rows.jsonl": lambda path: path.write_text("".join(json.dumps(row) + "\n" for row in ROWS)),
    "rows.parquet": lambda path: pq.write_table(pa.Table.from_pylist(list(ROWS)), path),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_says_what_is_in_the_videos(name: str, videos: Path) -> None:
    TABLES[name](videos / name)
    for data in (videos, videos / name, f"table:{videos}"):
        contents = open_dataset(str(data))
        assert contents.problems == ()
        assert [(each.id, each.instruction) for each in contents.episodes] == [
            (row["video"], row["instruction"]) for row in ROWS
        ]
        assert [each.label for each in contents.episodes] == [Label(5, True), Label(2, False)]
    for episode in contents.episodes:
        with av.open(str(videos / episode.id)) as container:
            frames = [frame for frame in container.decode(video=0)]
        assert len(episode.clip) == len(frames)
        assert np.abs(episode.times - [frame.time for frame in frames]).max() < 1e-6
        assert_allclose(episode.frames[-1], frames[-1].to_ndarray(format="rgb24"), atol=1)


def test_two_columns_of_one_name_are_refused(videos: Path) -> None:
    columns = {"video": ["clips/a.mp4"], "task": ["open it"], "reward": [5], "other": ["close it"]}
    table = pa.table(columns).rename_columns(["video", "task", "reward", "task"])
    pq.write_table(table, videos / "rows.parquet")
    with pytest.raises(DataError, match="two columns are called 'task'; rename one of them"):
        open_dataset(str(videos / "rows.parquet"))


def test_two_columns_of_one_meaning_must_agree(videos: Path) -> None:
    path, columns = videos / "labels.csv", "video,prompt,label,score"
    path.write_text(f"{columns}\nclips/a.mp4,open it,2,5\nclips/b.mp4,push it,3,3.0\nclips/b.mp4,lift it,,1")
    found = open_dataset(path)
    (problem,) = found.problems
    assert problem.place == "labels.csv, line 2"
    assert problem.what.startswith("the columns label (2) and score (5) both mean reward")
    assert [episode.label.level for episode in found.episodes] == [3, 1]
    path.write_text(f"{columns.replace('score', 'reward')}\nclips/a.mp4,open it,2,5")
    assert [episode.label.level for episode in open_dataset(path).episodes] == [5]  # the key itself goes first


def test_bad_rows_are_told_by_their_line(videos: Path) -> None:
    lines = ["video,task,reward", "clips/a.mp4,open the drawer,9", "clips/c.mp4,open it,1", "clips/b.mp4,open, it,1"]
    (videos / "metadata.csv").write_text("\n".join([*lines, "../x.mp4,go,1", "clips/b.mp4,go,1"]))
    contents = open_dataset(str(videos))
    assert [episode.id for episode in contents.episodes] == ["clips/b.mp4"]
    assert [problem.place for problem in contents.problems] == [f"metadata.csv, line {n}" for n in (2, 3, 4, 5)]
    said = [problem.what for problem in contents.problems]
    assert "reward must be 1, 2, 3, 4 or 5, got 9" in said[0]
    assert "c.mp4: the file does not exist" in said[1]
    assert "4 cells under 3 names of columns" in said[2]
    assert "file_name must stay below the folder" in said[3]


def test_a_table_without_the_columns_says_which(videos: Path) -> None:
    (videos / "rows.csv").write_text("a,b\n1,2\n")
    (problem,) = open_dataset(str(videos)).problems
    assert str(problem) == "rows.csv, line 2: file_name is missing"


def test_several_tables_are_asked_about(videos: Path) -> None:
    write_csv(videos / "a.csv")
    write_csv(videos / "b.csv")
    with pytest.raises(DataError, match=r"holds several tables \(a\.csv, b\.csv\); name the one to read"):
        open_dataset(str(videos))
    assert len(open_dataset(str(videos / "b.csv")).episodes) == 2
    (videos / "a.csv").rename(videos / "metadata.csv")
    assert len(open_dataset(str(videos)).episodes) == 2


def test_what_is_odd_in_a_table_is_noted(videos: Path) -> None:
    (videos / "metadata.csv").write_text("video,task,mood\nclips/a.mp4,open it,glad\n")
    notes = " | ".join(str(note) for note in dataset_notes(str(videos)))
    assert "mood" in notes and "nothing is measured" in notes and "clips/b.mp4" in notes


def test_a_table_beside_datasets_does_not_hide_them(videos: Path) -> None:
    write_rows(videos / "test", [])
    (videos / "about.csv").write_text("name,size\n")
    assert choose_split(str(videos), "test") == str(videos / "test")


def test_one_video_is_a_dataset(videos: Path) -> None:
    path = (videos / "clips" / "a.mp4").rename(videos / "open_the_drawer.mp4")
    (episode,) = open_dataset(str(path)).episodes
    assert (episode.id, episode.instruction, episode.label) == ("open_the_drawer.mp4", "open the drawer", Label())
    assert len(episode.frames) == 9
    assert open_dataset(str(videos / "clips" / "b.mp4")).episodes[0].instruction == ""
    (videos / "clips" / "task.txt").write_text("push the red block\n")
    (episode,) = open_dataset(f"video:{videos / 'clips' / 'b.mp4'}").episodes
    assert episode.instruction == "push the red block"


def test_a_file_that_no_reader_takes_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.txt").touch()
    with pytest.raises(DataError, match=r"x\.txt is a file that no reader takes \(.*\bvideo\b"):
        open_dataset(str(tmp_path / "x.txt"))


def write_frames(folder: Path, frames: np.ndarray, suffix: str = ".png") -> None:
    folder.mkdir(parents=True)
    for number, frame in enumerate(frames):
        cv2.imwrite(str(folder / f"frame_{number}{suffix}"), frame[..., ::-1])


def test_folders_of_frames_are_episodes(tmp_path: Path) -> None:
    written = {
        name: moving_square(name, count=12) for name in ("kitchen/open_the_drawer", "kitchen/0001", "lift_it_up")
    }
    for name, frames in written.items():
        write_frames(tmp_path / name, frames)
    (tmp_path / "kitchen" / "0001" / "task.txt").write_text("close the window")
    contents = open_dataset(str(tmp_path))
    assert contents.problems == ()
    assert {(each.id, each.instruction, each.provenance.subset) for each in contents.episodes} == {
        ("kitchen/open_the_drawer", "open the drawer", "kitchen"),
        ("kitchen/0001", "close the window", "kitchen"),
        ("lift_it_up", "lift it up", ""),
    }
    for episode in contents.episodes:
        assert_array_equal(episode.frames, written[episode.id])  # frame_10 comes after frame_9
        assert_array_equal(episode.times, np.arange(12) / 10)
    assert rewardlab.data_check(tmp_path).problems == ()


def test_one_folder_of_frames_is_an_episode(tmp_path: Path) -> None:
    write_frames(tmp_path / "open_the_drawer", moving_square("x", count=4))
    (episode,) = open_dataset(f"images:{tmp_path / 'open_the_drawer'}").episodes
    assert (episode.id, episode.instruction) == ("open_the_drawer", "open the drawer")


def test_a_row_may_name_a_folder_of_frames(tmp_path: Path) -> None:
    write_frames(tmp_path / "0001", moving_square("x", count=4), ".jpg")
    (tmp_path / "metadata.csv").write_text("file_name,task,success,fps\n0001,open it,no,5\n")
    (episode,) = open_dataset(str(tmp_path)).episodes
    assert (len(episode.frames), episode.clip.fps, episode.label.success) == (4, 5.0, False)


def test_frames_that_cannot_be_used_are_said(tmp_path: Path) -> None:
    write_frames(tmp_path / "open_the_drawer", moving_square("x", count=4))
    cv2.imwrite(str(tmp_path / "open_the_drawer" / "frame_2.png"), np.zeros((20, 30, 3), np.uint8))
    write_frames(tmp_path / "push_the_block", moving_square("y", count=4))
    (tmp_path / "push_the_block" / "frame_1.png").write_bytes(b"GIF89a")
    said = {problem.place: problem.what for problem in rewardlab.data_check(tmp_path).problems}
    assert "image 2 has 30 x 20 pixels, the first 48 x 48" in said["episode open_the_drawer"]
    assert "expected a JPEG or PNG image, got bytes that begin with 47 49 46" in said["episode push_the_block"]


def test_frames_outside_the_folder_are_not_read(tmp_path: Path) -> None:
    write_frames(tmp_path / "data" / "open_the_drawer", moving_square("x", count=3))
    write_frames(tmp_path / "secret", moving_square("y", count=3))
    (tmp_path / "data" / "open_the_drawer" / "frame_9.png").symlink_to(tmp_path / "secret" / "frame_1.png")
    (problem,) = open_dataset(str(tmp_path / "data")).problems
    assert "a link leads out of the dataset's folder" in problem.what


def test_an_image_larger_than_a_frame_may_be_is_not_decoded(tmp_path: Path) -> None:
    write_frames(tmp_path / "open_the_drawer", moving_square("x", count=3))
    path = tmp_path / "open_the_drawer" / "frame_0.png"
    data = bytearray(path.read_bytes())
    data[16:24] = (60_000).to_bytes(4, "big") * 2
    path.write_bytes(data)
    (problem,) = rewardlab.data_check(tmp_path).problems
    assert "an image of 60000 x 60000 pixels, at most" in problem.what
