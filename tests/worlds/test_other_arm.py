"""Another embodiment: the Panda's hand is where the recorded hand was, only the camera sees it, and nothing is left."""

from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rewardlab
from rewardlab.core.episode import Episode, Frames
from rewardlab.core.errors import NotApplicable, RunError
from rewardlab.core.seeding import rng_for
from rewardlab.core.settings import Execution
from rewardlab.data import open_dataset
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.perturbations.world import WORLD_PERTURBATIONS
from rewardlab.worlds import open_world
from rewardlab.worlds.edits import WORLD_EDITS
from rewardlab.worlds.metaworld.other_arm import (
    LINKS,
    MOST_DISTANCE,
    HandPath,
    follow_path,
    other_arm_renderer,
    panda_spec,
    recorded_hand,
    solve_inverse_kinematics,
    with_other_arm,
)
from rewardlab.worlds.metaworld.physics import Trajectory, load_module, simulate
from rewardlab.worlds.metaworld.policies import make_policy
from rewardlab.worlds.metaworld.render import CameraView
from rewardlab.worlds.metaworld.scene_edits import DISTRACTOR_OBJECTS_EDIT, LOOK_EDIT, ROBOT_EDIT, render_rollout
from tests.narrowing import known
from tests.worlds.conftest import rows_of, same

VIEW, STEPS = CameraView("right", 96), [0, 80, 160]
UNPAINTED = (0.0, 0.0, 0.0, 0.0)
PANDA = (ROBOT_EDIT, (1, 1.0, *UNPAINTED))
WORLD_ROBOT = next(entry for entry in WORLD_PERTURBATIONS if entry.name == "world_robot")


def qpos_of(episode: Episode) -> np.ndarray:
    world: Any = open_world(known(episode.sim_state))
    return np.array(world.trajectory.qpos)


def red_arm(frames: Frames) -> np.ndarray:
    """Return which pixels have the Sawyer's paint."""
    red, green, blue = np.moveaxis(frames.astype(int), -1, 0)
    return np.asarray((red > 60) & (green < red / 3) & (blue < red / 3))


def test_the_hand_of_the_other_arm_is_where_the_recorded_hand_was(drawer: Trajectory) -> None:
    mujoco, rendered = load_module("mujoco"), with_other_arm(drawer, range(161))
    model = panda_spec(seen=False).compile()
    data = mujoco.MjData(model)
    assert same(rendered.qpos[:, : drawer.qpos.shape[1]], drawer.qpos)
    for step in range(0, 161, 5):
        data.qpos[:] = rendered.qpos[step, drawer.qpos.shape[1] :]
        mujoco.mj_kinematics(model, data)
        assert np.linalg.norm(data.site("tip").xpos - drawer.gripper_pos[step]) < MOST_DISTANCE
        assert data.site("tip").xmat.reshape(3, 3)[2, 2] < -0.98  # it points down


def test_the_fingers_open_and_close_as_the_recorded_ones_do() -> None:
    rollout = simulate("pick-place", 3, 60, make_policy("expert", "pick-place", 3))
    opening = solve_inverse_kinematics(rollout).qpos[:, -2:].sum(axis=1)
    assert opening[0] == pytest.approx(0.08)  # the Panda's widest, which the Sawyer's is a little wider than
    assert 0.03 < opening[-1] < 0.045  # around the block, which is 4 cm wide


def test_the_motion_is_smooth_within_the_limits_and_the_same_again(drawer: Trajectory) -> None:
    path = recorded_hand(drawer)
    first, again = follow_path(path), follow_path(path)
    assert same(first.qpos, again.qpos)
    low, high = np.array([link.limits for link in LINKS]).T
    joints = first.qpos[:, : len(LINKS)]
    assert (joints >= low).all() and (joints <= high).all()
    assert np.abs(np.diff(joints, axis=0)).max() < 0.1


def test_a_hand_out_of_reach_makes_it_not_applicable_where_it_is_shown(drawer: Trajectory) -> None:
    away = drawer.gripper_pos.copy()
    away[100:] += np.linspace(0, 1.5, 61)[:, None] * [0.0, 1.0, 0.0]
    left = replace(drawer, gripper_pos=away)
    with pytest.raises(NotApplicable, match=r"cannot follow the recorded hand: it stays \d+\.\d cm"):
        with_other_arm(left, [0, 160])
    assert with_other_arm(left, [0, 90]).qpos.shape[0] == 161
    path = recorded_hand(drawer)
    tipped = HandPath(path.position, path.rotation @ np.diag([1.0, -1.0, -1.0]), path.opening)
    assert follow_path(tipped).tilt.max() > 1, "a hand that should point up was said to be followed"


def test_the_other_arm_is_seen_and_the_recorded_one_is_not(drawer: Trajectory) -> None:
    plain, other = (render_rollout(drawer, STEPS, VIEW, changes) for changes in ((), (PANDA,)))
    assert red_arm(plain).mean() > 0.02 and not red_arm(other).any()
    assert same(render_rollout(drawer, STEPS, VIEW, [PANDA]), other)
    assert same(render_rollout(drawer, STEPS[::2], VIEW, [PANDA]), other[::2]), "a frame depends on what else is shown"
    model, data = (
        other_arm_renderer("drawer-open", crowded=False).model,
        other_arm_renderer("drawer-open", crowded=False).data,
    )
    seen = [model.body(model.geom_bodyid[geom]).name for geom in np.flatnonzero(model.geom_group < 3)]
    assert "hand" not in seen and "panda/hand" in seen and "drawer_link" in seen
    assert np.linalg.norm(data.site("panda/tip").xpos - drawer.gripper_pos[160]) < MOST_DISTANCE
    assert same(render_rollout(drawer, STEPS, VIEW), plain), "something was left behind"


