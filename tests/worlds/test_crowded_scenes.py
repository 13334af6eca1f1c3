"""Things of other tasks beside a rollout, and other looks of its own: seen by the camera alone, and nothing is left."""

from pathlib import Path

import numpy as np
import pytest

import rewardlab
from rewardlab.core.errors import PlanError
from rewardlab.core.settings import Execution
from rewardlab.data import open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.perturbations.world import WORLD_PERTURBATIONS
from rewardlab.worlds import open_world
from rewardlab.worlds.metaworld.distractors import (
    DISTRACTORS,
    crowded_renderer,
    distractor_shape,
    nouns,
    place_distractors,
    scene_path,
)
from rewardlab.worlds.metaworld.instructions import phrasings
from rewardlab.worlds.metaworld.physics import TASKS, Trajectory, simulate
from rewardlab.worlds.metaworld.policies import make_policy
from rewardlab.worlds.metaworld.render import CameraView, task_renderer
from rewardlab.worlds.metaworld.scene_edits import DISTRACTOR_OBJECTS_EDIT, LOOK_EDIT, draw_look, render_rollout
from rewardlab.worlds.metaworld.tasks import COLOURS, FOLDS, TASK_OBJECTS, split_of_task, unseen_tasks
from tests.worlds.conftest import rows_of, same

VIEW = CameraView("top", 96)


def test_every_thing_can_be_asked_for_and_has_a_shape_in_every_state() -> None:
    for name, distractor in DISTRACTORS.items():
        for state in distractor.states:
            assert state.tasks and set(state.tasks) <= set(phrasings())
            assert 0.03 < distractor_shape(name, state).radius < 0.5
    opened, closed = (distractor_shape("drawer", state) for state in DISTRACTORS["drawer"].states)
    assert not np.allclose(opened.position, closed.position)


@pytest.mark.parametrize("task", ["drawer-open", "push", "coffee-push"])
def test_things_stand_away_from_the_work_and_from_one_another(task: str) -> None:
    rollout = simulate(task, 5, 60, make_policy("expert", task, 5))
    counts = []
    for seed in range(6):
        placed = place_distractors(rollout, 2, seed)
        assert [distractor.name for distractor in placed] == [
            distractor.name for distractor in place_distractors(rollout, 2, seed)
        ]
        counts.append(len(placed))
        said = [
            TASK_OBJECTS[task].split()[-1],
            *(noun for distractor in placed for noun in nouns(DISTRACTORS[distractor.name])),
        ]
        assert len(said) == len(set(said)), "an instruction must mean one thing"
        for number, distractor in enumerate(placed):
            radius = distractor_shape(distractor.name, distractor.state).radius
            assert np.linalg.norm(rollout.gripper_pos[:, :2] - distractor.centre, axis=1).min() > radius
            assert scene_path(DISTRACTORS[distractor.name].task) != scene_path(task)
            for other in placed[:number]:
                reach = radius + distractor_shape(other.name, other.state).radius
                assert np.linalg.norm(other.centre - distractor.centre) > reach
    assert max(counts) == 2


def test_a_crowded_scene_adds_things_and_changes_nothing_else(drawer: Trajectory) -> None:
    plain = render_rollout(drawer, [0, 160], VIEW)
    assert same(crowded_renderer("drawer-open").render(drawer, [0, 160], VIEW), plain), "hidden things are seen"
    crowded = render_rollout(drawer, [0, 160], VIEW, [(DISTRACTOR_OBJECTS_EDIT, (2, 1))])
    changed = (crowded != plain).any(axis=-1)
    assert 0.005 < changed.mean() < 0.4
    assert same(render_rollout(drawer, [0, 160], VIEW, [(DISTRACTOR_OBJECTS_EDIT, (2, 1))]), crowded)
    assert not same(render_rollout(drawer, [0, 160], VIEW, [(DISTRACTOR_OBJECTS_EDIT, (2, 2))]), crowded)
    assert same(crowded_renderer("drawer-open").render(drawer, [0, 160], VIEW), plain), "something was left behind"
    with pytest.raises(ValueError, match="not enough values"):
        render_rollout(drawer, [0], VIEW, [(DISTRACTOR_OBJECTS_EDIT, (2,))])
    assert same(render_rollout(drawer, [0, 160], VIEW), plain)


def test_another_look_repaints_the_things_of_the_task_alone_and_where_they_are(drawer: Trajectory) -> None:
    model = task_renderer("drawer-open").model
    before = [column.copy() for column in (model.geom_type, model.geom_rgba, model.geom_pos, model.geom_size)]
    plain = render_rollout(drawer, [0], VIEW).astype(int)
    other = render_rollout(drawer, [0], VIEW, [(LOOK_EDIT, (4,))]).astype(int)
    changed = np.abs(other - plain).max(axis=-1)[0] > 30
    assert 0.01 < changed.mean() < 0.25
    rows, columns = np.nonzero(changed)
    assert np.ptp(rows) < 60 and np.ptp(columns) < 60  # one place: the drawer
    after = (model.geom_type, model.geom_rgba, model.geom_pos, model.geom_size)
    assert all((old == new).all() for old, new in zip(before, after, strict=True))
    looks = {draw_look(seed) for seed in range(200)}
    assert all(look.moving != look.still for look in looks) and {look.moving for look in looks} == set(COLOURS)


@pytest.mark.slow
def test_collected_things_are_written_down_asked_for_and_rendered_again(tmp_path: Path) -> None:
    rewardlab.collect(
        "metaworld",
        tasks=("drawer-open",),
        episodes=2,
        quality=("expert",),
        frames=(14, 16),
        size=64,
        distractors=2,
        counterfactuals=9,
        execution=Execution(workers=1),
        out=tmp_path,
    )
    rows = rows_of(tmp_path)
    first = [row for row in rows if row["file_name"] == rows[0]["file_name"]]
    assert first[0]["things"] and all(name in DISTRACTORS for name in first[0]["things"])
    asked = [row for row in first if row.get("counterfactual") == "another_thing"]
    assert len(asked) == len(first[0]["things"]) and all(row["reward"] == 1 for row in asked)
    assert len({row["task"] for row in first}) == len(first)
    episode = sample_frames(open_dataset(str(tmp_path)).episodes[0], frame_policy("uniform:3"))
    assert episode.sim_state is not None
    again = open_world(episode.sim_state).render(episode.clip.order)
    empty = open_world({**episode.sim_state, "changes": []}).render(episode.clip.order)
    off = [np.abs(frames.astype(int) - episode.frames).mean() for frames in (again, empty)]
    assert off[0] < off[1] / 1.4  # only the codec lies between what was recorded and what is rendered again
    light = next(entry for entry in WORLD_PERTURBATIONS if entry.name == "world_camera")
    assert not same(light(episode, 3, 0).episode.frames, again)


def test_a_negative_number_of_distractors_is_refused() -> None:
    with pytest.raises(PlanError, match="distractors not negative"):
        rewardlab.collect("metaworld", distractors=-1)


def test_the_folds_part_the_tasks_and_the_first_is_the_test_split() -> None:
    folds = [unseen_tasks(fold) for fold in range(FOLDS)]
    assert sorted(task for fold in folds for task in fold) == sorted(TASKS)
    assert set(folds[0]) == {task for task in TASKS if split_of_task(task) == "test"}
