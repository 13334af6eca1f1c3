import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rewardlab.core.episode import show_only
from rewardlab.core.errors import DataError
from rewardlab.core.video_encoding import encode
from rewardlab.data import open_dataset
from rewardlab.data.roboreward import read_folder, write_episode
from rewardlab.data.roboreward_rows import row_of
from rewardlab.data.video import VideoFile
from tests.conftest import moving_square, write_rows
from tests.narrowing import of_type


def test_rows_become_episodes_with_their_truth(tiny_data: Path) -> None:
    contents = read_folder(tiny_data)
    assert not contents.problems
    truths = [(e.label.level, e.label.success, e.label.progress is not None) for e in contents.episodes]
    assert truths == [
        (5, True, False),
        (1, False, False),
        (3, False, False),
        (5, True, False),
        (None, False, False),
        (4, False, True),
    ]
    assert [e.provenance.subset for e in contents.episodes] == ["arm"] * 3 + ["hand"] * 3


def staged_row(*stages: dict[str, object]) -> dict[str, object]:
    return {"file_name": "x.mp4", "task": "open it and fill it", "reward": 3, "stages": list(stages)}


def test_stages_are_read_and_written_back(tmp_path: Path) -> None:
    encode(moving_square("x", count=6), tmp_path / "x.mp4", fps=10)
    stages: list[dict[str, object]] = [
        {"instruction": "open it", "start": 0, "end": 2, "undone": 5},
        {"instruction": "fill it", "start": 3, "end": None},
        {"instruction": "shut it", "start": None, "end": None},
    ]
    write_rows(tmp_path, [staged_row(*stages)])
    (episode,) = read_folder(tmp_path).episodes
    assert [stage.reached for stage in episode.label.stages] == [(1, 1, 2, 2, 2, 1), (0, 0, 0, 1, 1, 1), (0,) * 6]
    assert row_of(episode, "x.mp4")["stages"] == stages
    shorter = show_only(episode, np.array([0, 2, 3]))
    assert [stage.reached for stage in shorter.label.stages] == [(1, 2, 2), (0, 0, 1), (0, 0, 0)]
    assert replace(episode, label=replace(episode.label, stages=())).hash != episode.hash


@pytest.mark.parametrize(
    ("stage", "match"),
    [
        ({"start": 0, "end": 1}, "needs an instruction"),
        ({"instruction": "open it", "start": 0, "end": 6}, "frames from 0 to 5"),
        ({"instruction": "open it", "start": 3, "end": 1}, "starts before it ends"),
        ({"instruction": "open it", "start": 0, "undone": 1}, "ends before it is undone"),
    ],
)
def test_a_stage_that_cannot_be_is_refused(stage: dict[str, object], match: str, tmp_path: Path) -> None:
    encode(moving_square("x", count=6), tmp_path / "x.mp4", fps=10)
    write_rows(tmp_path, [staged_row(stage)])
    (problem,) = read_folder(tmp_path).problems
    assert match in problem.what


def test_nothing_is_decoded_until_frames_are_asked_for(tmp_path: Path) -> None:
    encode(moving_square("x"), tmp_path / "x.mp4", fps=10)
    write_rows(tmp_path, [{"file_name": "x.mp4", "task": "t", "reward": 2}])
    (episode,) = read_folder(tmp_path).episodes
    (tmp_path / "x.mp4").unlink()
    with pytest.raises(DataError, match="does not exist"):
        _ = episode.frames


