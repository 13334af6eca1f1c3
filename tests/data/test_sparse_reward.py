"""What rewards say about success."""

import pytest

from rewardlab.data.reading import success_of_rewards


@pytest.mark.parametrize("rewards", [[0, 0, 1], [0, 0, 1, 0], [0, 100, 100, 100], [0, 1], [0.0, 0.0, 0.5, 0.5, 0.0]])
def test_a_reward_that_comes_at_the_end_is_a_success(rewards: list[float]) -> None:
    assert success_of_rewards(rewards) is True


@pytest.mark.parametrize(
    "rewards",
    [[], [0, 0, 0], [1, 1, 1], [1], [0.1, 0.2, 0.3], [0, 0.2, 0.3], [0, 1, 0, 0], [0, 1, 0, 1], [0, 0, -1], [0, 1, 2]],
)
def test_other_rewards_say_nothing(rewards: list[float]) -> None:
    assert success_of_rewards(rewards) is None
