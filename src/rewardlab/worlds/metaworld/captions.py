"""Captions: what happened in a clip in words, from the positions of gripper and object."""

import numpy as np
from numpy.typing import NDArray

from rewardlab.worlds.metaworld.objects import TASK_OBJECTS
from rewardlab.worlds.metaworld.task_progress import PROGRESS_SPECS
from rewardlab.worlds.metaworld.thing_looks import COLOURS

Floats = NDArray[np.float64]

_MOVED = 0.03  # metres
_WORDS = (("right", "left"), ("away", "towards"), ("up", "down"))
_NAMES = {word for name in TASK_OBJECTS.values() for word in name.split()} - {"the", "of"}
CAPTION_WORDS = tuple(
    sorted({*_NAMES, *COLOURS, *(word for pair in _WORDS for word in pair), "moved", "stayed", "pushed", "untouched"})
)


def caption(task: str, gripper: Floats, thing: Floats, *, name: str = "") -> str:
    """Return one sentence about the gripper and one about the object; `name` is what it is called instead."""
    about_gripper = _directions(gripper[-1] - gripper[0])
    said = f"the gripper moved {about_gripper}" if about_gripper else "the gripper stayed"
    if PROGRESS_SPECS[task].family == "reach":
        return said
    called = name or TASK_OBJECTS[task]
    about_thing = _directions(thing[-1] - thing[0])
    return f"{said}, {called} was pushed {about_thing}" if about_thing else f"{said}, {called} was untouched"


def _directions(moved: Floats) -> str:
    parts = [words[0 if length > 0 else 1] for length, words in zip(moved, _WORDS) if abs(length) > _MOVED]
    return " ".join(parts)
