"""Words for rollouts: phrasings, counterfactual and inverse instructions, captions."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import level_of_progress
from rewardlab.worlds.metaworld.physics import Trajectory
from rewardlab.worlds.metaworld.task_progress import (
    LEVEL_STARTS_BY_FAMILY,
    PROGRESS_SPECS,
    fraction_covered,
    progress_of,
)
from rewardlab.worlds.metaworld.tasks import COLOURS, HALFWAY_INSTRUCTIONS, OPPOSITE_TASKS, OTHER_OBJECTS, TASK_OBJECTS

Floats = NDArray[np.float64]
PHRASINGS = ("train", "held_out")
# Forward and back along x, y and z, in the robot's frame.
DIRECTION_WORDS = (("to the right", "to the left"), ("further from the robot", "closer to the robot"), ("up", "down"))
_MIN_STATED = 0.02  # metres; a shorter displacement is not worth a word
_MOST_ASKED = 0.25  # metres along each axis that an untouched object is asked to go
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
    return joined_text(draw_instructions(trajectory, kind, rng))


def joined_text(said: Sequence[str]) -> str:
    """Return the instructions of the tasks of a chain as one."""
    first, *others = said
    return ", then ".join([first, *(f"{text[:1].lower()}{text[1:]}" for text in others)]).replace(".,", ",")


def draw_instructions(trajectory: Trajectory, kind: str, rng: Generator) -> list[str]:
    """Return a phrasing of each task of a rollout; where a task begins is the goal of the one before it."""
    found, starts = [], dict[str, Floats]()
    for stage in trajectory.stages or (trajectory,):
        text = str(rng.choice(np.array(phrasings()[stage.task][kind], dtype=object)))
        start = starts.get(TASK_OBJECTS[stage.task], stage.object_pos[0])
        found.append(text.replace("{where}", describe_displacement(stage.goal - start)))
        starts[TASK_OBJECTS[stage.task]] = stage.goal
    return found


def describe_displacement(displacement: Floats) -> str:
    """Return a displacement in words, in the robot's frame: right is +x, away is +y, up is +z."""
    parts = [
        f"{abs(length) * 100:.0f} cm {names[0 if length > 0 else 1]}"
        for length, names in zip(displacement, DIRECTION_WORDS, strict=True)
        if abs(length) >= _MIN_STATED
    ]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts) or "right here"


def turned(displacement: Floats, angle: float) -> Floats:
    """Return a displacement turned about the vertical axis, by radians."""
    x, y, z = displacement
    return np.array([x * np.cos(angle) - y * np.sin(angle), x * np.sin(angle) + y * np.cos(angle), z])


def ask_for_distractor(task: str, kind: str, rng: Generator) -> Counterfactual:
    """Ask for a task whose object stands untouched beside those of the rollout."""
    text = str(rng.choice(np.array(phrasings()[task][kind], dtype=object)))
    where = describe_displacement(rng.uniform(-_MOST_ASKED, _MOST_ASKED, 3))
    return Counterfactual(text.replace("{where}", where), 1, "another_thing")


def counterfactuals(trajectory: Trajectory, rng: Generator) -> list[Counterfactual]:
    """Return other instructions for the same video, each with its exact level; the list may be empty."""
    found = [make(trajectory, rng) for make in (_other_goal, _opposite, _halfway, _untouched, _left_alone)]
    return [other for other in found if other is not None]


def _other_goal(trajectory: Trajectory, rng: Generator) -> Counterfactual | None:
    """Ask for the same object at another goal; the distance to it gives the level."""
    if "{where}" not in phrasings()[trajectory.task]["train"][0]:
        return None
    displacement = trajectory.goal - trajectory.object_pos[0]
    goal = turned(displacement, rng.uniform(0.5, 1.5) * np.pi)
    spec = PROGRESS_SPECS[trajectory.task]
    start = float(np.linalg.norm(goal))
    distance = float(np.linalg.norm(trajectory.object_pos[-1] - trajectory.object_pos[0] - goal))
    if start < 2 * spec.success_distance or distance <= spec.success_distance:
        return None
    level = level_of_progress(progress_of(spec.family, fraction_covered(start, distance, spec.success_distance), 0.0))
    return Counterfactual(f"Move {TASK_OBJECTS[trajectory.task]} {describe_displacement(goal)}.", level, "other_goal")


def _opposite(trajectory: Trajectory, rng: Generator) -> Counterfactual | None:
    """Ask for the opposite of what was clearly done."""
    if trajectory.task not in OPPOSITE_TASKS or trajectory.readings[-1].level < 3:
        return None
    text = str(rng.choice(np.array(phrasings()[OPPOSITE_TASKS[trajectory.task]]["train"], dtype=object)))
    return Counterfactual(text, 1, "opposite")