def test_nothing_but_the_arm_changes(drawer: Trajectory) -> None:
    """Away from both arms, a frame is what it was; the drawer and the table are still there."""
    view = CameraView("far", 96)
    plain, other = (render_rollout(drawer, [0], view, changes)[0].astype(int) for changes in ((), (PANDA,)))
    changed = np.abs(plain - other).max(axis=-1) > 0
    assert 0.02 < changed.mean() < 0.5
    assert not changed[60:, 60:].any()


def test_thicker_and_thinner_links_differ_and_leave_nothing_behind(drawer: Trajectory) -> None:
    for arm in (0, 1):
        as_built, thick, thin, again = (
            render_rollout(drawer, [0], VIEW, [(ROBOT_EDIT, (arm, factor, 0.1, 0.15, 0.85, 0.95))])
            for factor in (1.0, 1.4, 1 / 1.4, 1.0)
        )
        assert same(as_built, again)
        blue = [(frames[..., 2] > 1.5 * frames[..., 0].astype(int) + 20).mean() for frames in (thin, as_built, thick)]
        assert blue[0] < blue[1] < blue[2]


@pytest.mark.slow
def test_it_goes_with_the_other_edits(drawer: Trajectory) -> None:
    panda = render_rollout(drawer, STEPS, VIEW, [PANDA])
    for change in (
        (DISTRACTOR_OBJECTS_EDIT, (2, 1)),
        (LOOK_EDIT, (4,)),
        ("table_texture", (1.0, 3)),
        ("camera", (20, 5, 1.1)),
    ):
        both = render_rollout(drawer, STEPS, VIEW, [change, PANDA])
        assert not same(both, panda) and not same(both, render_rollout(drawer, STEPS, VIEW, [change]))
    painted = render_rollout(drawer, STEPS, VIEW, [PANDA, ("robot_colour", (0.1, 0.15, 0.85, 0.95))])
    assert same(painted, render_rollout(drawer, STEPS, VIEW, [(ROBOT_EDIT, (1, 1.0, 0.1, 0.15, 0.85, 0.95))]))
    objects = render_rollout(drawer, STEPS, VIEW, [PANDA, ("object_colour", (0.9, 0.1, 0.9, 1.0))])
    assert 0.005 < (objects != panda).any(axis=-1).mean() < 0.3, "the paint of the object is on the arm"


def test_severities_grow_from_paint_to_another_painted_arm(drawer: Trajectory) -> None:
    edit, clean = WORLD_EDITS["world_robot"], render_rollout(drawer, STEPS, VIEW).astype(float)
    amounts = [edit.sample(parameter, rng_for(1, "severities")) for parameter in edit.table]
    assert [amount[0] for amount in amounts] == [0, 0, 1, 1]
    assert len({amount[2:5] for amount in amounts}) == 1  # the same paint, wherever there is one
    frames = [render_rollout(drawer, STEPS, VIEW, [(ROBOT_EDIT, amount)]) for amount in amounts]
    change = [np.abs(each - clean).mean() for each in frames]
    assert change[0] < change[1] < change[3] and change[0] < change[2]


@pytest.mark.slow
def test_the_labels_and_the_physics_are_those_of_the_recorded_arm(episodes: tuple[Episode, ...]) -> None:
    episode = sample_frames(episodes[0], frame_policy("uniform:3"))
    before = qpos_of(episode)
    changed = WORLD_ROBOT(episode, 3, 0)
    assert changed.expect == "same" and changed.episode.label == episode.label
    assert changed.episode.instruction == episode.instruction
    assert same(qpos_of(episode), before)


def collect_one_episode(out: Path, world: str) -> None:
    rewardlab.collect(
        "metaworld",
        tasks=("drawer-open",),
        episodes=1,
        quality=("expert",),
        world=(world,),
        distractors=1,
        frames=(14, 16),
        size=64,
        execution=Execution(workers=1),
        out=out,
    )


@pytest.mark.slow
def test_a_collection_says_which_arm_it_shows(tmp_path: Path) -> None:
    collect_one_episode(tmp_path, "world_robot:4")
    row = rows_of(tmp_path)[0]
    assert row["embodiment"] == "Franka Panda, simulated" and row["world_change"] == "world_robot:4" and row["things"]
    (episode,) = open_dataset(str(tmp_path)).episodes
    assert episode.sim_state is not None
    again = open_world(episode.sim_state).render(episode.clip.order)
    assert np.abs(again.astype(float) - episode.frames).mean() < 12


@pytest.mark.slow
def test_a_collection_films_the_recorded_arm_where_the_other_cannot_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rewardlab.worlds.metaworld.other_arm.MOST_DISTANCE", 0.0)
    collect_one_episode(tmp_path, "world_robot:3")
    row = rows_of(tmp_path)[0]
    assert row["embodiment"] == "Sawyer, simulated" and row["world_change"] == "plain" and row["things"]
    assert [change[0] for change in row["world"]["changes"]] == [DISTRACTOR_OBJECTS_EDIT]
    monkeypatch.undo()
    with pytest.raises(RunError, match="none to hide"):
        collect_one_episode(tmp_path / "marker", "world_goal_hidden:3")


def test_the_meshes_are_small_and_their_licence_lies_beside_them() -> None:
    folder = files("rewardlab.worlds.metaworld") / "panda"
    assert len((folder / "meshes.npz").read_bytes()) < 200_000
    text = (folder / "README.md").read_text()
    assert "Apache License 2.0" in text and "Permission is hereby granted" in text


def test_a_followed_rollout_is_solved_once(drawer: Trajectory) -> None:
    assert solve_inverse_kinematics(drawer) is solve_inverse_kinematics(drawer)
