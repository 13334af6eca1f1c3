"""Synthetic instructions labelled by positions; other names for objects.

With one scene for each task, an instruction could be learned as the name of its scene. These ask for what is measured
in every scene alike: a displacement, a direction, a lift, a touch.
"""

import re
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.seeding import pick
from rewardlab.worlds.metaworld.instructions import describe_displacement
from rewardlab.worlds.metaworld.scene_edits import ObjectLook
from rewardlab.worlds.metaworld.task_progress import PROGRESS_SPECS, fraction_covered, progress_of
from rewardlab.worlds.metaworld.tasks import COLOURS, TASK_OBJECTS

Floats = NDArray[np.float64]
LabelledInstruction = tuple[str, NDArray[np.float32]]  # a text, and the progress at every frame

_GOAL_RADIUS = 0.05  # metres from the goal that count as success
_PUSH_DISTANCE, _PRESS_DISTANCE = 0.1, 0.04  # metres to go where a direction is asked for, but no distance
_TOUCHED = 0.02  # metres that an object moves only where it was touched
_MIN_MOVED = 0.04  # metres that an object must have moved to be asked for just that
_MIN_GOAL = 2 * _GOAL_RADIUS  # metres: what is nearer is reached from the start
_MAX_GOAL = 0.5  # metres
_GRIPPER_NAMES = ("the gripper", "the hand", "the fingers")
_MOVE = ("Move {object} {where}.", "Bring {object} {where}.", "Take {object} {where}.", "Get {object} {where}.")
_PUSH = ("Push {object} {where}.", "Move {object} {where}.", "Pull {object} {where}.", "Slide {object} {where}.")
_LIFT = ("Lift {object}.", "Raise {object}.", "Pick up {object}.", "Lift {object} up.", "Pick {object} up and hold it.")
_TOUCH = ("Touch {object}.", "Move the gripper to {object}.", "Reach for {object}.", "Bring the hand to {object}.")
# Directions in the robot's frame: axis, sign, words.
_DIRECTIONS = (
    (0, 1, "to the right"),
    (0, -1, "to the left"),
    (1, 1, "away from the robot"),
    (1, -1, "towards the robot"),
    (2, 1, "up"),
    (2, -1, "down"),
)


@dataclass(frozen=True, eq=False)
class ClipPositions:
    """The positions of the gripper and the object of a task in the frames of a clip, (frames, 3) each."""

    task: str
    gripper: Floats
    object: Floats  # the gripper itself where the task is to reach


def synthetic_instruction(clip: ClipPositions, name: str, rng: Generator) -> LabelledInstruction:
    """Return an instruction and its progress at every frame; `name` is what the object is called."""
    makers = (_move_gripper,) if PROGRESS_SPECS[clip.task].family == "reach" else _MAKERS
    return pick(makers, rng)(clip, name, rng)


def _move_object(clip: ClipPositions, name: str, rng: Generator) -> LabelledInstruction:
    goal = _draw_goal(clip.object, rng)
    distance = np.linalg.norm(clip.object - clip.object[0] - goal, axis=1)
    text = _filled(pick(_MOVE, rng), name, describe_displacement(goal))
    return text, _distance_progress(PROGRESS_SPECS[clip.task].family, distance, _approach(clip))


def _move_gripper(clip: ClipPositions, _name: str, rng: Generator) -> LabelledInstruction:
    goal = _draw_goal(clip.gripper, rng)
    distance = np.linalg.norm(clip.gripper - clip.gripper[0] - goal, axis=1)
    text = _filled(pick(_MOVE, rng), pick(_GRIPPER_NAMES, rng), describe_displacement(goal))
    return text, _distance_progress("reach", distance)


def _draw_goal(path: Floats, rng: Generator) -> Floats:
    """Return a displacement to ask for: what was done, more in the same direction, or something else."""
    moved, kind = path[-1] - path[0], rng.random()
    if kind < 0.35 and np.linalg.norm(moved) > _MIN_MOVED + _GOAL_RADIUS:
        return np.asarray(moved + rng.normal(0, _GOAL_RADIUS / 4, 3))
    if kind < 0.75 and np.linalg.norm(moved) > _MIN_MOVED:
        moved = moved * max(1.0, _MIN_GOAL / float(np.linalg.norm(moved)))
        return np.asarray(moved * min(rng.uniform(1.15, 3.0), max(1.15, _MAX_GOAL / np.linalg.norm(moved))))
    direction = rng.normal(0, 1, 3) * (1, 1, 0.7)
    return np.asarray(direction / np.linalg.norm(direction) * rng.uniform(2.2 * _GOAL_RADIUS, 0.35))


