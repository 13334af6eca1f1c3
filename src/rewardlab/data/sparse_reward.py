"""What the rewards of a rollout say about its success, where they say anything."""

from collections.abc import Sequence

from rewardlab.core.episode import Truth


def truth_of_success(success: bool | None) -> Truth:
    """Return the truth of a rollout of which only success is known: a success is level 5, a failure has no level."""
    return Truth(5 if success else None, success)


def success_of_rewards(rewards: Sequence[float]) -> bool | None:
    """Return True for the reward of a finished task, zero at first and then one value above zero to the end; else None.

    The last step may have none: in RLDS the last observation comes after the last action and its reward. A rollout
    that is never rewarded says nothing: many datasets of demonstrations write zeros throughout.
    """
    start = next((step for step, reward in enumerate(rewards) if reward), 0)
    if start == 0 or rewards[start] < 0:
        return None
    rewarded = rewards[start : max(len(rewards) - 1, start + 1)]
    return True if {*rewarded} == {rewards[start]} and rewards[-1] in (0, rewards[start]) else None
