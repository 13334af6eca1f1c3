"""Several cameras of one rollout in one episode: read, checked, converted, perturbed alike, and decoded when asked."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import rewardlab
from rewardlab.core.episode import Episode, Frames, Indices, hold_frames, in_memory, strip_labels, view_episodes
from rewardlab.core.errors import DataError, NotApplicable
from rewardlab.core.settings import Scoring
from rewardlab.core.trial import Failure, Score
from rewardlab.core.video_encoding import encode
from rewardlab.data import data_check, open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.perturbations import PERTURBATIONS
from tests.conftest import IN_PROCESS, moving_square, write_rows
from tests.data.lerobot_writer import write_v2, write_v3
from tests.data.test_formats_end_to_end import write_hdf5, write_roboarena
from tests.data.test_rlds import TWO
from tests.data.tfrecord_writer import write_rlds
from tests.plans import stress_plan


class Unreadable:
    """A view of which nobody may read a frame."""

    digest = "never read"
    count = 20

    def read(self, indices: Indices) -> Frames:
        raise AssertionError(f"frames {indices} were decoded")


def write_views(folder: Path, views: object, wrist_frames: int = 20) -> Path:
    """Write one rollout: the square on a background, and on another one what the wrist camera saw."""
    row = {"file_name": "arm/a.mp4", "task": "put the red cup on the plate", "reward": 5, "camera": "front"}
    write_rows(folder, [row | {"views": views}])
    (folder / "arm").mkdir()
    encode(moving_square("a"), folder / "arm" / "a.mp4", fps=10)
    encode(moving_square("wrist", count=wrist_frames, size=64), folder / "arm" / "w.mp4", fps=10)
    return folder


def the_episode(data: object) -> Episode:
    contents = open_dataset(str(data))
    assert contents.problems == ()
    (episode,) = contents.episodes
    return episode


@pytest.fixture
def filmed_twice(tmp_path: Path) -> Path:
    return write_views(tmp_path / "twice", {"wrist": "arm/w.mp4"})


def test_a_row_names_further_views_whose_frames_are_those_of_the_same_moments(filmed_twice: Path) -> None:
    episode = sample_frames(the_episode(filmed_twice), frame_policy("uniform:4"))
    assert list(episode.views) == ["wrist"]
    wrist = view_episodes(episode)["wrist"]
    assert episode.frames.shape == (4, 48, 48, 3) and wrist.frames.shape == (4, 64, 64, 3)
    whole = the_episode(f"{filmed_twice}@wrist")
    assert (whole.views, whole.provenance.camera) == ({}, "wrist")
    assert_array_equal(wrist.frames, whole.frames[episode.clip.order])
    swapped = the_episode(f"{filmed_twice}@wrist,front")
    assert list(swapped.views) == ["front"] and swapped.clip.source.digest == whole.clip.source.digest
    listed = the_episode(write_views(filmed_twice.with_name("listed"), ["arm/w.mp4"]))
    assert list(listed.views) == ["view2"] and not rewardlab.data.dataset_notes(filmed_twice)


def test_views_are_part_of_what_identifies_an_episode_and_no_views_change_nothing(filmed_twice: Path) -> None:
    episode, alone = the_episode(filmed_twice), the_episode(f"{filmed_twice}@front")
    assert episode.hash != alone.hash and episode.id == alone.id
    assert alone.hash == replace(episode, views={}).hash
    assert strip_labels(episode).hash != strip_labels(alone).hash


@pytest.mark.parametrize(
    ("views", "frames", "words"),
    [
        ({"wrist": "arm/w.mp4"}, 19, "has 19 frames, and the first view 20"),
        ({"wrist": "arm/none.mp4"}, 20, "none.mp4"),
        ({"wrist": "../w.mp4"}, 20, "views must stay below the folder"),
        ({"wrist": 7}, 20, "views must be a path"),
        ("arm/w.mp4", 20, "views must be the videos of further cameras, such as"),
    ],
)
def test_a_view_that_cannot_be_used_is_a_problem_of_its_row(
    views: object, frames: int, words: str, tmp_path: Path
) -> None:
    contents = open_dataset(write_views(tmp_path / "data", views, frames))
    (problem,) = contents.problems
    assert problem.place == "line 1" and words in problem.what and not contents.episodes


def test_check_decodes_every_view(filmed_twice: Path) -> None:
    assert not data_check(filmed_twice).problems
    path = filmed_twice / "arm" / "w.mp4"
    content = bytearray(path.read_bytes())
    content[len(content) // 3 : len(content) // 2] = bytes(len(content) // 2 - len(content) // 3)
    path.write_bytes(bytes(content))
    (problem,) = data_check(filmed_twice).problems
    assert "w.mp4" in problem.what


@pytest.mark.parametrize(
    ("write", "cameras"),
    [
        (write_v2, ("front", "wrist")),
        (write_v3, ("wrist", "front")),
        (lambda folder: write_rlds(folder, TWO), ("image", "wrist_image")),
        (write_hdf5, ()),
        (lambda folder: write_even_roboarena(folder), ("left", "wrist")),
    ],
    ids=["lerobot v2", "lerobot v3", "rlds", "hdf5", "roboarena"],
)
def test_formats_with_several_cameras_give_one_episode_with_the_named_views(
    write: object, cameras: tuple[str, ...], tmp_path: Path
) -> None:
    assert callable(write)
    write(tmp_path / "data")
    every = open_dataset(f"{tmp_path / 'data'}@all").episodes
    names = cameras or tuple(dict.fromkeys(each.provenance.camera for each in every))
    contents = open_dataset(f"{tmp_path / 'data'}@{','.join(names)}")
    alone = {name: open_dataset(f"{tmp_path / 'data'}@{name}").episodes for name in names}
    assert len(names) > 1 and not contents.problems and len(contents.episodes) == len(every) / len(names)
    for number, episode in enumerate(contents.episodes):
        assert episode.id == alone[names[0]][number].id
        assert_array_equal(episode.frames, alone[names[0]][number].frames)
        for name in names[1:]:
            assert_array_equal(view_episodes(episode)[name].frames, alone[name][number].frames)


def test_cameras_that_are_not_there_and_names_twice_are_said(tmp_path: Path) -> None:
    write_v3(tmp_path)
    for camera, words in (("front,top", "no camera 'top'"), ("front,front", "names of different cameras")):
        with pytest.raises(DataError, match=words):
            open_dataset(f"{tmp_path}@{camera}")
    with pytest.raises(DataError, match="different cameras"):
        open_dataset(f"{tmp_path}@all,front")


def test_a_rollout_that_one_camera_did_not_film_as_long_is_a_problem(tmp_path: Path) -> None:
    write_roboarena(tmp_path)
    contents = open_dataset(f"{tmp_path}@left,wrist")
    (problem,) = contents.problems
    assert not contents.episodes and "wrist filmed another number of frames" in problem.what


def test_convert_keeps_the_views_and_joins_them_for_lerobot(filmed_twice: Path, tmp_path: Path) -> None:
    before = the_episode(filmed_twice)
    for layout in ("roboreward", "lerobot"):
        rewardlab.data_convert(filmed_twice, tmp_path / layout, to=layout, fps=5)
    copy = the_episode(tmp_path / "roboreward")
    joined = the_episode(f"{tmp_path / 'lerobot'}@front,wrist")
    row = json.loads((tmp_path / "roboreward" / "metadata.jsonl").read_text())
    assert (tmp_path / "roboreward" / row["views"]["wrist"]).is_file() and "@wrist" in row["views"]["wrist"]
    for after in (copy, joined):
        assert list(after.views) == ["wrist"] and len(after.clip) == 11
        expected = view_episodes(before)["wrist"].frames[[*range(0, 20, 2), 19]]
        gap = np.abs(view_episodes(after)["wrist"].frames.astype(int) - expected)
        assert gap.mean() < 4  # encoded twice
    rewardlab.data_convert(filmed_twice, tmp_path / "robometer", to="robometer")  # has no place for them
    assert len(list((tmp_path / "robometer").rglob("*.mp4"))) == 1


def small(data: str, name: str) -> Episode:
    (episode,) = (each for each in open_dataset(data).episodes if each.id == name)
    episode = sample_frames(episode, frame_policy("uniform:24"))
    return replace(episode, clip=hold_frames(episode.clip, np.unique(episode.clip.order)))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, each in PERTURBATIONS.items() if not each.uses_world])
def test_every_perturbation_does_the_same_to_a_view_as_to_the_first(name: str) -> None:
    """The second view shows the very frames of the first, so it must come out as the first does."""
    alone = small("sample", "bridge_v2/9be3d357ea.mp4")
    same = replace(alone, clip=replace(alone.clip, order=np.arange(24), source=in_memory(alone.frames)))
    episode = replace(same, views={"copy": in_memory(alone.frames)})
    dataset = open_dataset("sample").episodes
    perturbation = PERTURBATIONS[name]
    for severity in (1, 4):
        try:
            expected = perturbation(same, severity, 7, dataset)
        except NotApplicable:
            with pytest.raises(NotApplicable):
                perturbation(episode, severity, 7, dataset)
            continue
        found = perturbation(episode, severity, 7, dataset)
        assert_array_equal(found.episode.frames, expected.episode.frames)  # the first is as without views
        assert (found.expect, found.episode.label) == (expected.expect, expected.episode.label)
        shown = sample_frames(found.episode, frame_policy("uniform:5"))
        assert_array_equal(view_episodes(shown)["copy"].frames, shown.frames)


def test_a_changed_world_has_no_further_view_and_the_first_one_stays() -> None:
    pytest.importorskip("mujoco")
    alone = small("sample-sim", "metaworld/drawer-open-0001.mp4")
    episode = replace(alone, views={"copy": alone.clip.source})
    found = PERTURBATIONS["world_light_intensity"](episode, 4, 7).episode
    assert found.frames.shape == alone.frames.shape
    with pytest.raises(DataError, match="renders a changed scene for the first camera only"):
        found.views["copy"].read(np.arange(2))


def write_even_roboarena(folder: Path) -> None:
    """Write a dump whose cameras filmed equally long."""
    write_roboarena(folder)
    for video in folder.rglob("*.mp4"):
        encode(moving_square(video.name, count=6), video, fps=10)


class Reader:
    """A model that says how bright the last frame of every view is."""

    def score(self, episodes: Sequence[Episode]) -> list[Score | Failure]:
        return [
            Score(1 + 4 * float(view_episodes(e)["wrist"].frames[-1].mean()) / 255, raw=",".join(e.views))
            for e in episodes
        ]


CODE = """
from rewardlab import Score
from rewardlab.core.episode import view_episodes

