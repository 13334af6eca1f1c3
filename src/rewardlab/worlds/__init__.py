"""What a world offers, and the catalog; a simulator is imported when an episode needs it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from rewardlab.core.catalog import find
from rewardlab.core.episode import Frames, Indices


class World(Protocol):
    """One recorded rollout, ready to be rendered again."""

    def render(self, frames: Indices, change: str = "", amounts: Sequence[float] = ()) -> Frames:
        """Return these source frames with one named change applied to the scene; no name renders what was recorded.

        Raises NotApplicable where the change has no meaning in this scene.
        """


# From the record of a rollout to the world in which it happened; DataError if that cannot be rebuilt here.
OpenWorld = Callable[[Mapping[str, object]], World]


def _metaworld(record: Mapping[str, object]) -> World:
    from rewardlab.worlds.metaworld.replay import open_record

    return open_record(record)


def _tabletop(record: Mapping[str, object]) -> World:
    from rewardlab.worlds.tabletop.replay import open_record

    return open_record(record)


WORLDS: dict[str, OpenWorld] = {"metaworld": _metaworld, "tabletop": _tabletop}  # by the `kind` of a world record


def open_world(record: Mapping[str, object]) -> World:
    """Return the world of an episode's record, from the simulator that its `kind` names."""
    return find(WORLDS, str(record["kind"]), "world")(record)