def test_every_problem_is_named_with_its_line(tmp_path: Path) -> None:
    good = tmp_path / "good.mp4"
    encode(moving_square("x"), good, fps=10)
    (tmp_path / "short.mp4").write_bytes(good.read_bytes()[:800])
    (tmp_path / "empty.mp4").write_bytes(b"")
    (tmp_path / "words.mp4").write_text("this is no video")
    rows: list[dict[str, object] | str] = [
        {"file_name": "good.mp4", "task": "t", "reward": 5},
        {"file_name": "short.mp4", "task": "t", "reward": 5},
        {"file_name": "empty.mp4", "task": "t", "reward": 5},
        {"file_name": "gone.mp4", "task": "t", "reward": 5},
        {"file_name": "good.mp4", "task": "t", "reward": 7},
        {"file_name": "good.mp4", "task": " ", "reward": 5},
        '{"file_name": "good.mp4", ',
        {"task": "t", "reward": 5},
        {"file_name": "../good.mp4", "task": "t", "reward": 5},
        {"file_name": "good.mp4", "task": "t", "reward": 3, "success": True},
        {"file_name": "good.mp4", "task": "t", "progress": [0.5]},
        '{"file_name": "good.mp4", "task": "t", "reward": NaN}',
        "[1, 2]",
        {"file_name": "words.mp4", "task": "t", "reward": 5},
        {"file_name": "good.mp4", "task": "t", "reward": 5, "fps": 0},
        {"file_name": "good.mp4", "task": "t", "preference": "this"},
        {"file_name": "good.mp4", "task": "t", "preference": {"pair": "x", "preferred": True}},
    ]
    contents = read_folder(write_rows(tmp_path, rows))
    assert len(contents.episodes) == 1
    found = {problem.place: problem.what for problem in contents.problems}
    assert list(found) == [f"line {line}" for line in range(2, 18)]
    words = {
        2: "short.mp4", 3: "empty.mp4", 4: "does not exist", 5: "got 7", 6: "non-empty text", 7: "not JSON",
        8: "file_name is missing", 9: "must stay below", 10: "only reward 5 is a success", 11: "one number per frame",
        12: "NaN, which is no JSON number", 13: "got list", 14: "words.mp4", 15: "fps must be",
        16: "preference must be an object such as", 17: "preference must be an object such as",
    }  # fmt: skip
    assert {line: word in found[f"line {line}"] for line, word in words.items()} == dict.fromkeys(words, True), found


def test_what_is_written_is_read_back(tiny_data: Path, tmp_path: Path) -> None:
    for episode in read_folder(tiny_data).episodes:
        write_episode(tmp_path, episode, episode.id, {"note": "kept"})
    again = read_folder(tmp_path)
    assert not again.problems
    for before, after in zip(read_folder(tiny_data).episodes, again.episodes, strict=True):
        assert (before.instruction, before.label, before.provenance.subset) == (
            after.instruction,
            after.label,
            after.provenance.subset,
        )
        assert np.abs(before.frames.astype(int) - after.frames).mean() < 5
    assert json.loads((tmp_path / "metadata.jsonl").read_text().splitlines()[0])["note"] == "kept"


def test_one_video_with_two_instructions_is_two_episodes(tmp_path: Path) -> None:
    encode(moving_square("x"), tmp_path / "x.mp4", fps=10)
    rows = [{"file_name": "x.mp4", "task": text, "reward": 2} for text in ("open it", "close it")]
    one, two = read_folder(write_rows(tmp_path, rows)).episodes
    assert (one.id, two.id) == ("x.mp4", "x.mp4#2")
    assert one.clip.source.digest == two.clip.source.digest


def test_the_shipped_sample_is_sound_small_and_attributed() -> None:
    contents = open_dataset("sample")
    assert not contents.problems
    levels = [episode.label.level for episode in contents.episodes]
    assert set(levels) == {1, 2, 3, 4, 5}
    assert all(
        e.provenance.license in ("MIT", "Apache-2.0", "CC BY 4.0") and e.provenance.source for e in contents.episodes
    )
    video = of_type(VideoFile, contents.episodes[0].clip.source)
    folder = of_type(Path, video.path).parents[1]
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 8_000_000
    attribution = (folder / "ATTRIBUTION.md").read_text()
    assert all(episode.provenance.source in attribution for episode in contents.episodes)


def test_other_encodings_and_marks_are_read_or_named(tmp_path: Path) -> None:
    encode(moving_square("x"), tmp_path / "x.mp4", fps=10)
    row = '{"file_name": "x.mp4", "task": "öffne die Tür", "reward": 5, "fps": null}'
    lone = '{"file_name": "x.mp4", "task": "cut \\ud83d", "reward": 5}'
    data = b"\xef\xbb\xbf" + row.encode() + b"\r\n" + row.encode("latin-1") + b"\n" + lone.encode() + b"\n"
    (tmp_path / "metadata.jsonl").write_bytes(data)
    contents = read_folder(tmp_path)
    assert [episode.instruction for episode in contents.episodes] == ["öffne die Tür"]
    assert [(p.place, "UTF-8" in p.what or "half of a surrogate pair" in p.what) for p in contents.problems] == [
        ("line 2", True),
        ("line 3", True),
    ]