class Wrist:
    def score(self, episodes):
        return [Score(1 + 4 * float(view_episodes(e)["wrist"].frames[-1].mean()) / 255) for e in episodes]
"""


def test_a_run_decodes_a_view_for_the_models_that_read_it_alone(filmed_twice: Path, tmp_path: Path) -> None:
    plan = stress_plan(
        (Reader(), "length"), filmed_twice, ("reverse", "low_light"), (1, 4), out=tmp_path / "run", execution=IN_PROCESS
    )
    trials = evaluate(plan).trials()
    read = trials.where(trials.matches("model", "Reader"))
    assert set(read.text("status")) == {"scored"} and set(read.text("raw")) == {"wrist"}
    levels = dict(
        zip(zip(read.text("perturbation"), read.number("severity"), strict=True), read.number("level"), strict=True)
    )
    assert levels["low_light", 4] < levels["low_light", 1] < levels["clean", 0] != levels["reverse", 4]
    (episode,) = open_dataset(filmed_twice).episodes
    blind = strip_labels(replace(episode, views={"wrist": Unreadable()}))
    for model in ("length", "motion", "pocket"):
        alone = rewardlab.score(model, replace(episode, views={}))
        assert rewardlab.score(model, blind, episode.instruction) == alone  # not one frame of the view is asked for


@pytest.mark.slow
def test_a_model_in_a_process_of_its_own_gets_the_views(
    filmed_twice: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "viewlab.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "viewlab", raising=False)
    levels = {}
    for name, model in (("apart", "viewlab:Wrist"), ("here", Reader())):
        execution = replace(IN_PROCESS, engine="processes" if name == "apart" else "local", workers=1)
        chosen = dict(out=tmp_path / name, execution=execution, controls=False, scoring=Scoring())
        plan = stress_plan(model, filmed_twice, "pixelate", (4,), **chosen)
        trials = evaluate(plan).trials()
        assert set(trials.text("status")) == {"scored"}, trials.text("reason")
        levels[name] = dict(zip(trials.text("perturbation"), trials.number("level"), strict=True))
    assert levels["apart"] == levels["here"]
