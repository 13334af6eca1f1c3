"""Which cameras of a rollout are read: the one that is named, all of them, or the first that sees the whole scene."""

import re
from collections.abc import Sequence

from rewardlab.core.errors import DataError
from rewardlab.data.contract import Contents, Problem

ALL_CAMERAS = "all"
_CLOSE_UP = re.compile("wrist|hand|gripper|depth", re.IGNORECASE)  # cameras that do not show what was achieved


def choose_cameras(cameras: Sequence[str], wanted: str) -> tuple[str, ...]:
    """Return the cameras to read; a name may be written without the part that all of them share."""
    if not cameras:
        raise DataError("no camera is described; expected frames from at least one, name another dataset")
    if wanted == ALL_CAMERAS:
        return tuple(cameras)
    if not wanted:
        return (next((name for name in cameras if not _CLOSE_UP.search(short_name(name))), cameras[0]),)
    chosen = tuple(name for name in cameras if wanted in (name, short_name(name)))
    if not chosen:
        names = ", ".join(short_name(name) for name in cameras)
        raise DataError(f"no camera {wanted!r}; there are {names}: name one of them, or {ALL_CAMERAS}")
    return chosen[:1]


def short_name(camera: str) -> str:
    """Return the last part of a camera's name, as in `wrist` for `observation.images.wrist`."""
    return re.split(r"[./]", camera)[-1]


def episode_id(name: str, camera: str, cameras: Sequence[str]) -> str:
    """Return the id of what one camera saw of an episode; it names the camera where there are several."""
    return f"{name}@{short_name(camera)}" if len(cameras) > 1 else name


def camera_note(cameras: Sequence[str]) -> tuple[Problem, ...]:
    """Say which camera is read and which others there are, where there are several."""
    if len(cameras) < 2:
        return ()
    (read,) = choose_cameras(cameras, "")
    others = ", ".join(short_name(name) for name in cameras if name != read)
    return (Problem("cameras", f"{short_name(read)} is read; others by DATA@NAME, or DATA@all: {others}"),)


def only_camera(contents: Contents, wanted: str) -> Contents:
    """Return the episodes whose origin names this camera, for formats that state a camera per episode."""
    if wanted == ALL_CAMERAS:
        return contents
    names = sorted({episode.origin.camera for episode in contents.episodes} - {""})
    kept = tuple(episode for episode in contents.episodes if episode.origin.camera == wanted)
    if not kept:
        raise DataError(f"no episode of a camera {wanted!r}; there are {', '.join(names) or 'no named cameras'}")
    return Contents(kept, contents.problems)
