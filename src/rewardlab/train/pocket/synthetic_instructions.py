"""Made-up instructions: things to ask for in any rollout, told from where the hand and the thing are in each frame.

With one scene for each task, an instruction could be learned as the name of its scene. These ask for what is measured
in every scene alike: a way to go, a direction, a lift, a touch; the thing is now and then called by a name that says
nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.seeding import pick
from rewardlab.worlds.metaworld.instructions import describe_displacement
from rewardlab.worlds.metaworld.objects import TASK_OBJECTS
from rewardlab.worlds.metaworld.progress import PROGRESS_SPECS, fraction_covered, progress_of

Floats = NDArray[np.float64]
Task = tuple[str, NDArray[np.float32]]  # a text, and the progress at every frame

_ENOUGH = 0.05  # metres from the goal that count as there
_FAR, _PRESSED = 0.1, 0.04  # metres to go where a direction is asked for, but no distance; less for what is pressed
_STIRRED = 0.02  # metres that a thing moves only where it was touched
_LEAST_WAY = 0.04  # metres that a thing must have moved to be asked for just that
_LEAST_ASKED = 2 * _ENOUGH  # metres: what is nearer is there from the start
_FURTHEST = 0.5  # metres that are asked for
_HAND = ("the gripper", "the hand", "the fingers")
_NAMELESS = ("the object", "it", "the thing", "the part")
_MOVE = ("Move {thing} {where}.", "Bring {thing} {where}.", "Take {thing} {where}.", "Get {thing} {where}.")
_PUSH = ("Push {thing} {way}.", "Move {thing} {way}.", "Pull {thing} {way}.", "Slide {thing} {way}.")
_LIFT = ("Lift {thing}.", "Raise {thing}.", "Pick up {thing}.", "Lift {thing} up.", "Pick {thing} up and hold it.")
_TOUCH = ("Touch {thing}.", "Move the gripper to {thing}.", "Reach for {thing}.", "Bring the hand to {thing}.")
# Directions as the robot sees them: axis, sign, words.
_WAYS = (
    (0, 1, "to the right"),
    (0, -1, "to the left"),
    (1, 1, "away from the robot"),
    (1, -1, "towards the robot"),
    (2, 1, "up"),
    (2, -1, "down"),
)


@dataclass(frozen=True, eq=False)
class Seen:
    """Where the hand and the thing of a task are in the frames of a clip, (frames, 3) each."""

    task: str
    gripper_pos: Floats
    object_pos: Floats

    @property
    def is_reach(self) -> bool:
        """Return whether the thing is the hand itself."""
        return PROGRESS_SPECS[self.task].family == "reach"


def made_up(seen: Seen, names: tuple[str, ...], rng: Generator) -> Task:
    """Return an instruction and the progress that it has in every frame; `names` are words that mean nothing here."""
    makers = (_hand_there,) if seen.is_reach else _MAKERS
    return pick(makers, rng)(seen, _name(seen.task, names, rng), rng)


def _name(task: str, names: tuple[str, ...], rng: Generator) -> str:
    kind = rng.random()
    if kind < 0.55:
        return TASK_OBJECTS[task]
    return pick(_NAMELESS, rng) if kind < 0.7 else f"the {pick(names, rng)}"


def _thing_there(seen: Seen, name: str, rng: Generator) -> Task:
    goal = _goal(seen.object_pos, rng)
    left = np.linalg.norm(seen.object_pos - seen.object_pos[0] - goal, axis=1)
    text = pick(_MOVE, rng).replace("{thing}", name).replace("{where}", describe_displacement(goal))
    return text, _shrinking(PROGRESS_SPECS[seen.task].family, left, _near(seen))


def _hand_there(seen: Seen, name: str, rng: Generator) -> Task:
    goal = _goal(seen.gripper_pos, rng)
    left = np.linalg.norm(seen.gripper_pos - seen.gripper_pos[0] - goal, axis=1)
    text = pick(_MOVE, rng).replace("{thing}", pick(_HAND, rng)).replace("{where}", describe_displacement(goal))
    return text, _shrinking("reach", left)


def _goal(path: Floats, rng: Generator) -> Floats:
    """Return a displacement to ask for: what was done, more in the same way, or something else."""
    gone, kind = path[-1] - path[0], rng.random()
    if kind < 0.35 and np.linalg.norm(gone) > _LEAST_WAY + _ENOUGH:
        return np.asarray(gone + rng.normal(0, _ENOUGH / 4, 3))
    if kind < 0.75 and np.linalg.norm(gone) > _LEAST_WAY:
        gone = gone * max(1.0, _LEAST_ASKED / float(np.linalg.norm(gone)))
        return np.asarray(gone * min(rng.uniform(1.15, 3.0), max(1.15, _FURTHEST / np.linalg.norm(gone))))
    way = rng.normal(0, 1, 3) * (1, 1, 0.7)
    return np.asarray(way / np.linalg.norm(way) * rng.uniform(2.2 * _ENOUGH, 0.35))


def _pushed(seen: Seen, name: str, rng: Generator) -> Task:
    gone = seen.object_pos - seen.object_pos[0]
    axis, sign, words = pick(_WAYS, rng)
    if rng.random() < 0.6:  # mostly the way that it went furthest
        axis = int(np.abs(gone[-1]).argmax())
        axis, sign, words = _WAYS[2 * axis + (gone[-1, axis] < 0)]
    text = pick(_PUSH, rng).replace("{thing}", name).replace("{way}", words)
    return text, _going(seen, sign * gone[:, axis])


def _lifted(seen: Seen, name: str, rng: Generator) -> Task:
    return pick(_LIFT, rng).replace("{thing}", name), _going(seen, seen.object_pos[:, 2] - seen.object_pos[0, 2])


def _touched(seen: Seen, name: str, rng: Generator) -> Task:
    left = np.linalg.norm(seen.gripper_pos - seen.object_pos, axis=1)
    moved = (
        np.linalg.norm(seen.object_pos - seen.object_pos[0], axis=1) > _STIRRED
    )  # a thing may be touched far from its middle
    touched = np.maximum.accumulate(moved) | (left <= _ENOUGH)
    progress = _shrinking("reach", left)
    return pick(_TOUCH, rng).replace("{thing}", name), np.where(touched, np.float32(1.0), progress)


_MAKERS: tuple[Callable[[Seen, str, Generator], Task], ...] = (
    *(3 * (_thing_there,)),
    _hand_there,
    *(2 * (_pushed,)),
    _lifted,
    _touched,
)


def _going(seen: Seen, gone: Floats) -> NDArray[np.float32]:
    """Return the progress of a thing that must go a certain distance, however much further it goes."""
    family = PROGRESS_SPECS[seen.task].family
    far = _PRESSED if family == "press" else _FAR
    return _shrinking(family, _ENOUGH + np.maximum(far - gone, 0.0), _near(seen))


def _near(seen: Seen) -> list[float]:
    """Return how much of its way to the thing the hand has gone."""
    away = np.linalg.norm(seen.gripper_pos - seen.object_pos, axis=1)
    return [fraction_covered(float(away[0]), float(now), _ENOUGH) for now in away]


def _shrinking(family: str, left: Floats, near: list[float] | None = None) -> NDArray[np.float32]:
    """Return the progress of a distance that must shrink."""
    near = near or [0.0] * len(left)
    change = [fraction_covered(float(left[0]), float(now), _ENOUGH) for now in left]
    told = [progress_of(family, share, gripper_pos) for share, gripper_pos in zip(change, near)]
    return np.where(left <= _ENOUGH, np.float32(1.0), np.array(told, np.float32))
