"""Instructions: how people ask for each task, and what else they might have asked for in the same scene."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import level_of_progress
from rewardlab.worlds.metaworld.objects import OPPOSITES, PARTLY, THINGS, UNTOUCHED
from rewardlab.worlds.metaworld.physics import Trace
from rewardlab.worlds.metaworld.progress import FAMILIES, YARDSTICKS, progress_of, shrunk

Floats = NDArray[np.float64]
PHRASINGS = ("train", "held_out")
_LEAST_SAID = 0.02  # metres; what is nearer than that is not worth a word
_UNMOVED, _MOVED = 0.005, 0.03  # metres; in between nobody can say whether a thing was left alone


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


def instruction(trace: Trace, kind: str, rng: Generator) -> str:
    """Return one way of asking for the task of a rollout; a goal that cannot be seen is said in centimetres."""
    text = str(rng.choice(np.array(phrasings()[trace.task][kind], dtype=object)))
    return text.replace("{where}", where(trace.goal - trace.thing[0]))


def where(way: Floats) -> str:
    """Say a displacement as the robot sees it: right is +x, away is +y, up is +z."""
    words = (("to the right", "to the left"), ("further from the robot", "closer to the robot"), ("up", "down"))
    parts = [
        f"{abs(length) * 100:.0f} cm {names[0 if length > 0 else 1]}"
        for length, names in zip(way, words)
        if abs(length) >= _LEAST_SAID
    ]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts) or "right here"


def counterfactuals(trace: Trace, rng: Generator) -> list[Counterfactual]:
    """Return other instructions for the same video, each with its exact level; the list may be empty."""
    found = [make(trace, rng) for make in _MAKERS]
    return [other for other in found if other is not None]


def _other_goal(trace: Trace, rng: Generator) -> Counterfactual | None:
    """Ask for the same thing at another place; the distance to it gives the level."""
    if "{where}" not in phrasings()[trace.task]["train"][0]:
        return None
    way = trace.goal - trace.thing[0]
    angle = rng.uniform(0.5, 1.5) * np.pi
    turned = np.array(
        [way[0] * np.cos(angle) - way[1] * np.sin(angle), way[0] * np.sin(angle) + way[1] * np.cos(angle), way[2]]
    )
    yardstick = YARDSTICKS[trace.task]
    start, left = float(np.linalg.norm(turned)), float(np.linalg.norm(trace.thing[-1] - trace.thing[0] - turned))
    if start < 2 * yardstick.enough or left <= yardstick.enough:
        return None
    level = level_of_progress(progress_of(yardstick.family, shrunk(start, left, yardstick.enough), 0.0))
    return Counterfactual(f"Move {THINGS[trace.task]} {where(turned)}.", level, "other_goal")


def _opposite(trace: Trace, rng: Generator) -> Counterfactual | None:
    """Ask for the contrary of what was clearly done."""
    if trace.task not in OPPOSITES or trace.measures[-1].level < 3:
        return None
    text = str(rng.choice(np.array(phrasings()[OPPOSITES[trace.task]]["train"], dtype=object)))
    return Counterfactual(text, 1, "opposite")


def _halfway(trace: Trace, rng: Generator) -> Counterfactual | None:
    """Ask for half of the change; how much of it is there decides."""
    if trace.task not in PARTLY:
        return None
    yardstick = YARDSTICKS[trace.task]
    change = shrunk(trace.measures[0].left, trace.measures[-1].left, yardstick.enough)
    # Too little is as far from half as for the whole task; too far breaks the word "only".
    level = int(np.searchsorted([FAMILIES[yardstick.family][0], 0.25, 0.35, 0.4, 0.6], change, side="right")) + 1
    return Counterfactual(PARTLY[trace.task], 3 if level == 6 else level, "halfway")


def _untouched(trace: Trace, rng: Generator) -> Counterfactual | None:
    """Ask for something to be done to another thing that nobody touched."""
    if trace.task not in UNTOUCHED:
        return None
    text, joints = UNTOUCHED[trace.task]
    moved = np.abs(trace.qpos[:, joints] - trace.qpos[0, joints]).max()
    return Counterfactual(text, 1, "other_thing") if moved < _UNMOVED else None


def _left_alone(trace: Trace, rng: Generator) -> Counterfactual | None:
    """Ask for the thing to be left as it is."""
    if YARDSTICKS[trace.task].family == "reach":
        return None
    moved = float(np.linalg.norm(trace.thing - trace.thing[0], axis=1).max())
    if _UNMOVED <= moved < _MOVED:
        return None
    return Counterfactual(f"Leave {THINGS[trace.task]} as it is.", 5 if moved < _UNMOVED else 1, "leave")


_MAKERS: tuple[Callable[[Trace, Generator], Counterfactual | None], ...] = (
    _other_goal,
    _opposite,
    _halfway,
    _untouched,
    _left_alone,
)