def _halfway(trajectory: Trajectory, _rng: Generator) -> Counterfactual | None:
    """Ask for half of the change; how much of it is there decides."""
    if trajectory.task not in HALFWAY_INSTRUCTIONS:
        return None
    spec = PROGRESS_SPECS[trajectory.task]
    change = fraction_covered(trajectory.readings[0].distance, trajectory.readings[-1].distance, spec.success_distance)
    # Too little is as far from half as for the whole task; too far breaks the word "only".
    starts = (LEVEL_STARTS_BY_FAMILY[spec.family][0], 0.25, 0.35, 0.4, 0.6)
    level = int(np.searchsorted(starts, change, side="right")) + 1
    return Counterfactual(HALFWAY_INSTRUCTIONS[trajectory.task], 3 if level == 6 else level, "halfway")


def _untouched(trajectory: Trajectory, _rng: Generator) -> Counterfactual | None:
    """Ask for something to be done to another object that nobody touched."""
    if trajectory.task not in OTHER_OBJECTS:
        return None
    text, joints = OTHER_OBJECTS[trajectory.task]
    moved = np.abs(trajectory.qpos[:, joints] - trajectory.qpos[0, joints]).max()
    return Counterfactual(text, 1, "other_thing") if moved < _UNMOVED else None


def _left_alone(trajectory: Trajectory, _rng: Generator) -> Counterfactual | None:
    """Ask for the object to be left as it is."""
    if PROGRESS_SPECS[trajectory.task].family == "reach":
        return None
    moved = float(np.linalg.norm(trajectory.object_pos - trajectory.object_pos[0], axis=1).max())
    if _UNMOVED <= moved < _MOVED:
        return None
    return Counterfactual(f"Leave {TASK_OBJECTS[trajectory.task]} as it is.", 5 if moved < _UNMOVED else 1, "leave")


# Inverse instructions: how people ask for a task to be undone, where no other task says it.

# fmt: off
_UNDO = {
    "basketball": ("Take the ball out of the hoop.", "Bring the ball down from the basket."),
    "bin-picking": ("Move the cube from the blue bin back to the red bin.", "Take the cube out of the blue bin."),
    "box-close": ("Take the lid off the box.", "Open the box.", "Lift the lid off the wooden box."),
    "button-press": ("Release the button.", "Let the button come out again."),
    "button-press-topdown": ("Release the button.", "Let the button come up again."),
    "button-press-topdown-wall": ("Release the button.", "Let the button come up again."),
    "button-press-wall": ("Release the button.", "Let the button come out again."),
    "coffee-button": ("Release the button of the coffee machine.",),
    "coffee-push": ("Take the mug away from the coffee machine.", "Pull the cup out from under the spout."),
    "coffee-pull": ("Put the mug back under the coffee machine.", "Push the cup back under the spout."),
    "dial-turn": ("Turn the dial back.", "Rotate the knob back to where it was."),
    "hammer": ("Pull the nail out of the block.", "Get the nail out of the wood."),
    "hand-insert": ("Take the block out of the hole.", "Lift the cube out of the hole."),
    "lever-pull": ("Push the lever down.", "Lower the lever."),
    "peg-insert-side": ("Pull the green peg out of the box.", "Take the peg out of the hole."),
    "peg-unplug-side": ("Plug the peg into the wall.", "Put the plug back into its socket."),
    "shelf-place": ("Take the block off the shelf.", "Bring the block down from the shelf."),
    "soccer": ("Take the ball out of the goal.", "Bring the ball back from the net."),
    "sweep-into": ("Take the block out of the hole.",),
}
# fmt: on
SYMMETRIC_TASKS = ("faucet-open", "faucet-close")  # opposites that begin alike: neither undoes the other


@cache
def inverse_instructions(task: str, seen: tuple[str, ...]) -> tuple[str, ...]:
    """Return instructions to undo a task, without the words of a task that is not among the seen ones."""
    opposite = OPPOSITE_TASKS.get(task)
    if opposite is not None:
        return phrasings()[opposite]["train"] if opposite in seen else ()
    unsaid = {text for other, lists in phrasings().items() if other not in seen for text in lists["train"]}
    return tuple(text for text in _UNDO.get(task, ()) if text not in unsaid)


# Captions: what happened in a clip in words, from the positions of gripper and object.

_MOVED_METRES = 0.03  # metres
_WORDS = (("right", "left"), ("away", "towards"), ("up", "down"))
_NAMES = {word for name in TASK_OBJECTS.values() for word in name.split()} - {"the", "of"}
CAPTION_WORDS = tuple(
    sorted({*_NAMES, *COLOURS, *(word for pair in _WORDS for word in pair), "moved", "stayed", "pushed", "untouched"})
)


def caption(task: str, gripper: Floats, moved: Floats, *, name: str = "") -> str:
    """Return one sentence about the gripper and one about the object; `name` is what it is called instead."""
    about_gripper = _directions(gripper[-1] - gripper[0])
    said = f"the gripper moved {about_gripper}" if about_gripper else "the gripper stayed"
    if PROGRESS_SPECS[task].family == "reach":
        return said
    called = name or TASK_OBJECTS[task]
    about_object = _directions(moved[-1] - moved[0])
    return f"{said}, {called} was pushed {about_object}" if about_object else f"{said}, {called} was untouched"


def _directions(moved: Floats) -> str:
    parts = [
        words[0 if length > 0 else 1]
        for length, words in zip(moved, _WORDS, strict=True)
        if abs(length) > _MOVED_METRES
    ]
    return " ".join(parts)
