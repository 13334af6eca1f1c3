"""Why a rollout failed and when, as the simulators know it."""

from pathlib import Path

import numpy as np
import pytest

import rewardlab
from rewardlab.core.episode import FailureEvent
from rewardlab.core.settings import Execution
from rewardlab.data import open_dataset
from rewardlab.worlds.metaworld.physics import simulate
from rewardlab.worlds.metaworld.policies import failure_of, make_policy
from rewardlab.worlds.tabletop.goals import progress
from rewardlab.worlds.tabletop.rollouts import QUALITIES, make_rollout
from tests.worlds.conftest import rows_of

CAUSES = {
    **{"stop": "early_end", "missed_grasp": "missed_grasp", "near_miss": "target_not_reached", "undone": "other"},
    **{"wrong_place": "target_not_reached", "wrong_thing": "wrong_object", "drop": "dropped", "idle": "other"},
}


@pytest.mark.parametrize("quality", QUALITIES)
def test_a_tabletop_rollout_has_a_cause_exactly_where_its_goal_is_not_reached(quality: str) -> None:
    for seed in range(6):
        rollout = make_rollout(seed, "put-in", quality)
        failed = progress(rollout.scene, rollout.states, rollout.goal)[-1] < 1
        assert (rollout.failure is not None) == failed
        if rollout.failure is not None:
            states = rollout.states
            idle = not np.ptp(states.place, axis=0).any() and not np.ptp(states.value, axis=0).any()
            idle = idle and quality in ("idle", "wrong_thing")  # there may be nothing else to take
            assert rollout.failure.cause == ("other" if idle else CAUSES[quality])
            assert (rollout.failure.frame is None) == idle


def test_the_state_of_a_tabletop_failure_is_where_it_happens() -> None:
    for seed in range(6):
        states, failure = (rollout := make_rollout(seed, "put-in", "drop")).states, rollout.failure
        if failure is not None:  # it did not fall into the goal
            held = states.held == rollout.goal.thing
            assert failure.frame is not None and held[failure.frame - 1] and not held[failure.frame :].any()
        missed = make_rollout(seed, "put-in", "missed_grasp")
        assert missed.failure is not None and (missed.states.held < 0).all()
        shut = missed.states.opening[missed.failure.frame]
        assert shut == missed.states.opening.min() and (missed.states.opening[: missed.failure.frame] > shut).all()
        stopped = make_rollout(seed, "put-in", "stop")
        if stopped.failure is not None:
            after = stopped.states.at(np.arange(stopped.failure.frame or 0, len(stopped.states)))
            assert (after.hand == after.hand[0]).all() and len(after) > 1
        wrong = make_rollout(seed, "put-in", "wrong_thing")
        if wrong.failure is not None and wrong.failure.frame is not None:
            touched = wrong.states.held[: wrong.failure.frame + 1]
            assert (touched[:-1] < 0).all() and wrong.goal.thing not in wrong.states.held
        undone = make_rollout(seed, "put-in", "undone")
        own = progress(undone.scene, undone.states, undone.goal)
        assert undone.failure is not None and undone.failure.frame is not None
        assert own[undone.failure.frame - 1] == 1 > own[undone.failure.frame]


@pytest.mark.slow
def test_collected_rows_carry_cause_and_frame_of_the_video(tmp_path: Path) -> None:
    rewardlab.collect(
        "tabletop", tasks=("put-in", "lift"), episodes=4, quality=("missed_grasp", "stop", "success", "idle"),
        balance=False, size=32, frames=(12, 12), counterfactuals=1,
        execution=Execution(workers=1), out=tmp_path / "out",
    )  # fmt: skip
    rows = rows_of(tmp_path / "out")
    own = [row for row in rows if "counterfactual" not in row]
    assert {row["quality"]: row.get("failure_cause") for row in own} == {
        **{"missed_grasp": "missed_grasp", "stop": "early_end", "success": None, "idle": "other"}
    }
    assert all(0 <= row["failure_frame"] < 12 for row in own if row["quality"] in ("missed_grasp", "stop"))
    assert all("failure_frame" not in row for row in own if row["quality"] in ("success", "idle"))
    assert all("failure_cause" not in row for row in rows if "counterfactual" in row)  # what it did was not asked
    contents = open_dataset(str(tmp_path / "out"))
    assert not contents.problems
    assert {each.label.failure.cause for each in contents.episodes if each.label.failure} == {
        *("missed_grasp", "early_end", "other")
    }


@pytest.mark.slow
def test_meta_world_states_what_it_knows_of_how_a_rollout_was_made_and_other_where_it_does_not() -> None:
    def rollout(quality: str, task: str = "pick-place", limit: float = 0.5) -> FailureEvent | None:
        left: list[int] = []
        trajectory = simulate(task, 3, 200, make_policy(quality, task, 3, limit, left))
        failure = failure_of(trajectory, quality, left)
        if failure is not None and failure.frame is not None:
            reached = trajectory.progress[: failure.frame + 1]
            assert reached[-1] >= limit > reached[:-1].max()
        return failure

    assert rollout("expert") is None
    stopped, dropped = rollout("stops_early"), rollout("drops")
    assert stopped is not None and (stopped.cause, stopped.frame is None) == ("early_end", False)
    assert dropped is not None and (dropped.cause, dropped.frame is None) == ("dropped", False)
    away = rollout("drops", "drawer-open", 0.4)
    assert away is not None and away.cause == "early_end"  # it never held the drawer up
    assert rollout("random") == FailureEvent("other")
    assert rollout("stops_early", limit=2.0) is None  # it never stopped
