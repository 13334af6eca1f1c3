import numpy as np
import pytest

from rewardlab.core.seeding import rng_for
from rewardlab.worlds.metaworld.instructions import counterfactuals, describe_displacement, draw_instruction, phrasings
from rewardlab.worlds.metaworld.physics import TASKS, Trajectory, simulate
from rewardlab.worlds.metaworld.policies import make_policy
from rewardlab.worlds.metaworld.tasks import HALFWAY_INSTRUCTIONS, OPPOSITE_TASKS, TASK_OBJECTS


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_eight_phrasings_of_which_two_are_held_out(task: str) -> None:
    lists = phrasings()[task]
    texts = [*lists["train"], *lists["held_out"]]
    assert len(set(texts)) == len(texts) >= 8 and len(lists["held_out"]) >= 2
    assert all(text[0].isupper() and text[-1] in ".!?" and text.isascii() for text in texts)
    hidden = {"{where}" in text for text in texts}
    assert len(hidden) == 1, "a goal that cannot be seen is stated in all phrasings or in none"
    assert task in TASK_OBJECTS


def test_a_displacement_is_described_in_the_robots_frame() -> None:
    assert describe_displacement(np.array([0.1, -0.2, 0.0])) == "10 cm to the right and 20 cm closer to the robot"
    assert describe_displacement(np.array([-0.05, 0.0, 0.15])) == "5 cm to the left and 15 cm up"
    assert (
        describe_displacement(np.array([0.1, 0.2, -0.3]))
        == "10 cm to the right, 20 cm further from the robot and 30 cm down"
    )
    assert describe_displacement(np.zeros(3)) == "right here"


def test_a_hidden_goal_is_stated_in_centimetres() -> None:
    trajectory = simulate("push", 2, 1, make_policy("random", "push", 2))
    text = draw_instruction(trajectory, "train", rng_for(0, "x"))
    assert " cm " in text and "{" not in text


def test_an_opened_drawer_does_not_satisfy_counterfactual_instructions(drawer: Trajectory) -> None:
    found = {other.kind: other.level for other in counterfactuals(drawer, rng_for(0, "x"))}
    assert found == {"opposite": 1, "halfway": 3, "leave": 1}


def test_a_half_opened_drawer_is_what_halfway_asks_for() -> None:
    trajectory = simulate("drawer-open", 4, 160, make_policy("stops_early", "drawer-open", 4, limit=0.45))
    found = {other.kind: other.level for other in counterfactuals(trajectory, rng_for(0, "x"))}
    assert found["halfway"] >= 4 and found["leave"] == 1


def test_what_nobody_touched_was_left_alone_and_other_goals_are_far() -> None:
    trajectory = simulate("push", 2, 5, make_policy("random", "push", 2))
    found = {other.kind: other.level for other in counterfactuals(trajectory, rng_for(0, "x"))}
    assert found == {"leave": 5, "other_goal": 1}
    reach = simulate("reach", 2, 5, make_policy("random", "reach", 2))
    assert "other_thing" in {other.kind for other in counterfactuals(reach, rng_for(0, "x"))}


def test_opposites_are_mutual_and_parts_belong_to_tasks() -> None:
    assert all(OPPOSITE_TASKS[other] == one for one, other in OPPOSITE_TASKS.items())
    assert set(OPPOSITE_TASKS) | set(HALFWAY_INSTRUCTIONS) <= set(TASKS)
