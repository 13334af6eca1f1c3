"""The catalog of worlds: simulators whose episodes carry the exact truth and can be rendered again, changed.

A simulator is imported only when an episode needs it.
"""

from collections.abc import Mapping

from rewardlab.core.catalog_lookup import find
from rewardlab.worlds.contract import OpenWorld, World


def _metaworld(record: Mapping[str, object]) -> World:
    from rewardlab.worlds.metaworld.replay import open_record

    return open_record(record)


WORLDS: dict[str, OpenWorld] = {"metaworld": _metaworld}  # by the `kind` of a world record


def open_world(record: Mapping[str, object]) -> World:
    """Return the world of an episode's record, from the simulator that its `kind` names."""
    return find(WORLDS, str(record["kind"]), "world")(record)
