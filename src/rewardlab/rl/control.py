"""How a learned policy drives the simulator: an action is held for some steps, and several are decided at once."""

from dataclasses import dataclass

from rewardlab.core.errors import PlanError
from rewardlab.worlds.metaworld.physics import MAX_STEPS

ACTION_SIZE = 4  # gripper velocity x, y, z and effort


@dataclass(frozen=True)
class Control:
    """An episode is `decisions` chunks of `chunk` actions, each held for `hold` steps of the simulator (80 a second).

    Every episode has the same length, so that its length says nothing about success.
    """

    hold: int = 5
    chunk: int = 4
    decisions: int = 6

    def __post_init__(self) -> None:
        if min(self.hold, self.chunk, self.decisions) < 1 or self.steps > MAX_STEPS:
            raise PlanError(
                f"hold, chunk and decisions must be at least 1 and their product at most {MAX_STEPS} steps, "
                f"got {self.hold} x {self.chunk} x {self.decisions}"
            )

    @property
    def steps(self) -> int:
        """Return the simulator steps of an episode."""
        return self.hold * self.chunk * self.decisions

    @property
    def chunk_size(self) -> int:
        """Return how many numbers one decision has."""
        return self.chunk * ACTION_SIZE
