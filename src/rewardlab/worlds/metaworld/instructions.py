"""Instructions: phrasings of each task, and counterfactual instructions for the same scene."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import level_of_progress
from rewardlab.worlds.metaworld.objects import HALFWAY_INSTRUCTIONS, OPPOSITE_TASKS, OTHER_OBJECTS, TASK_OBJECTS
from rewardlab.worlds.metaworld.physics import Trajectory
from rewardlab.worlds.metaworld.task_progress import (
    LEVEL_STARTS_BY_FAMILY,
    PROGRESS_SPECS,
    fraction_covered,
    progress_of,
)

Floats = NDArray[np.float64]
PHRASINGS = ("train", "held_out")
_MIN_STATED = 0.02  # metres; a shorter displacement is not worth a word
_MOST_ASKED = 0.25  # metres along each axis that a thing is asked to go which nobody touched
_UNMOVED, _MOVED = 0.005, 0.03  # metres; in between nobody can say whether an object was left alone


@dataclass(frozen=True)
class Counterfactual:
    """Another instruction for the same video, with the level that its last state has under it."""

    text: str
    level: int
    kind: str


@cache
def phrasings() -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the phrasings of every task, those for training and those held out."""
    with Path(__file__).with_name("instructions.toml").open("rb") as handle:
        rows = tomllib.load(handle)
    return {task: {kind: tuple(lists[kind]) for kind in PHRASINGS} for task, lists in rows.items()}


def draw_instruction(trajectory: Trajectory, kind: str, rng: Generator) -> str:
    """Return a phrasing of the task of a rollout; a goal that cannot be seen is stated in centimetres."""
    text = str(rng.choice(np.array(phrasings()[trajectory.task][kind], dtype=object)))
    return text.replace("{where}", describe_displacement(trajectory.goal - trajectory.object_pos[0]))


def describe_displacement(displacement: Floats) -> str:
    """Return a displacement in words, in the robot's frame: right is +x, away is +y, up is +z."""
    words = (("to the right", "to the left"), ("further from the robot", "closer to the robot"), ("up", "down"))
    parts = [
        f"{abs(length) * 100:.0f} cm {names[0 if length > 0 else 1]}"
        for length, names in zip(displacement, words)
        if abs(length) >= _MIN_STATED
    ]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts) or "right here"


def ask_for_thing(task: str, kind: str, rng: Generator) -> Counterfactual:
    """Ask for a task whose thing stands there untouched, beside those of the rollout."""
    text = str(rng.choice(np.array(phrasings()[task][kind], dtype=object)))
    where = describe_displacement(rng.uniform(-_MOST_ASKED, _MOST_ASKED, 3))
    return Counterfactual(text.replace("{where}", where), 1, "another_thing")


def counterfactuals(trajectory: Trajectory, rng: Generator) -> list[Counterfactual]:
    """Return other instructions for the same video, each with its exact level; the list may be empty."""
    found = [make(trajectory, rng) for make in _MAKERS]
    return [other for other in found if other is not None]


def _other_goal(trajectory: Trajectory, rng: Generator) -> Counterfactual | None:
    """Ask for the same object at another goal; the distance to it gives the level."""
    if "{where}" not in phrasings()[trajectory.task]["train"][0]:
        return None
    displacement = trajectory.goal - trajectory.object_pos[0]
    angle = rng.uniform(0.5, 1.5) * np.pi
    turned = np.array(
        [
            displacement[0] * np.cos(angle) - displacement[1] * np.sin(angle),
            displacement[0] * np.sin(angle) + displacement[1] * np.cos(angle),
            displacement[2],
        ]
    )
    spec = PROGRESS_SPECS[trajectory.task]
    start = float(np.linalg.norm(turned))
    distance = float(np.linalg.norm(trajectory.object_pos[-1] - trajectory.object_pos[0] - turned))
    if start < 2 * spec.success_distance or distance <= spec.success_distance:
        return None
    level = level_of_progress(progress_of(spec.family, fraction_covered(start, distance, spec.success_distance), 0.0))
    return Counterfactual(f"Move {TASK_OBJECTS[trajectory.task]} {describe_displacement(turned)}.", level, "other_goal")


def _opposite(trajectory: Trajectory, rng: Generator) -> Counterfactual | None:
    """Ask for the opposite of what was clearly done."""
    if trajectory.task not in OPPOSITE_TASKS or trajectory.readings[-1].level < 3:
        return None
    text = str(rng.choice(np.array(phrasings()[OPPOSITE_TASKS[trajectory.task]]["train"], dtype=object)))
    return Counterfactual(text, 1, "opposite")


def _halfway(trajectory: Trajectory, rng: Generator) -> Counterfactual | None:
    """Ask for half of the change; how much of it is there decides."""
    if trajectory.task not in HALFWAY_INSTRUCTIONS:
        return None
    spec = PROGRESS_SPECS[trajectory.task]
    change = fraction_covered(trajectory.readings[0].distance, trajectory.readings[-1].distance, spec.success_distance)
    # Too little is as far from half as for the whole task; too far breaks the word "only".
    starts = (LEVEL_STARTS_BY_FAMILY[spec.family][0], 0.25, 0.35, 0.4, 0.6)
    level = int(np.searchsorted(starts, change, side="right")) + 1
    return Counterfactual(HALFWAY_INSTRUCTIONS[trajectory.task], 3 if level == 6 else level, "halfway")


def _untouched(trajectory: Trajectory, rng: Generator) -> Counterfactual | None:
    """Ask for something to be done to another object that nobody touched."""
    if trajectory.task not in OTHER_OBJECTS:
        return None
    text, joints = OTHER_OBJECTS[trajectory.task]
    moved = np.abs(trajectory.qpos[:, joints] - trajectory.qpos[0, joints]).max()
    return Counterfactual(text, 1, "other_thing") if moved < _UNMOVED else None


def _left_alone(trajectory: Trajectory, rng: Generator) -> Counterfactual | None:
    """Ask for the object to be left as it is."""
    if PROGRESS_SPECS[trajectory.task].family == "reach":
        return None
    moved = float(np.linalg.norm(trajectory.object_pos - trajectory.object_pos[0], axis=1).max())
    if _UNMOVED <= moved < _MOVED:
        return None
    return Counterfactual(f"Leave {TASK_OBJECTS[trajectory.task]} as it is.", 5 if moved < _UNMOVED else 1, "leave")


_MAKERS: tuple[Callable[[Trajectory, Generator], Counterfactual | None], ...] = (
    _other_goal,
    _opposite,
    _halfway,
    _untouched,
    _left_alone,
)
