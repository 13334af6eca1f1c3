"""What the rewards of a rollout say about its success, where they say anything."""

from collections.abc import Sequence

from rewardlab.core.episode import Truth

_END_SHARE = 0.1  # of the steps: a reward for being done comes at the end, and may be repeated there


def truth_of_success(success: bool | None) -> Truth:
    """Return the truth of a rollout of which only success is known: a success is level 5, a failure has no level."""
    return Truth(5 if success else None, success)


def success_of_rewards(rewards: Sequence[float]) -> bool | None:
    """Return True for the reward of a finished task, zero until the end and above zero there; else None.

    A rollout that is never rewarded says nothing: many datasets of demonstrations write zeros throughout.
    """
    if not rewards or not rewards[-1] > 0:
        return None
    before = rewards[: int(len(rewards) * (1 - _END_SHARE))]
    return True if not any(before) else None
