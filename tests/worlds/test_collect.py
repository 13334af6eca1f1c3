import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import rewardlab
from rewardlab.core.errors import DataError, PlanError, RunError
from rewardlab.core.settings import Execution
from rewardlab.core.storage import locked
from rewardlab.data import open_dataset
from rewardlab.data.roboreward import captioned_videos
from rewardlab.worlds.metaworld.physics import TASKS
from rewardlab.worlds.metaworld.tasks import SPLITS, split_of_task
from rewardlab.worlds.plan import PlannedEpisode, wanted_level
from tests.worlds.conftest import rows_of

SETTINGS: dict[str, Any] = {
    "tasks": ("button-press", "reach"),
    "episodes": 3,
    "quality": ("expert", "random"),
    "frames": (8, 12),
    "size": 48,
    "counterfactuals": 1,
}


def collect(folder: Path, *, workers: int = 1, **more: Any) -> None:
    rewardlab.collect("metaworld", **{**SETTINGS, "out": folder, **more}, execution=Execution(workers))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    collect(folder)
    return folder


def test_what_is_collected_is_a_sound_dataset_with_truth_and_world(reference: Path) -> None:
    found = open_dataset(str(reference))
    assert not found.problems
    assert len({episode.id.split("#")[0] for episode in found.episodes}) == 6
    for episode in found.episodes:
        assert episode.sim_state is not None and Path(str(episode.sim_state["file"])).exists()
        assert episode.label.success == (episode.label.level == 5)
    own = [episode for episode in found.episodes if episode.label.progress]
    assert len(own) == 6 and len(found.episodes) > 6
    assert all((e.label.progress or (0,))[-1] == 1 for e in own if e.label.success)


@pytest.mark.slow
def test_two_workers_give_the_same_bytes_as_one(reference: Path, tmp_path: Path) -> None:
    collect(tmp_path, workers=2)
    assert contents(tmp_path) == contents(reference)


@pytest.mark.slow
def test_a_killed_collection_resumes_with_nothing_lost_and_nothing_doubled(reference: Path, tmp_path: Path) -> None:
    code = f"from tests.worlds.test_collect import *; collect(Path({str(tmp_path)!r}))"
    running, rows = subprocess.Popen([sys.executable, "-c", code]), tmp_path / "metadata.jsonl"
    while not rows.exists() or rows.read_text().count("\n") < 2:
        assert running.poll() is None
        time.sleep(0.02)
    running.kill()
    running.wait()
    with (tmp_path / "metadata.jsonl").open("a") as handle:
        handle.write('{"file_name": "torn in the mid')
    (tmp_path / "metaworld" / ".left.mp4.1.tmp").write_bytes(b"half a video")
    collect(tmp_path)
    assert contents(tmp_path) == contents(reference)


def test_a_finished_collection_is_left_as_it_is(reference: Path) -> None:
    before = contents(reference)
    collect(reference)
    assert contents(reference) == before


def test_other_settings_do_not_mix_into_a_folder(reference: Path) -> None:
    with pytest.raises(RunError, match="other settings"):
        collect(reference, seed=5)


def test_a_folder_from_before_a_setting_existed_goes_on(reference: Path, tmp_path: Path) -> None:
    shutil.copytree(reference, tmp_path / "old")
    record = tmp_path / "old" / "collect.json"
    record.write_text(json.dumps({k: v for k, v in json.loads(record.read_text()).items() if k != "distractors"}))
    collect(tmp_path / "old")
    assert contents(tmp_path / "old") == contents(reference)
    with pytest.raises(RunError, match="other settings"):
        collect(tmp_path / "old", distractors=1)


def test_a_second_writer_is_told_so(reference: Path) -> None:
    code = f"from tests.worlds.test_collect import *; collect(Path({str(reference)!r}))"
    with locked(reference):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "being written by another process" in done.stderr


