"""Worlds: simulators that can show a recorded rollout again, unchanged or with one thing in the scene changed."""

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from rewardlab.core.catalog import find, load_object
from rewardlab.core.episode import Frames, Indices

WORLDS = {  # the simulator behind each `kind` of world record; imported only when an episode needs it
    "metaworld": "rewardlab.worlds.metaworld.replay:open_record",
}


class World(Protocol):
    """One recorded rollout, ready to be rendered again."""

    def render(self, frames: Indices, change: str = "", amounts: Sequence[float] = ()) -> Frames:
        """Return these source frames with one named change applied to the scene; no name renders what was recorded.

        Raises NotApplicable where the change has no meaning in this scene.
        """


class Opener(Protocol):
    """What a simulator offers: the world of a record."""

    def __call__(self, record: Mapping[str, object]) -> World:
        """Return the world in which the recorded rollout happened; DataError if it cannot be rebuilt here."""


def open_world(record: Mapping[str, object]) -> World:
    """Return the world of an episode's record, from the simulator that its `kind` names."""
    opener, _ = load_object(find(WORLDS, str(record["kind"]), "world"))
    return cast(Opener, opener)(record)
