"""LeRobot datasets, compared with what pyarrow and PyAV say of the same files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import rewardlab
from rewardlab.core.errors import DataError
from rewardlab.core.video_encoding import encode
from rewardlab.data import READERS, dataset_notes, open_dataset
from rewardlab.data.lerobot import stages_of_subtasks
from tests.data.lerobot_writer import (
    EPISODES,
    FPS,
    KEYS,
    TASKS,
    rows,
    write_info,
    write_rows,
    write_v2,
    write_v3,
    write_video,
)

Writer = Callable[[Path], Path]
LAYOUTS: dict[str, Writer] = {
    "v2.0": lambda folder: write_v2(folder, "v2.0"),
    "v2.1": write_v2,
    "v3.0": write_v3,
    "v2.1 with images": lambda folder: write_v2(folder, images=True),
    "v3.0 with images": lambda folder: write_v3(folder, images=True),
}


def decoded(path: Path) -> np.ndarray:
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def with_subtasks(folder: Path, subtasks: dict[str, list[Any]], index: list[int | None]) -> Path:
    """Add subtasks to a dataset of one data file: the same ones for the first episode, none for the others."""
    (path,) = (folder / "data").rglob("*.parquet")
    table = pq.read_table(path)
    table = table.append_column("subtask_index", pa.array(index + [-1] * (len(table) - len(index)), pa.int64()))
    pq.write_table(table, path)
    write_rows(folder / "meta" / "subtasks.parquet", subtasks)
    return folder


def test_subtasks_become_stages(tmp_path: Path) -> None:
    count = EPISODES[0].count
    assert count > 5 and EPISODES[0].success
    texts: dict[str, list[Any]] = {"subtask_index": [0, 1], "__index_level_0__": ["reach the cup", "lift the cup"]}
    index = [None, 0, 0, *[1] * (count - 3)]
    first, *others = open_dataset(str(with_subtasks(write_v3(tmp_path), texts, index))).episodes
    assert [stage.instruction for stage in first.label.stages] == ["reach the cup", "lift the cup"]
    reach, lift = (stage.reached for stage in first.label.stages)
    assert reach == (0, 1, 1, *[2] * (count - 3))
    assert lift == (0, 0, 0, *[1] * (count - 4), 2)  # a success, so that the last subtask is done in the end
    assert all(episode.label.stages == () for episode in others)
    rewardlab.data_convert(tmp_path, tmp_path / "ours")
    again = next(e for e in open_dataset(tmp_path / "ours").episodes if e.label.stages)
    assert again.label.stages == first.label.stages


def test_the_last_subtask_of_a_failure_is_not_done() -> None:
    stages = stages_of_subtasks((4, 4, 7), {4: "reach", 7: "lift"}, success=False)
    assert [stage.reached for stage in stages] == [(1, 1, 2), (0, 0, 1)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_counts_texts_and_times_are_those_of_the_files(layout: str, tmp_path: Path) -> None:
    contents = open_dataset(str(LAYOUTS[layout](tmp_path)))
    tables = [pq.read_table(path) for path in sorted((tmp_path / "data").rglob("*.parquet"))]
    said = [row for table in tables for row in table.drop_columns(["action"]).to_pylist()]
    assert contents.problems == ()
    assert len(contents.episodes) == len(EPISODES)
    for written, episode in zip(EPISODES, contents.episodes, strict=True):
        mine = [row for row in said if row["episode_index"] == written.index]
        assert len(episode.clip) == len(mine) == len(episode.frames)
        assert np.abs(episode.times - [row["timestamp"] for row in mine]).max() < 1e-6
        assert episode.instruction == TASKS[mine[0]["task_index"]]
        assert episode.label.success is mine[-1]["next.success"]
        assert episode.label.level == (5 if written.success else None)
        assert (episode.provenance.camera, episode.provenance.embodiment) == ("front", "so100")
        assert episode.id == f"episode_{written.index:06d}@front"


@pytest.mark.parametrize(("writer", "many"), [(write_v2, False), (write_v3, True)])
def test_frames_are_those_that_pyav_decodes(writer: Writer, many: bool, tmp_path: Path) -> None:
    writer(tmp_path)
    start = 0
    for written, episode in zip(EPISODES, open_dataset(f"lerobot:{tmp_path}@wrist").episodes, strict=True):
        place = f"{KEYS[0]}/chunk-000/file-000" if many else f"chunk-000/{KEYS[0]}/episode_{written.index:06d}"
        frames = decoded(tmp_path / "videos" / f"{place}.mp4")[start if many else 0 :][: written.count]
        assert_allclose(episode.frames, frames, atol=1)
        picked = np.array([written.count - 1, 2, 2, 0])
        assert_array_equal(episode.clip.source.read(picked), episode.frames[picked])
        start += written.count


def test_a_segment_behind_many_key_frames_is_found(tmp_path: Path) -> None:
    """The encoder begins a new group of pictures every so often; a late episode is decoded from the last one."""
    write_v3(tmp_path)
    video = tmp_path / "videos" / KEYS[1] / "chunk-000" / "file-000.mp4"
    frames = np.concatenate([episode.frames(KEYS[1]) for episode in EPISODES])
    with av.open(str(video), "w") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width = stream.height = 48
        stream.pix_fmt, stream.options = "yuv420p", {"g": "5", "bf": "2"}
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    whole = decoded(video)
    episodes = open_dataset(str(tmp_path)).episodes
    assert_allclose(np.concatenate([episode.frames for episode in episodes]), whole, atol=1)


def test_images_in_rows_are_read_bit_for_bit(tmp_path: Path) -> None:
    for episode, written in zip(open_dataset(str(write_v3(tmp_path, images=True))).episodes, EPISODES, strict=True):
        assert_array_equal(episode.frames, written.frames(KEYS[1]))


def test_episodes_of_one_file_are_different_episodes(tmp_path: Path) -> None:
    episodes = open_dataset(f"{write_v3(tmp_path)}@all").episodes
    assert len({episode.clip.source.digest for episode in episodes}) == len(EPISODES) * 2
    assert len({episode.id for episode in episodes}) == len(EPISODES) * 2


def test_a_file_that_changes_is_another_episode(tmp_path: Path) -> None:
    before = open_dataset(str(write_v3(tmp_path))).episodes[0].hash
    frames = np.concatenate([episode.frames("another") for episode in EPISODES])
    write_video(tmp_path / "videos" / KEYS[1] / "chunk-000" / "file-000.mp4", frames)
    assert open_dataset(str(tmp_path)).episodes[0].hash != before


def test_a_camera_is_named_and_the_others_are_told(tmp_path: Path) -> None:
    write_v2(tmp_path)
    assert [str(note) for note in dataset_notes(str(tmp_path))] == [
        "cameras: front is read; others by DATA@NAME, or DATA@all: wrist"
    ]
    assert {each.provenance.camera for each in open_dataset(f"{tmp_path}@observation.images.wrist").episodes} == {
        "wrist"
    }
    assert not dataset_notes(f"{tmp_path}@all") and not dataset_notes(f"{tmp_path}@wrist")
    with pytest.raises(DataError, match="no camera 'top'; there are wrist, front: name one of them, or all"):
        open_dataset(f"{tmp_path}@top")


def test_a_later_minor_version_is_read_and_noted(tmp_path: Path) -> None:
    write_v3(tmp_path)
    before = open_dataset(str(tmp_path)).episodes
    write_info(tmp_path, "v3.0", codebase_version="v3.1")
    assert [each.hash for each in open_dataset(str(tmp_path)).episodes] == [each.hash for each in before]
    assert any("v3.1" in str(note) for note in dataset_notes(str(tmp_path)))


@pytest.mark.parametrize("version", ["v1.6", "v4.0", "v3.", "v30", None])
def test_a_version_that_is_not_read_is_said(version: str | None, tmp_path: Path) -> None:
    write_v2(tmp_path)
    write_info(tmp_path, "v2.1", codebase_version=version)
    with pytest.raises(DataError, match=f"codebase_version must be v2.0, v2.1 or v3.x, got {version!r}"):
        open_dataset(str(tmp_path))


def test_a_missing_video_costs_its_episode_only(tmp_path: Path) -> None:
    write_v2(tmp_path)
    (tmp_path / "videos" / "chunk-000" / KEYS[1] / "episode_000001.mp4").unlink()
    contents = open_dataset(str(tmp_path))
    assert [episode.id for episode in contents.episodes] == ["episode_000000@front", "episode_000002@front"]
    (problem,) = contents.problems
    assert problem.place == "episode 1@front" and "episode_000001.mp4: the file does not exist" in problem.what


def test_episodes_that_were_not_copied_are_noted(tmp_path: Path) -> None:
    write_v2(tmp_path)
    (tmp_path / "data" / "chunk-000" / "episode_000001.parquet").unlink()
    contents = open_dataset(str(tmp_path))
    assert (len(contents.episodes), contents.problems) == (2, ())
    assert "1 of 3 listed episodes have no data file here" in str(dataset_notes(str(tmp_path))[-1])
    for path in (tmp_path / "data").rglob("*.parquet"):
        path.unlink()
    with pytest.raises(DataError, match="none of the 3 listed episodes has its data file here"):
        open_dataset(str(tmp_path))


def test_rows_and_frames_that_differ_in_number_are_a_problem(tmp_path: Path) -> None:
    write_v2(tmp_path)
    write_video(tmp_path / "videos" / "chunk-000" / KEYS[1] / "episode_000000.mp4", EPISODES[1].frames("short"))
    write_rows(
        tmp_path / "data" / "chunk-000" / "episode_000002.parquet", rows(EPISODES[1]) | {"episode_index": [2] * 7}
    )
    problems = [problem.what for problem in open_dataset(str(tmp_path)).problems]
    assert "7 frames, but the episode has 12 rows" in problems[0]
    assert "7 rows, but the list of episodes gives 9" in problems[1]


def test_a_video_that_ends_before_its_episodes_is_a_problem(tmp_path: Path) -> None:
    write_v3(tmp_path)
    write_video(tmp_path / "videos" / KEYS[1] / "chunk-000" / "file-000.mp4", EPISODES[0].frames("short"))
    contents = open_dataset(str(tmp_path))
    assert len(contents.episodes) == 1
    assert "frames 12 to 18 are asked for, but it holds 12" in contents.problems[0].what


def test_frames_that_do_not_come_evenly_keep_their_times(tmp_path: Path) -> None:
    write_v2(tmp_path)
    times = np.array([0.0, 0.1, 0.2, 0.5, 0.6, 0.7, 1.4])
    write_rows(tmp_path / "data" / "chunk-000" / "episode_000001.parquet", rows(EPISODES[1], times))
    episode = open_dataset(str(tmp_path)).episodes[1]
    assert np.abs(episode.times - times).max() < 1e-6 and not episode.clip.is_even


def test_the_check_decodes_segments(tmp_path: Path) -> None:
    write_v3(tmp_path)
    assert rewardlab.data_check(tmp_path).problems == ()
    path = tmp_path / "videos" / KEYS[1] / "chunk-000" / "file-000.mp4"
    data = bytearray(path.read_bytes())
    start = data.index(b"mdat") + 1500
    data[start : start + 400] = bytes(400)
    path.write_bytes(data)
    assert rewardlab.data_check(tmp_path).problems != ()


def test_a_path_in_the_info_leads_nowhere_else(tmp_path: Path) -> None:
    write_v2(tmp_path)
    for template, words in (
        ("../outside/{episode_index:06d}.mp4", "video_path must stay below the folder"),
        ("{episode_index.__class__}.mp4", "does not exist"),
        ("{password}.mp4", "unknown field 'password'"),
        ("{episode_index:0999999999d}.mp4", "does not exist"),
    ):
        write_info(tmp_path, "v2.1", video_path=template)
        assert words in " ".join(str(each) for each in open_dataset(f"{tmp_path}@front").problems)


def test_broken_metadata_is_one_sentence(tmp_path: Path) -> None:
    write_v2(tmp_path)
    (tmp_path / "meta" / "episodes.jsonl").write_text('{"episode_index": -1, "length": 3}\n')
    with pytest.raises(DataError, match="episode_index must be a whole number of 0 or more, got -1"):
        open_dataset(str(tmp_path))
    (tmp_path / "meta" / "episodes.jsonl").unlink()
    with pytest.raises(DataError, match=r"meta/episodes\.jsonl: the file does not exist"):
        open_dataset(str(tmp_path))
    (tmp_path / "meta" / "info.json").write_text(json.dumps([1]))
    with pytest.raises(DataError, match=r"meta/info\.json: expected an object, got list"):
        open_dataset(str(tmp_path))


def test_depth_maps_are_no_cameras_whichever_way_they_are_marked(tmp_path: Path) -> None:
    write_v3(tmp_path)
    info = json.loads((tmp_path / "meta" / "info.json").read_text())
    for about in ({"is_depth_map": True}, {"video.is_depth_map": True}):  # as LeRobot marks them, now and before
        info["features"][KEYS[1]]["info"] = about
        (tmp_path / "meta" / "info.json").write_text(json.dumps(info))
        assert {each.provenance.camera for each in open_dataset(f"{tmp_path}@all").episodes} == {"wrist"}


def test_an_episode_is_found_by_its_time_in_the_video(tmp_path: Path) -> None:
    write_v3(tmp_path)
    frames = [episode.frames(KEYS[1]) for episode in EPISODES]
    starts = (0.0, 5.0, 9.0)  # videos put together may have gaps between them
    times = np.concatenate([start + np.arange(len(each)) / FPS for start, each in zip(starts, frames, strict=True)])
    path = tmp_path / "videos" / KEYS[1] / "chunk-000" / "file-000.mp4"
    encode(np.concatenate(frames), path, FPS, times=times)
    table = pq.read_table(tmp_path / "meta" / "episodes" / "chunk-000" / "file-000.parquet").to_pydict()
    write_rows(
        tmp_path / "meta" / "episodes" / "chunk-000" / "file-000.parquet",
        table | {f"videos/{KEYS[1]}/from_timestamp": [start + 0.004 for start in starts]},  # durations add up inexactly
    )
    whole, place = decoded(path), 0
    for read in open_dataset(f"{tmp_path}@front").episodes:
        assert_allclose(read.frames, whole[place : place + len(read.clip)], atol=1)
        place += len(read.clip)
    assert place == len(whole)


def test_an_episode_that_is_listed_twice_is_said(tmp_path: Path) -> None:
    write_v3(tmp_path)
    folder = tmp_path / "meta" / "episodes" / "chunk-000"
    (folder / "file-001.parquet").write_bytes((folder / "file-000.parquet").read_bytes())
    with pytest.raises(DataError, match="episode 0 is listed twice; remove the outdated file of episodes"):
        open_dataset(str(tmp_path))


def test_it_is_in_the_catalog() -> None:
    assert "lerobot" in READERS
