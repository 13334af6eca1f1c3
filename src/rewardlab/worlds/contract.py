"""What a simulator offers: a recorded rollout that can be rendered again, unchanged or with one edit of the scene."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from rewardlab.core.episode import Frames, Indices


class World(Protocol):
    """One recorded rollout, ready to be rendered again."""

    def render(self, frames: Indices, change: str = "", amounts: Sequence[float] = ()) -> Frames:
        """Return these source frames with one named change applied to the scene; no name renders what was recorded.

        Raises NotApplicable where the change has no meaning in this scene.
        """


class OpenWorld(Protocol):
    """How a simulator opens the world of a record."""

    def __call__(self, record: Mapping[str, object]) -> World:
        """Return the world in which the recorded rollout happened; DataError if it cannot be rebuilt here."""
