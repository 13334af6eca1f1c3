"""`check` finds what people do, and `init` begins a dataset that `check` then leads to its end."""

import difflib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from rewardlab.core.video_encoding import encode
from rewardlab.data import open_dataset
from rewardlab.data.reading import task_in
from tests.command_here import run_here
from tests.conftest import moving_square, write_rows


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    """A folder with four videos and no rows, and a space in its name, which a shell needs quoted."""
    tmp_path = tmp_path / "my videos"
    for name in ("open_the_drawer/001.mp4", "open_the_drawer/002.mp4", "put-cup-on-plate_3.mp4", "clip_7.mp4"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        encode(moving_square(name, count=6), tmp_path / name, fps=10)
    return tmp_path


def test_check_names_misspelt_missing_repeated_contradictory_and_left_out(videos: Path) -> None:
    drawer = {"file_name": "open_the_drawer/001.mp4", "task": "open the drawer"}
    rows: list[dict[str, object]] = [
        drawer | {"reward": 5},
        drawer | {"reward": 5},
        drawer | {"reward": 1},
        {"file_name": "clip_7.mp4", "task": "lift it", "sucess": True},
        {"file_name": "clip_7.mp4", "instruction": "lift it", "reward": 2},
        {"video": "clip_7.mp4", "task": "lift it", "reward": 2},
        {"task": "lift it", "reward": 2},
        {
            "file_name": "clip_7.mp4",
            "task": "drop it",
            "reward": 2,
            "success": True,
            "operator": "Ada",
            "original": "a",
        },
    ]
    done = run_here("data", "check", str(write_rows(videos, rows)))
    assert done.returncode in (1, 4), done.stderr
    assert done.stdout.splitlines() == [
        "line 5: task is missing; rename its 'instruction'",
        "line 6: file_name is missing; rename its 'video'",
        "line 7: file_name is missing",
        "line 8: clip_7.mp4: success is True but reward is 2; only reward 5 is a success",
        "note: line 4: 'sucess' is not read; did you mean success?",
        "note: line 5: 'instruction' is not read; did you mean task?",
        "note: line 6: 'video' is not read; did you mean file_name?",
        "note: line 2: the same row as line 1: the episode counts twice",
        "note: line 3: the video and task of line 1, with another reward or success",
        "note: line 4: neither reward (1 to 5) nor success (true or false): nothing is measured",
        "note: keys that are not read: operator, original",
        "note: 2 videos that no row mentions: open_the_drawer/002.mp4, put-cup-on-plate_3.mp4",
        "3 of 4 episodes state an outcome",
        "4 valid episodes, 4 problems, 8 notes",
    ]


def test_a_note_stops_no_run(videos: Path) -> None:
    row = {"file_name": "clip_7.mp4", "task": "lift it", "reward": 2, "operator": "Ada"}
    contents = open_dataset(str(write_rows(videos, [row, row])))
    assert len(contents.episodes) == 2 and not contents.problems


def test_unknown_columns_are_compared_with_the_known_ones_once(videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[object] = []

    class Counting(difflib.SequenceMatcher[str]):
        def set_seq2(self, b: Sequence[str]) -> None:
            compared.append(b)
            super().set_seq2(b)

    monkeypatch.setattr(difflib, "SequenceMatcher", Counting)
    unknown = {f"sensor_{number}": number for number in range(30)}
    row = {"file_name": "clip_7.mp4", "task": "lift it", "reward": 2, **unknown}
    done = run_here("data", "check", str(write_rows(videos, [row | {"reward": 1 + n % 5} for n in range(40)])))
    assert "keys that are not read: sensor_0, sensor_1" in done.stdout
    assert sum(str(name).startswith("sensor_") for name in compared) == len(unknown)


def test_nothing_at_all_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    empty = run_here("data", "check", str(tmp_path / "rows"))
    assert empty.returncode in (2, 4) and "it holds nothing" in empty.stderr
    (tmp_path / "rows" / "metadata.jsonl").write_text("\n")
    no_rows = run_here("data", "check", str(tmp_path / "rows"))
    assert no_rows.returncode in (1, 4) and no_rows.stdout.startswith("metadata.jsonl: holds no row; ")
    assert "0 valid episodes, 1 problem," in no_rows.stdout
    assert "holds no video" in run_here("data", "init", str(tmp_path / "rows")).stderr
    assert "no folder at" in run_here("data", "init", str(tmp_path / "none")).stderr


def test_init_writes_a_skeleton_and_check_says_exactly_what_is_left(videos: Path) -> None:
    assert f"`rewardlab data init '{videos}'`" in run_here("data", "check", str(videos)).stderr
    done = run_here("data", "init", str(videos))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{videos / 'metadata.jsonl'}: 4 rows, one per video",
        "read and correct what was guessed from names: 3 tasks",
        "fill in task, what the robot was asked to do: line 1",
        "fill in reward, 1 (nothing done) to 5 (done), or success, true or false: every line",
        f"then: rewardlab data check '{videos}'",
    ]
    left = run_here("data", "check", str(videos)).stdout.splitlines()
    assert left[0].startswith("line 1: clip_7.mp4: task must be a non-empty text")
    assert left[1].startswith("note: lines 1, 2, 3, 4: neither reward")
    assert left[2].startswith("0 of 3 episodes state an outcome") and "--demonstrations" in left[2]
    assert left[3] == "3 valid episodes, 1 problem, 1 note"
    rows = [json.loads(line) for line in (videos / "metadata.jsonl").read_text().splitlines()]
    assert [row["task"] for row in rows] == ["", "open the drawer", "open the drawer", "put cup on plate"]
    again = run_here("data", "init", str(videos))
    assert again.returncode in (2, 4) and "is there already and was left as it is" in again.stderr
    write_rows(videos, [row | {"task": row["task"] or "lift it", "reward": 4} for row in rows])
    checked = run_here("data", "check", str(videos)).stdout
    assert checked == "4 of 4 episodes state an outcome\n4 valid episodes, 0 problems, 0 notes\n"


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("episode_000123.mp4", ""),
        ("cam0/video_001.mp4", ""),
        ("drawer.mp4", ""),
        ("Close-The-Left-Drawer_v2.mp4", "close the left drawer"),
        ("fold the towel/take 3 (copy).mov", "fold the towel"),
    ],
)
def test_a_task_is_guessed_only_from_words_that_say_one(name: str, task: str) -> None:
    assert task_in(name) == task
