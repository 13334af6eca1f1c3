from pathlib import Path
from runpy import run_path

import numpy as np
import pytest

from rewardlab.core.episode import level_of_progress
from rewardlab.core.errors import PlanError
from rewardlab.worlds.metaworld.physics import TASKS, StepState, Trajectory, open_task, replay_actions, simulate
from rewardlab.worlds.metaworld.policies import POLICIES, SIBLING_TASKS, make_policy
from rewardlab.worlds.metaworld.task_progress import (
    LEVEL_STARTS_BY_FAMILY,
    PROGRESS_SPECS,
    fraction_covered,
    progress_of,
)
from tests.worlds.conftest import same

VALIDATION = run_path(str(Path(__file__).parents[2] / "results/worlds/simulator_validation.py"))

FEW = ("button-press", "pick-place", "door-close")


def test_all_fifty_tasks_have_a_progress_spec_of_a_known_family() -> None:
    assert len(TASKS) == 50
    assert {spec.family for spec in PROGRESS_SPECS.values()} == set(LEVEL_STARTS_BY_FAMILY)


def test_every_task_of_the_simulator_is_there() -> None:
    from rewardlab.worlds.metaworld.physics import load_module

    assert {f"{task}-v3" for task in TASKS} == set(load_module("metaworld.env_dict").ALL_V3_ENVIRONMENTS)
    assert set(SIBLING_TASKS) | set(SIBLING_TASKS.values()) <= set(TASKS)


@pytest.mark.parametrize("task", FEW)
def test_actions_taken_again_lead_through_the_same_states(task: str) -> None:
    first = simulate(task, 5, 60, make_policy("expert", task, 5))
    simulate(task, 6, 20, make_policy("random", task, 6))
    again = replay_actions(task, 5, first.actions)
    assert (
        same(first.qpos, again.qpos) and same(first.progress, again.progress) and same(first.body_pos, again.body_pos)
    )


def test_a_simulator_opened_anew_gives_the_same_states(drawer: Trajectory) -> None:
    open_task.cache_clear()
    assert same(replay_actions("drawer-open", 3, drawer.actions).qpos, drawer.qpos)


def test_an_expert_opens_the_drawer_and_progress_rises_to_one(drawer: Trajectory) -> None:
    summary = VALIDATION["summarise_rollout"](drawer)
    assert (summary.success, summary.level, summary.end) == (True, 5, 1.0)
    assert drawer.progress[0] == 0 and summary.rise > 0.9


def test_the_same_states_backwards_fall(drawer: Trajectory) -> None:
    assert VALIDATION["rank_correlation"](drawer.progress[::-1]) < -0.7


def test_the_random_policy_leaves_the_drawer_shut() -> None:
    trajectory = simulate("drawer-open", 3, 60, make_policy("random", "drawer-open", 3))
    assert trajectory.readings[-1].level == 1


@pytest.mark.parametrize("quality", POLICIES)
def test_every_quality_acts_within_bounds_and_repeats(quality: str) -> None:
    runs = [simulate("drawer-open", 4, 60, make_policy(quality, "drawer-open", 4)) for _ in range(2)]
    assert np.abs(runs[0].actions).max() <= 1
    assert same(runs[0].actions, runs[1].actions)


def test_one_that_stops_early_stops_at_its_limit() -> None:
    trajectory = simulate("drawer-open", 4, 160, make_policy("stops_early", "drawer-open", 4, limit=0.5))
    assert 0.4 < trajectory.progress[-1] < 0.9 and trajectory.readings[-1].level == 3


def test_what_moves_but_not_towards_the_goal_is_no_progress() -> None:
    assert fraction_covered(0.2, 0.3, 0.05) == 0
    assert fraction_covered(0.2, 0.05, 0.05) == 1


@pytest.mark.parametrize("family", LEVEL_STARTS_BY_FAMILY)
def test_levels_begin_where_the_table_says(family: str) -> None:
    starts = LEVEL_STARTS_BY_FAMILY[family]
    for level, start in enumerate(starts, start=2):
        assert level_of_progress(progress_of(family, start + 1e-6, 0)) == level
        assert level_of_progress(progress_of(family, start - 1e-3, 0)) == level - 1
    assert level_of_progress(progress_of(family, 1.0, 1.0)) == 4  # five is the simulator's to give


def test_a_gripper_that_comes_near_stays_at_level_one() -> None:
    assert 0 < progress_of("carry", 0.0, 1.0) < 0.1
    assert progress_of("carry", 0.05, 0.5) < progress_of("carry", 0.05, 1.0) < 0.1


def test_an_unknown_task_is_answered_with_close_names() -> None:
    with pytest.raises(PlanError, match="drawer-open"):
        simulate("drawer-opn", 0, 1, lambda _now: np.zeros(4))


def test_too_long_a_rollout_is_refused() -> None:
    def still(_now: StepState) -> np.ndarray:
        return np.zeros(4)

    with pytest.raises(PlanError, match="501"):
        simulate("reach", 0, 501, still)
