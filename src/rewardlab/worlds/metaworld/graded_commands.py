"""Graded commands: other commands for a rollout with the level that its last state has under each, and back.

Most ask for the same object elsewhere, so many centimetres from where it was; how far it is from there gives the level.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import level_of_progress
from rewardlab.worlds.metaworld.instructions import (
    DIRECTION_WORDS,
    SYMMETRIC_TASKS,
    Counterfactual,
    counterfactuals,
    describe_displacement,
    inverse_instructions,
    phrasings,
    turned,
)
from rewardlab.worlds.metaworld.physics import TASKS, Trajectory
from rewardlab.worlds.metaworld.task_progress import (
    LEVEL_STARTS_BY_FAMILY,
    PROGRESS_SPECS,
    fraction_covered,
    progress_of,
)
from rewardlab.worlds.metaworld.tasks import OPPOSITE_TASKS, TASK_OBJECTS

Floats = NDArray[np.float64]

_LEAST_MOVED = 0.05  # metres; what moved less cannot be told from what should have moved elsewhere
_FURTHEST = 0.6  # metres that an object is asked to go
_TOLERANCE = 0.03  # metres, for objects whose task does not state its goal as a place
_MARGIN = 0.05  # of the covered fraction: a command this close to the next level is not asked
_STRETCHES = (1.15, 1.25, 1.45, 1.7, 2.0, 2.5, 3.2, 4.5)
_TURNS = (0.0, 12.0, -12.0, 20.0, -20.0, 30.0, -30.0, 42.0, -42.0, 50.0, -50.0, 150.0, 180.0)  # degrees
_AXES = {words[back]: (axis, (1.0, -1.0)[back]) for axis, words in enumerate(DIRECTION_WORDS) for back in (0, 1)}
# By the last word of the object's name.
_OTHER_NAMES = {
    **{"block": ("cube",), "dial": ("knob",), "door": ("safe",), "gripper": ("hand", "fingers"), "handle": ("bar",)},
    **{"lid": ("cover",), "lock": ("latch",), "mug": ("cup",), "plug": ("peg",), "puck": ("cylinder", "plate")},
    **{"tap": ("faucet",), "thermos": ("bottle",)},
}
_PART = re.compile(rf"(\d+) cm ({'|'.join(_AXES)})")


def graded_commands(trajectory: Trajectory, instruction: str, rng: Generator) -> list[Counterfactual]:
    """Return commands that the rollout does not fulfil, in random order, each with its exact level below 5.

    The object is called what the instruction calls it.
    """
    known = [*counterfactuals(trajectory, rng), *_undone(trajectory)]
    named = object_name(trajectory.task, instruction)
    found = [*(known[i] for i in rng.permutation(len(known))), *_displaced(trajectory, named, rng)]
    return [each for each in found if each.level < 5 and level_of_command(each.text, trajectory) == each.level]


def level_of_command(text: str, trajectory: Trajectory) -> int | None:
    """Return the level of the last state under a command, read from its words alone; None where nobody can say."""
    said = normal(text)
    if said in own_commands(trajectory):
        return trajectory.readings[-1].level
    goal = _stated_goal(said, trajectory.task)
    if goal is not None:
        return _level_at(goal, trajectory)
    others = [*counterfactuals(trajectory, np.random.default_rng(0)), *_undone(trajectory)]
    if trajectory.task in OPPOSITE_TASKS and trajectory.readings[-1].level >= 3:
        # Every phrasing of the opposite task, of which `counterfactuals` draws one.
        others += [Counterfactual(t, 1, "opposite") for t in phrasings()[OPPOSITE_TASKS[trajectory.task]]["train"]]
    return next((other.level for other in others if normal(other.text) == said), None)


def until(trajectory: Trajectory, step: int) -> Trajectory:
    """Return the rollout as it was when this state was its last."""
    states = slice(0, step + 1)
    return replace(
        trajectory,
        actions=trajectory.actions[:step],
        qpos=trajectory.qpos[states],
        gripper_pos=trajectory.gripper_pos[states],
        object_pos=trajectory.object_pos[states],
        readings=trajectory.readings[states],
    )


def own_commands(trajectory: Trajectory) -> frozenset[str]:
    """Return every phrasing of the task of a rollout, normalised."""
    where = describe_displacement(trajectory.goal - trajectory.object_pos[0])
    texts = (text for kind in phrasings()[trajectory.task].values() for text in kind)
    return frozenset(normal(text.replace("{where}", where)) for text in texts)


def object_name(task: str, instruction: str) -> str:
    """Return what an instruction calls the object of a task; its first name where it is called nothing we know."""
    said = set(re.findall(r"[a-z]+", instruction.casefold()))
    return next((name for name in _names(task) if name.split()[-1] in said), TASK_OBJECTS[task])


def _names(task: str) -> tuple[str, ...]:
    first = TASK_OBJECTS[task]
    return first, *(f"the {other}" for other in _OTHER_NAMES.get(first.split()[-1], ()))


def normal(text: str) -> str:
    """Return a command without what changes no meaning: case, blanks and the full stop."""
    return " ".join(text.casefold().split()).rstrip(".!")


def _stated_goal(said: str, task: str) -> Floats | None:
    """Return how far the command asks the object to go from where it was, in metres; None where it asks no such."""
    opening = next((f"move {name} " for name in _names(task) if said.startswith(f"move {name} ")), None)
    parts = _PART.findall(said)
    if opening is None or not parts:
        return None
    goal = np.zeros(3)
    for length, words in parts:
        axis, sign = _AXES[words]
        goal[axis] = sign * int(length) / 100
    return goal if said == normal(opening + describe_displacement(goal)) else None


def _level_at(goal: Floats, trajectory: Trajectory) -> int:
    fraction = _covered(goal, trajectory)
    if fraction >= 1:
        return 5
    return level_of_progress(progress_of(PROGRESS_SPECS[trajectory.task].family, fraction, 0.0))


def _covered(goal: Floats, trajectory: Trajectory) -> float:
    """Return which fraction of the way to a goal the object went."""
    moved = trajectory.object_pos[-1] - trajectory.object_pos[0]
    start, left = float(np.linalg.norm(goal)), float(np.linalg.norm(moved - goal))
    by_place = "{where}" in phrasings()[trajectory.task]["train"][0]
    return fraction_covered(start, left, PROGRESS_SPECS[trajectory.task].success_distance if by_place else _TOLERANCE)


def _displaced(trajectory: Trajectory, named: str, rng: Generator) -> Iterator[Counterfactual]:
    """Yield commands that want the object elsewhere, in random order, none close to the border of two levels."""
    moved = trajectory.object_pos[-1] - trajectory.object_pos[0]
    if np.linalg.norm(moved) < _LEAST_MOVED:
        return
    family = PROGRESS_SPECS[trajectory.task].family
    borders = np.array([*LEVEL_STARTS_BY_FAMILY[family], 1.0])
    goals = [stretch * turned(moved, np.deg2rad(angle)) for stretch in _STRETCHES for angle in _TURNS]
    for place in rng.permutation(len(goals)):
        text = f"Move {named} {describe_displacement(goals[place])}."
        goal = _stated_goal(normal(text), trajectory.task)
        if goal is None or np.abs(goal).max() > _FURTHEST:
            continue
        if np.abs(borders - _covered(goal, trajectory)).min() >= _MARGIN:
            yield Counterfactual(text, _level_at(goal, trajectory), "displaced")


def _undone(trajectory: Trajectory) -> list[Counterfactual]:
    """Ask for what was clearly done to be undone."""
    if trajectory.task in SYMMETRIC_TASKS or trajectory.readings[-1].level < 3:
        return []
    return [Counterfactual(text, 1, "undone") for text in inverse_instructions(trajectory.task, TASKS)]