def test_the_length_of_a_video_says_nothing_about_its_level(reference: Path, tmp_path: Path) -> None:
    collect(tmp_path, quality=("random",))
    lengths = [[len(row["progress"]) for row in rows_of(f) if "progress" in row] for f in (reference, tmp_path)]
    assert lengths[0] == lengths[1] and len(set(lengths[0])) > 1


def test_a_changed_world_is_recorded_and_rendered_again(tmp_path: Path) -> None:
    import numpy as np

    from rewardlab.perturbations.world import WORLD_PERTURBATIONS
    from rewardlab.worlds import open_world

    collect(tmp_path, tasks=("reach",), episodes=1, world=("world_table_texture:4",), counterfactuals=0)
    (episode,) = open_dataset(str(tmp_path)).episodes
    assert episode.sim_state is not None
    again = open_world(episode.sim_state).render(episode.clip.order)
    assert np.abs(again.astype(float) - episode.frames).mean() < 12
    twice = next(entry for entry in WORLD_PERTURBATIONS if entry.name == "world_light_intensity")(
        episode, 4, 0
    ).episode.frames
    assert twice.mean() < again.mean()


def test_levels_are_balanced_over_tasks_where_one_has_few_episodes() -> None:
    planned = [PlannedEpisode("metaworld", task, index) for task in ("push", "reach", "lift") for index in range(2)]
    assert [wanted_level(each, planned, 2) for each in planned] == [1, 2, 3, 4, 5, 1]
    many = [PlannedEpisode("metaworld", task, index) for task in ("push", "reach") for index in range(6)]
    assert [wanted_level(each, many, 6) for each in many] == [1, 2, 3, 4, 5, 1] * 2


@pytest.mark.slow
def test_balanced_levels_are_looked_for(tmp_path: Path) -> None:
    collect(tmp_path, tasks=("drawer-open",), episodes=5, quality=("all",), balance=True, frames=(20, 24))
    levels = [row["reward"] for row in rows_of(tmp_path) if "progress" in row]
    assert len(set(levels)) >= 4


def test_splits_are_disjoint_in_tasks_and_name_every_video_once(reference: Path) -> None:
    names = [name for split in SPLITS for name in (reference / "splits" / f"{split}.txt").read_text().split()]
    assert sorted(names) == sorted({str(row["file_name"]) for row in rows_of(reference)})
    assert {split_of_task(task) for task in TASKS} == set(SPLITS)
    assert 30 <= sum(split_of_task(task) == "train" for task in TASKS) <= 40


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tasks": ("drawer-opn",)}, "drawer-open"),
        ({"quality": ("lazy",)}, "quality"),
        ({"camera": ("selfie",)}, "camera"),
        ({"world": ("world_fog:2",)}, "changed world"),
        ({"world": ("world_fov",)}, "world_fov:3"),
        ({"frames": (5,)}, "least,most"),
        ({"frames": (10, 90)}, "500 steps"),
        ({"phrasings": "rude"}, "train, held_out"),
        ({"episodes": 0}, "at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        collect(Path("unused"), **settings)


def test_the_record_of_a_collection_is_its_settings(reference: Path) -> None:
    record = json.loads((reference / "collect.json").read_text())
    assert record["episodes"] == 3 and "out" not in record


def test_captions_say_what_moved_and_what_stands_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "captioned"
    collect(folder, tasks=("push",), quality=("expert",), episodes=1, captions=True, distractors=2, counterfactuals=1)
    (row, *_) = rows = [json.loads(line) for line in (folder / "metadata.jsonl").read_text().splitlines()]
    assert len(rows) == 2 and row["caption"].startswith("the gripper moved") and "the puck was pushed" in row["caption"]
    assert row["caption"].endswith("; beside it: " + ", ".join(row["things"]))
    ((shown, said),) = captioned_videos(folder)  # a video once, however many instructions it has
    assert said == row["caption"] and len(shown.frames) == len(row["progress"])


def test_a_dataset_without_captions_is_told_how_to_get_them(reference: Path) -> None:
    with pytest.raises(DataError, match=r"no row in .* has a caption; .* --captions"):
        next(captioned_videos(reference))
