"""Episodes as they are written: cameras of a rollout together or each on its own, under names of their own."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath

from rewardlab.core.episode import Episode
from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import digest
from rewardlab.data.writers.contract import Rollout

_NAME_CHARACTERS = 120  # of the name of a file, without its suffix
_UNNAMED = "main"  # a camera without a name of its own
_UNSAFE = re.compile(r"[^\w.-]+")


def rollout_name(episode: Episode) -> str:
    """Return the id of a rollout, without the camera that an episode's id names where there are several."""
    return episode.id.removesuffix(f"@{episode.origin.camera}") if episode.origin.camera else episode.id


def grouped_rollouts(episodes: Sequence[Episode], *, joins: bool) -> list[Rollout]:
    """Return what is written as one: all cameras of a rollout where the layout joins them, else each on its own."""
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(rollout_name(episode) if joins else episode.id, []).append(episode)
    cameras = _written_cameras(list(groups.values()))
    names: Counter[str] = Counter()
    found = []
    for views in groups.values():
        _require_same_cameras(views, cameras)
        name = _file_stem(views[0])
        names[name] += 1
        found.append(Rollout(name if names[name] == 1 else f"{name}-{names[name]}", tuple(views), cameras))
    return found


def _written_cameras(groups: Sequence[Sequence[Episode]]) -> tuple[str, ...]:
    """Return the cameras of the first rollout; one name for all where each was filmed by one camera of its own."""
    first = _cameras(groups[0])
    alone = all(len(views) == 1 for views in groups)
    return first if not alone or all(_cameras(views) == first for views in groups) else _cameras(())


def _cameras(views: Sequence[Episode]) -> tuple[str, ...]:
    return tuple(_safe(view.origin.camera) or _UNNAMED for view in views) or (_UNNAMED,)


def _require_same_cameras(views: Sequence[Episode], cameras: tuple[str, ...]) -> None:
    alone = len(views) == len(cameras) == 1
    same = alone or _cameras(views) == cameras
    if not same or len(set(cameras)) < len(cameras) or len({len(view.clip) for view in views}) > 1:
        what = f"{rollout_name(views[0])} was not filmed by the cameras of the first rollout, or not for as long"
        raise PlanError(f"{what}; convert one camera by DATA@NAME")


def _file_stem(episode: Episode) -> str:
    """Return the path of a video without its suffix: the subset, and a name made of the episode's id."""
    parts = PurePosixPath(episode.id.replace("#", "-row")).parts
    subset = episode.origin.subset or (parts[0] if len(parts) > 1 else "episodes")
    rest = "--".join(parts[1:] if len(parts) > 1 and parts[0] == subset else parts)
    stem = re.sub(r"\.mp4(?=$|-row|@)", "", rest)
    short = stem if len(stem) <= _NAME_CHARACTERS else f"{stem[:_NAME_CHARACTERS]}-{digest(stem)[:8]}"
    return f"{_safe(subset) or 'episodes'}/{_safe(short) or 'episode'}"


def _safe(name: str) -> str:
    return _UNSAFE.sub("-", name).strip(".-")
