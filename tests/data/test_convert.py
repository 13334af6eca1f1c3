"""Conversions: what is read afterwards is what was read before; stopped ones go on; splits share no task."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import rewardlab
from rewardlab.augmentation.rows import read_dataset
from rewardlab.cli import main
from rewardlab.core.episode import DONE, Episode, Provenance, episode_from_frames
from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.video_encoding import encode
from rewardlab.data.contract import Batch, Rollout, Writer, WrittenRow
from rewardlab.data.convert import WRITERS, ResumableFolder, at_rate
from rewardlab.data.task_split import split_by_shares, task_and_video
from tests.conftest import moving_square, write_rows
from tests.data.lerobot_writer import EPISODES, KEYS, write_v2
from tests.narrowing import known

TASKS = ("open the drawer", "push the red block", "lift the lid", "close the window", "turn the key")


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    """Ten rollouts of five tasks with levels, success, progress and unlike lengths."""
    folder, rows = tmp_path / "source", []
    for number in range(10):
        frames = moving_square(f"rollout {number}", count=6 + number)
        (folder / "kitchen").mkdir(parents=True, exist_ok=True)
        encode(frames, folder / "kitchen" / f"{number:03d}.mp4", 10)
        done = np.linspace(0, 1 if number % 5 == 0 else 0.5, len(frames)).tolist()
        label = {"reward": 5, "success": True} if number % 5 == 0 else {"reward": 1 + number % 4}
        row = {"file_name": f"kitchen/{number:03d}.mp4", "task": TASKS[number % 5], "progress": done, **label}
        rows.append(row if number != 7 else {key: row[key] for key in ("file_name", "task")})
    write_rows(folder, rows)
    return folder


def test_stages_and_how_a_row_was_made_are_kept(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    encode(moving_square("x", count=9), source / "x.mp4", 8)
    about = {"stage": "counterfactual", "source_episode": "y.mp4"}
    stages = [{"instruction": "open it", "start": 0, "end": 4}, {"instruction": "fill it", "start": 5, "end": 8}]
    row = {"file_name": "x.mp4", "task": "lift it", "original_task": "open it and fill it", "reward": 2}
    write_rows(source, [{**row, "provenance": about, "stages": stages}])
    (before,) = rewardlab.open_dataset(source).episodes
    rewardlab.data_convert(source, tmp_path / "whole")
    (after,) = rewardlab.open_dataset(tmp_path / "whole").episodes
    assert after.label == before.label and after.provenance.task == "open it and fill it"
    assert (after.provenance.stage, after.provenance.rollout) == ("counterfactual", "y.mp4")
    (again,) = read_dataset(str(tmp_path / "whole"), skip_invalid=False)
    assert not again.is_source and again.original_task == "open it and fill it"
    rewardlab.data_convert(source, tmp_path / "slower", fps=4)
    (slower,) = rewardlab.open_dataset(tmp_path / "slower").episodes
    assert [stage.reached.index(DONE) for stage in slower.label.stages] == [2, 4]


def told(episodes: Sequence[Episode]) -> list[tuple[object, ...]]:
    return [(e.instruction, e.label.level, e.label.success, len(e.clip), e.times.tolist()) for e in episodes]


@pytest.mark.parametrize("to", WRITERS)
def test_a_conversion_and_the_way_back_keep_everything(to: str, rollouts: Path, tmp_path: Path) -> None:
    made = rewardlab.data_convert(rollouts, tmp_path / "there", to=to)
    assert made.counts == {"": 10} and made.left_out == ()
    rewardlab.data_convert(tmp_path / "there", tmp_path / "back", to="roboreward")
    before = rewardlab.open_dataset(rollouts).episodes
    for folder in ("there", "back"):
        contents = rewardlab.open_dataset(tmp_path / folder)
        assert contents.problems == () and told(contents.episodes) == told(before)
        for old, new in zip(before, contents.episodes, strict=True):
            assert np.abs(old.frames.astype(int) - new.frames).mean() < (1e-9 if to != "lerobot" else 3)
            if to == "lerobot" and old.label.progress is not None:
                assert_allclose(np.array(known(new.label.progress)), np.array(old.label.progress), atol=1e-6)
    assert not list(tmp_path.glob(".*"))


def test_a_lerobot_folder_is_what_lerobot_writes(rollouts: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rewardlab.data_convert(rollouts, tmp_path / "out", to="lerobot")
    info = json.loads((tmp_path / "out" / "meta" / "info.json").read_text())
    assert (info["codebase_version"], info["total_episodes"], info["fps"], info["total_tasks"]) == ("v3.0", 10, 10, 5)
    tasks = pandas.read_parquet(tmp_path / "out" / "meta" / "tasks.parquet")
    assert tasks.index.tolist() == list(TASKS) and tasks["task_index"].tolist() == [0, 1, 2, 3, 4]
    episodes = pq.read_table(tmp_path / "out" / "meta" / "episodes" / "chunk-000" / "file-000.parquet").to_pylist()
    rows = pq.read_table(tmp_path / "out" / "data" / "chunk-000" / "file-000.parquet")
    (video,) = (tmp_path / "out" / "videos").rglob("*.mp4")
    with av.open(str(video)) as container:
        stamps = [(float(frame.time), frame.key_frame) for frame in container.decode(video=0)]
    assert len(stamps) == rows.num_rows == info["total_frames"]
    for number, episode in enumerate(episodes):
        start, end = (episode[f"videos/observation.images.main/{end}_timestamp"] for end in ("from", "to"))
        first = round(start * 10)
        assert stamps[first] == (pytest.approx(start), True)  # an episode begins with a key frame
        assert round((end - start) * 10) == episode["length"] == 6 + number
        assert episode["dataset_from_index"] == first == rows["index"][first].as_py()
    progress = pq.read_table(tmp_path / "out" / "truth_progress.parquet")
    assert progress.column_names == ["index", "episode_index", "frame_index", "progress_sparse", "progress_dense"]
    assert progress.schema.metadata[b"reward_model_path"] == b"truth"
    assert progress["progress_dense"].null_count == 13  # the frames of the rollout of which nobody says anything


def test_the_statistics_of_every_camera_are_those_of_its_frames(tmp_path: Path) -> None:
    write_v2(tmp_path / "source")
    rewardlab.data_convert(f"{tmp_path / 'source'}@all", tmp_path / "out", to="lerobot")
    stats = json.loads((tmp_path / "out" / "meta" / "stats.json").read_text())
    for key in KEYS:
        episodes = rewardlab.open_dataset(f"{tmp_path / 'source'}@{key}").episodes
        frames = np.concatenate([episode.frames for episode in episodes]) / 255
        expected = {name: getattr(np, name)(frames, axis=(0, 1, 2)) for name in ("min", "max", "mean", "std")}
        assert set(stats[key]) == {*expected, "count"} and stats[key]["count"] == [len(frames)]
        for name, values in expected.items():  # as LeRobot keeps them: channels first, levels from 0 to 1
            assert_allclose(np.array(stats[key][name]), values.reshape(3, 1, 1), atol=1e-9)


def test_a_killed_conversion_leaves_no_partial_file(tmp_path: Path) -> None:
    folder = ResumableFolder(tmp_path / "out", "killed")
    folder.begin()
    (folder.partial / "videos").mkdir()
    (folder.partial / "videos" / ".file-000.mp4.123.tmp").touch()  # as a process that is killed while it encodes
    folder.begin()
    folder.complete()
    assert not list((tmp_path / "out").rglob("*.tmp"))


def test_episodes_in_several_files_are_found_again(tmp_path: Path) -> None:
    lengths = (5, 8, 6)
    made = [episode_from_frames(moving_square(str(n), count=count), TASKS[n]) for n, count in enumerate(lengths)]
    each = [Rollout(f"a/{n}", (replace(episode, id=str(n)),), ("main",)) for n, episode in enumerate(made)]
    folder = ResumableFolder(tmp_path / "out", "files")
    folder.begin()
    folder.write(WRITERS["lerobot"], "", [Batch(0, tuple(each[:2])), Batch(1, (each[2],))])
    folder.complete()
    assert len(list((tmp_path / "out").rglob("file-001.*"))) == 2  # rows and a video of the second batch
    for old, new in zip(made, rewardlab.open_dataset(tmp_path / "out").episodes, strict=True):
        assert len(new.clip) == len(old.clip) and new.instruction == old.instruction
        assert np.abs(old.frames.astype(int) - new.frames).mean() < 3


def test_rows_of_robometer_have_its_columns(rollouts: Path, tmp_path: Path) -> None:
    rewardlab.data_convert(rollouts, tmp_path / "out", to="robometer")
    rows = pq.read_table(tmp_path / "out" / "metadata.parquet").to_pylist()
    assert list(rows[0]) == [
        *("id", "task", "lang_vector", "data_source", "frames", "is_robot", "quality_label", "partial_success")
    ]
    assert [(row["quality_label"], row["partial_success"]) for row in rows[:4]] == [
        *(("successful", 1.0), ("suboptimal", 0.25), ("suboptimal", 0.5), ("suboptimal", 0.75))
    ]
    assert (rows[7]["quality_label"], rows[7]["partial_success"]) == (None, None)
    assert rows[4]["quality_label"] == "failure" and (tmp_path / "out" / rows[4]["frames"]).is_file()


def test_all_cameras_of_a_rollout_stay_together(tmp_path: Path) -> None:
    write_v2(tmp_path / "source")
    rewardlab.data_convert(f"{tmp_path / 'source'}@all", tmp_path / "out", to="lerobot")
    contents = rewardlab.open_dataset(f"{tmp_path / 'out'}@all")
    assert contents.problems == () and len(contents.episodes) == 2 * len(EPISODES)
    assert {each.provenance.camera for each in contents.episodes} == {key.rpartition(".")[2] for key in KEYS}
    assert [each.label.success for each in contents.episodes[::2]] == [each.success for each in EPISODES]


def test_splits_share_no_task_and_no_video(rollouts: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (rollouts / "metadata.jsonl").read_text().splitlines()]
    for row in ({"file_name": rows[1]["file_name"], "task": TASKS[3]}, {**rows[2], "task": "Lift  the lid."}):
        rows.append(row)  # the first video asked for another task; one question again in other letters
    write_rows(rollouts, rows)
    made = rewardlab.data_convert(rollouts, tmp_path / "out", splits=["train=0.5", "test=0.5"])
    assert sum(made.counts.values()) + len(made.left_out) == 12 and set(made.counts) == {"train", "test"}
    parts = {name: rewardlab.open_dataset(tmp_path / "out" / name).episodes for name in ("train", "test")}
    tasks = {name: {task_and_video(episode)[0] for episode in episodes} for name, episodes in parts.items()}
    assert not tasks["train"] & tasks["test"] and len(tasks["train"] | tasks["test"]) == 5
    assert any({"push the red block", "close the window"} <= each for each in tasks.values())  # they share a video
    digests = [{episode.clip.source.digest for episode in episodes} for episodes in parts.values()]
    assert not digests[0] & digests[1]


def test_copies_with_the_same_instruction_are_left_out(rollouts: Path, tmp_path: Path) -> None:
    frames = rewardlab.open_dataset(rollouts).episodes[9].frames
    encode(frames, rollouts / "kitchen" / "again.mp4", 10, crf=24)
    rows = [json.loads(line) for line in (rollouts / "metadata.jsonl").read_text().splitlines()]
    write_rows(rollouts, [*rows, {"file_name": "kitchen/again.mp4", "task": TASKS[4]}])
    made = rewardlab.data_convert(rollouts, tmp_path / "out")
    assert made.counts == {"": 10} and "kitchen/009.mp4 (near copy)" in str(made.left_out[0])
    kept = rewardlab.data_convert(rollouts, tmp_path / "all", keep_duplicates=True)
    assert kept.counts == {"": 11} and kept.left_out == ()


def test_rollouts_are_sampled_and_shown_at_another_rate(rollouts: Path, tmp_path: Path) -> None:
    first, again = (rewardlab.data_convert(rollouts, tmp_path / name, sample=4, fps=5, seed=3) for name in ("a", "b"))
    assert first.counts == again.counts == {"": 4}
    a, b = (rewardlab.open_dataset(tmp_path / name).episodes for name in ("a", "b"))
    assert [episode.id for episode in a] == [episode.id for episode in b]
    source = {episode.id: episode for episode in rewardlab.open_dataset(rollouts).episodes}
    for episode in a:
        assert episode.clip.fps == 5 and episode.times[-1] == pytest.approx(source[episode.id].times[-1], abs=0.11)
        progress = episode.label.progress
        assert progress is None or progress[-1] == known(source[episode.id].label.progress)[-1]


def test_a_rate_picks_the_latest_frame_at_every_tick() -> None:
    episode = episode_from_frames(np.arange(7 * 4 * 4 * 3, dtype=np.uint8).reshape(7, 4, 4, 3), "x", fps=30)
    slow, fast = at_rate(episode, 10), at_rate(episode, 60)
    assert_array_equal(slow.clip.order, [0, 3, 6])
    assert_array_equal(fast.clip.order, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6])
    assert at_rate(episode, 30) is episode


def test_a_stopped_conversion_goes_on_and_never_looks_whole(tmp_path: Path) -> None:
    episodes = [replace(episode_from_frames(moving_square(str(n)), TASKS[n]), id=str(n)) for n in range(3)]
    batches = [Batch(n, (Rollout(f"a/{n}", (each,), ("main",)),)) for n, each in enumerate(episodes)]
    written: list[int] = []

    def write(folder: Path, batch: Batch) -> list[WrittenRow]:
        if batch.number == 2 and len(written) == 2:
            raise KeyboardInterrupt
        written.append(batch.number)
        return WRITERS["roboreward"].write(folder, batch)

    writer = Writer("stops", "", write, WRITERS["roboreward"].finish)
    folder = ResumableFolder(tmp_path / "out", "one")
    folder.begin()
    with pytest.raises(KeyboardInterrupt):
        folder.write(writer, "", batches)
    assert not (tmp_path / "out").exists() and written == [0, 1]
    with pytest.raises(PlanError, match="is what another conversion has left; finish that one, or remove it"):
        ResumableFolder(tmp_path / "out", "two").begin()
    journal = folder.notes / ".jsonl"
    journal.write_text(journal.read_text() + '\n{"batch": "half of a li')
    written.append(-1)
    folder.begin()
    folder.write(writer, "", batches)
    folder.complete()
    assert written == [0, 1, -1, 2] and len(rewardlab.open_dataset(tmp_path / "out").episodes) == 3
    with pytest.raises(PlanError, match="is there already"):
        folder.begin()


def test_a_rollout_that_changed_meanwhile_is_written_again(tmp_path: Path) -> None:
    folder, counts = ResumableFolder(tmp_path / "out", "one"), []

    def write_batch(_folder: Path, batch: Batch) -> list[WrittenRow]:
        counts.append(batch.number)
        return [{}]

    writer = Writer("counts", "", write_batch, lambda _folder, _rows: None)
    for name in ("a", "a", "b"):
        episode = episode_from_frames(moving_square(name), "open it")
        folder.begin()
        folder.write(writer, "", [Batch(0, (Rollout("x", (episode,), ("main",)),))])
    assert counts == [0, 0]


def test_what_cannot_be_written_is_one_sentence(rollouts: Path, tmp_path: Path) -> None:
    encode(moving_square("other rate"), rollouts / "kitchen" / "007.mp4", 15)
    with pytest.raises(PlanError, match=r"lerobot has one frame rate, but frames come at 10, 15 per second; give one"):
        rewardlab.data_convert(rollouts, tmp_path / "out", to="lerobot")
    encode(np.zeros((8, 96, 96, 3), np.uint8), rollouts / "kitchen" / "007.mp4", 10)
    with pytest.raises(DataError, match=r"frames of 96x96, those of .* are \d+x\d+; LeRobot has one size per camera"):
        rewardlab.data_convert(rollouts, tmp_path / "out", to="lerobot", keep_duplicates=True)
    (rollouts / "kitchen" / "007.mp4").write_bytes(b"")
    with pytest.raises(DataError, match=r"has 1 bad row; correct the data, or leave bad rows out with --skip-invalid"):
        rewardlab.data_convert(rollouts, tmp_path / "new")
    made = rewardlab.data_convert(rollouts, tmp_path / "new", skip_invalid=True)
    assert made.counts == {"": 9} and len(made.left_out) == 1
    for settings, words in (
        ({"splits": ("train=0.8",)}, "must be above 0 and 1 together"),
        ({"splits": ("train",)}, "must be NAME=SHARE"),
        ({"splits": ("../x=1",)}, "the names of splits must be words"),
        ({"to": "rlds"}, "no layout is called 'rlds'"),
        ({"fps": 0}, "fps must be above 0"),
        ({"sample": 0}, "sample must be at least 1"),
    ):
        with pytest.raises(PlanError, match=words):
            rewardlab.data_convert(rollouts, tmp_path / "never", **settings)


def test_names_from_outside_stay_below_the_folder() -> None:
    from rewardlab.data.convert import grouped_rollouts

    made = episode_from_frames(moving_square("x"), "open it")
    names = ("../../etc/passwd.mp4", "/abs.mp4", "a/b\n.mp4", "a/b?.mp4", "x" * 500, "..", "a.mp4#2")
    episodes = [replace(made, id=name, provenance=Provenance(subset="../up", camera="../../a")) for name in names]
    rollouts = grouped_rollouts(episodes, joins=False)
    assert {rollout.cameras for rollout in rollouts} == {("a",)}
    written = [rollout.name for rollout in rollouts]
    assert len(set(written)) == len(names) and all(name.startswith("up/") and ".." not in name for name in written)
    assert all(name.count("/") == 1 and name.isprintable() and len(name) < 150 for name in written)


def test_a_numbered_name_is_never_the_name_of_another_video(tmp_path: Path) -> None:
    names = ("x/a b.mp4", "x/a-b.mp4", "x/a-b-2.mp4")
    (tmp_path / "source" / "x").mkdir(parents=True)
    for count, name in enumerate(names, start=3):
        encode(moving_square(name, count), tmp_path / "source" / name, 10)
    write_rows(tmp_path / "source", [{"file_name": name, "task": "open it", "reward": 2} for name in names])
    rewardlab.data_convert(tmp_path / "source", tmp_path / "out")
    written = rewardlab.open_dataset(tmp_path / "out").episodes
    assert sorted(len(episode.clip) for episode in written) == [3, 4, 5]


def test_tasks_go_to_the_split_that_lacks_most() -> None:
    made = [episode_from_frames(moving_square(str(n), 2), f"task {n}") for n in range(20)]
    episodes = [replace(made[n % 20], id=str(n)) for n in range(200)]
    chosen = split_by_shares(episodes, {"train": 0.8, "test": 0.2}, (), seed=0)
    assert sorted(chosen.values()).count("test") == 40
    assert chosen == split_by_shares(episodes, {"train": 0.8, "test": 0.2}, (), seed=0)
    assert chosen != split_by_shares(episodes, {"train": 0.8, "test": 0.2}, (), seed=1)


def test_the_command_says_what_it_wrote(rollouts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "convert", str(rollouts), str(tmp_path / "out"), "--splits", "train=0.6,test=0.4"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out'}: train: 6, test: 4, left out: 0\n"
    assert main(["data", "convert", str(rollouts), str(tmp_path / "out")]) == 2