def _push(clip: ClipPositions, name: str, rng: Generator) -> LabelledInstruction:
    moved = clip.object - clip.object[0]
    axis, sign, words = pick(_DIRECTIONS, rng)
    if rng.random() < 0.6:  # mostly the direction in which it moved furthest
        axis = int(np.abs(moved[-1]).argmax())
        axis, sign, words = _DIRECTIONS[2 * axis + (moved[-1, axis] < 0)]
    return _filled(pick(_PUSH, rng), name, words), _direction_progress(clip, sign * moved[:, axis])


def _lift(clip: ClipPositions, name: str, rng: Generator) -> LabelledInstruction:
    return _filled(pick(_LIFT, rng), name), _direction_progress(clip, clip.object[:, 2] - clip.object[0, 2])


def _touch(clip: ClipPositions, name: str, rng: Generator) -> LabelledInstruction:
    distance = np.linalg.norm(clip.gripper - clip.object, axis=1)
    # An object may be touched far from its middle.
    moved = np.linalg.norm(clip.object - clip.object[0], axis=1) > _TOUCHED
    touched = np.maximum.accumulate(moved) | (distance <= _GOAL_RADIUS)
    progress = _distance_progress("reach", distance)
    return _filled(pick(_TOUCH, rng), name), np.where(touched, np.float32(1.0), progress)


_MAKERS = (_move_object, _move_object, _move_object, _move_gripper, _push, _push, _lift, _touch)


def _filled(template: str, name: str, where: str = "") -> str:
    return template.replace("{object}", name).replace("{where}", where)


def _direction_progress(clip: ClipPositions, moved: Floats) -> NDArray[np.float32]:
    """Return the progress of an object that must go a certain distance, however much further it goes."""
    family = PROGRESS_SPECS[clip.task].family
    wanted = _PRESS_DISTANCE if family == "press" else _PUSH_DISTANCE
    return _distance_progress(family, _GOAL_RADIUS + np.maximum(wanted - moved, 0.0), _approach(clip))


def _approach(clip: ClipPositions) -> list[float]:
    """Return which fraction of its way to the object the gripper has gone."""
    distance = np.linalg.norm(clip.gripper - clip.object, axis=1)
    return [fraction_covered(float(distance[0]), float(current), _GOAL_RADIUS) for current in distance]


def _distance_progress(family: str, distance: Floats, approach: list[float] | None = None) -> NDArray[np.float32]:
    """Return the progress of a distance that must shrink."""
    approach = approach or [0.0] * len(distance)
    change = [fraction_covered(float(distance[0]), float(current), _GOAL_RADIUS) for current in distance]
    progress = [progress_of(family, done, near) for done, near in zip(change, approach, strict=True)]
    return np.where(distance <= _GOAL_RADIUS, np.float32(1.0), np.array(progress, np.float32))


# Renaming: an instruction with another name for its object, so that a name never seen is nothing new.

_GENERIC = ("object", "thing", "part", "piece", "item")
_COLOUR_WORDS = (*COLOURS, "brown", "dark", "gray", "wooden")
# Other words that instructions use for what a task moves.
_SYNONYMS = {
    "ring": ("handle",), "ball": ("basketball",), "cube": ("block",), "lid": ("cover",), "mug": ("cup",),
    "dial": ("knob",), "lock": ("latch",), "drawer": (), "tap": ("faucet", "handle"), "handle": ("bar", "lever"),
    "peg": ("stick", "bar"), "plug": ("peg",), "puck": ("cylinder", "disc", "plate", "piece"), "block": ("cube",),
    "door": ("safe",), "window": (), "lever": (), "nail": (), "thermos": (), "button": (), "machine": ("button",),
}  # fmt: skip


def new_name(look: ObjectLook | None, words: tuple[str, ...], rng: Generator) -> str:
    """Return a name for an object: by its colour where that was changed, generic, or a word that means nothing here."""
    kind = rng.random()
    if look is not None and kind < 0.5:
        return f"the {look.moving} {pick(_GENERIC, rng)}"
    return f"the {pick(_GENERIC, rng)}" if kind < 0.65 else f"the {pick(words, rng)}"


def renamed(text: str, task: str, name: str) -> str | None:
    """Return the text with this name in place of the object's; None where the text does not name it."""
    noun = TASK_OBJECTS[task].split()[-1]
    nouns = "|".join((noun, *_SYNONYMS.get(noun, ())))
    pattern = rf"\b(?:the|its|a)\s+(?:(?:{'|'.join(_COLOUR_WORDS)}|small|little|round|big)\s+)*(?:{nouns})\b"
    changed, count = re.subn(pattern, name, text, flags=re.IGNORECASE)
    return changed[0].upper() + changed[1:] if count else None


def names_a_colour(text: str) -> bool:
    """Tell whether a text says how something looks, which may not be so any more."""
    return bool(set(re.findall(r"[a-z]+", text.lower())) & set(_COLOUR_WORDS))
