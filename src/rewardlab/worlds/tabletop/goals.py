"""Goals: what can be asked in a scene, in words, and the progress of any of them in every state of a rollout.

Progress looks at the states alone. Level 5 and progress 1 mean that the goal is reached in that state; a hand that
comes near adds up to .09 and never leaves level 1.
"""

import math
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.episode import LEVEL_STARTS
from rewardlab.core.seeding import pick
from rewardlab.worlds.metaworld.task_progress import LEVEL_STARTS_BY_FAMILY
from rewardlab.worlds.plan import PHRASINGS
from rewardlab.worlds.tabletop.catalog import EVERYTHING, Vocabulary
from rewardlab.worlds.tabletop.scene import Scene, Thing

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

LIFTED, PUSHED, BESIDE = 0.10, 0.10, 0.06  # metres: how high, how far, and how near is enough
AT_END = 0.08  # of the way of a joint that may be left
POURED = 0.8  # of what a vessel held that must arrive
_RESTING = 0.02  # metres above its support at which a thing lies on it
_CONTACT = 0.04  # metres at which the hand has arrived
_BEFORE_SUCCESS = 0.99
_RELEASE = 0.1  # share of putting something down that letting go makes
_PASSING = ("lift", "push", "sort", "pour", "put-next-to")  # verbs that cannot be one of several steps
DIRECTIONS = ("to the left", "to the right", "towards the robot", "away from the robot")
_TOWARDS = {"towards the robot": np.array([-1.0, 0, 0]), "away from the robot": np.array([1.0, 0, 0])}


@dataclass(frozen=True, eq=False)
class States:
    """A rollout, state by state: the hand, and every thing of the scene."""

    hand: Floats  # (T, 3): between the fingertips
    turn: Floats  # (T, 3, 3): columns are across the opening, along it, and where the hand points
    opening: Floats  # (T,): metres between the fingers
    held: NDArray[np.int64]  # (T,): the thing in the hand; -1 for none
    place: Floats  # (T, things, 3): the middle of the base
    pose: Floats  # (T, things, 3, 3)
    value: Floats  # (T, things): of a joint from 0 to 1, or how full a vessel is

    def at(self, steps: NDArray[np.int64] | list[int]) -> "States":
        """Return these states alone."""
        return States(*(column[steps] for column in vars(self).values()))

    def __len__(self) -> int:
        return len(self.hand)


@dataclass(frozen=True)
class Goal:
    """What is asked: a verb, the number of a thing, of another one, a direction, several things, and the next goal."""

    verb: str
    thing: int
    other: int = -1
    direction: str = ""
    members: tuple[int, ...] = ()
    group: str = ""  # what the members are called
    also: "Goal | None" = None

    @property
    def steps(self) -> tuple["Goal", ...]:
        """Return the goals of one step that this one asks for, in their order."""
        return (replace(self, also=None), *(self.also.steps if self.also else ()))

    @property
    def verbs(self) -> tuple[str, ...]:
        """Return the verbs of all steps."""
        return tuple(step.verb for step in self.steps)


def in_steps(steps: Sequence[Goal]) -> Goal:
    """Return goals of one step as one goal, which asks for them in this order."""
    return replace(steps[0], also=in_steps(steps[1:]) if len(steps) > 1 else None)


def direction_of(scene: Scene, direction: str) -> Floats:
    """Return a direction on the table; left and right are those of the picture."""
    if direction in _TOWARDS:
        return _TOWARDS[direction]
    right = scene.camera.right()
    return right if direction == "to the right" else -right


def handle_of(thing: Thing, values: Floats) -> Floats:
    """Return where the handle of a joint is at these values, (T, 3)."""
    joint = thing.type.joint
    assert joint is not None
    local = np.array(joint.handle) * thing.size
    moved = joint_motion(thing, values)
    inside = np.einsum("tij,j->ti", moved[0], local) + moved[1]
    return np.asarray(inside @ rotation_z(thing.yaw).T + [*thing.place, 0.0])


def joint_motion(thing: Thing, values: Floats) -> tuple[Floats, Floats]:
    """Return rotation (T, 3, 3) and translation (T, 3) of the moving part at these values, within its thing."""
    joint = thing.type.joint
    assert joint is not None
    axis = np.array(joint.axis, np.float64)
    if joint.pivot is None:
        turns = np.broadcast_to(np.eye(3), (len(values), 3, 3))
        return turns, values[:, None] * (joint.travel * thing.size * axis)
    angles, pivot = values * joint.travel, np.array(joint.pivot) * thing.size
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    sine, cosine = np.sin(angles)[:, None, None], np.cos(angles)[:, None, None]
    turns = np.eye(3) + sine * cross + (1 - cosine) * (cross @ cross)
    return turns, pivot - turns @ pivot


def rotation_z(angle: float) -> Floats:
    """Return the rotation about the vertical axis."""
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.array([[cosine, -sine, 0.0], [sine, cosine, 0.0], [0.0, 0.0, 1.0]])


def inner_place(scene: Scene, states: States, other: int) -> Floats:
    """Return the middle of where things lie in or on another thing, (T, 3)."""
    thing = scene.things[other]
    base = states.place[:, other].copy()
    if thing.type.joint:  # such as in an opened drawer
        base = base + joint_motion(thing, states.value[:, other])[1] @ rotation_z(thing.yaw).T
    base[:, 2] += thing.floor
    return base


# Progress.


def progress(scene: Scene, states: States, goal: Goal) -> Floats:
    """Return the progress of a goal in every state, (T,), measured against the first state."""
    return _all_of([_PROGRESS.get(step.verb, _joint_progress)(scene, states, step) for step in goal.steps])


def _all_of(parts: Sequence[Floats]) -> Floats:
    """Return the progress of what is done when all its parts are: their mean, and 1 only then."""
    if len(parts) == 1:
        return parts[0]
    every = np.stack(parts)
    return np.where((every == 1).all(axis=0), 1.0, np.minimum(every.mean(axis=0), _BEFORE_SUCCESS))


def _graded(change: Floats, near: Floats, success: Bools, family: str) -> Floats:
    """Return progress for the fraction of the change that is there, as everywhere in the worlds."""
    starts, scale = (0.0, *LEVEL_STARTS_BY_FAMILY[family], 1.0), (0.0, *LEVEL_STARTS)
    reached = np.interp(change, starts, scale)
    approach = 0.9 * scale[1] * near
    graded = np.maximum(reached, approach + reached * (1 - approach / scale[1]))
    return np.where(success, 1.0, np.minimum(graded, _BEFORE_SUCCESS))


def _covered(distance: Floats, enough: float) -> Floats:
    """Return which fraction of the way from the first distance down to enough each one has gone."""
    return np.asarray(np.clip((distance[0] - distance) / max(float(distance[0]) - enough, 1e-6), 0, 1))


def _near(states: States, points: Floats) -> Floats:
    return _covered(np.linalg.norm(states.hand - points, axis=1), _CONTACT)


def _grip(scene: Scene, states: States, thing: int) -> Floats:
    """Return where a hand takes a thing, in every state."""
    height = scene.things[thing].type.grip[0] * scene.things[thing].size
    return np.asarray(states.place[:, thing] + height * states.pose[:, thing, :, 2])


def _flat(states: States, one: int, other: Floats) -> Floats:
    return np.asarray(np.linalg.norm(states.place[:, one, :2] - other[:, :2], axis=1))


def _lift(scene: Scene, states: States, goal: Goal) -> Floats:
    raised = states.place[:, goal.thing, 2] - states.place[0, goal.thing, 2]
    held = states.held == goal.thing
    near = _near(states, _grip(scene, states, goal.thing))
    return _graded(np.clip(raised / LIFTED, 0, 1) * held, near, held & (raised >= LIFTED), "carry")


def _lies(states: States, thing: int, support: Floats) -> Bools:
    return np.asarray((states.held != thing) & (np.abs(states.place[:, thing, 2] - support) <= _RESTING))


def _put(scene: Scene, states: States, goal: Goal) -> Floats:
    """Measure putting something in, on or onto something else."""
    where = inner_place(scene, states, goal.other)
    distance, enough = _flat(states, goal.thing, where), scene.things[goal.other].inner
    success = (distance <= enough) & _lies(states, goal.thing, where[:, 2])
    change = (1 - _RELEASE) * _covered(distance, enough)
    return _graded(change, _near(states, _grip(scene, states, goal.thing)), success, "carry")


def _next_to(scene: Scene, states: States, goal: Goal) -> Floats:
    one, other = scene.things[goal.thing], scene.things[goal.other]
    distance, enough = _flat(states, goal.thing, states.place[:, goal.other]), one.radius + other.radius + BESIDE
    success = (distance <= enough) & _lies(states, goal.thing, np.zeros(len(states)))
    change = (1 - _RELEASE) * _covered(distance, enough)
    return _graded(change, _near(states, _grip(scene, states, goal.thing)), success, "carry")


def clear_of(scene: Scene, goal: Goal) -> float:
    """Return how far from the middle of a place something is out of it."""
    return scene.things[goal.other].radius + 0.4 * scene.things[goal.thing].radius


def _take_out(scene: Scene, states: States, goal: Goal) -> Floats:
    distance, enough = _flat(states, goal.thing, states.place[:, goal.other]), clear_of(scene, goal)
    out = np.clip((distance - distance[0]) / max(enough - float(distance[0]), 1e-6), 0, 1)
    raised = np.clip((states.place[:, goal.thing, 2] - states.place[0, goal.thing, 2]) / LIFTED, 0, 1)
    landed = (states.held != goal.thing) & (states.place[:, goal.thing, 2] <= _RESTING)
    change = np.maximum(0.3 * raised, (1 - _RELEASE) * out)
    near = _near(states, _grip(scene, states, goal.thing))
    return _graded(change, near, landed & (out >= 1), "carry")


def _push(scene: Scene, states: States, goal: Goal) -> Floats:
    moved = states.place[:, goal.thing] - states.place[0, goal.thing]
    along = moved @ direction_of(scene, goal.direction)
    aside = np.sqrt(np.maximum((moved**2).sum(axis=1) - along**2, 0))
    change = np.clip((along - np.maximum(0, aside - 0.5 * along)) / PUSHED, 0, 1)
    success = (change >= 1) & (states.held != goal.thing) & (np.abs(moved[:, 2]) <= _RESTING)
    return _graded(change, _near(states, _grip(scene, states, goal.thing)), success, "slide")


def _pour(scene: Scene, states: States, goal: Goal) -> Floats:
    gained = states.value[:, goal.other] - states.value[0, goal.other]
    change = np.clip(gained / (POURED * max(float(states.value[0, goal.thing]), 1e-6)), 0, 1)
    # Poured into the right vessel or not at all: bringing it there is less than half of the way.
    brought = _covered(_flat(states, goal.thing, states.place[:, goal.other]), 0.12) * (states.held == goal.thing)
    near = _near(states, _grip(scene, states, goal.thing))
    return _graded(np.maximum(change, 0.35 * brought), near, change >= 1, "carry")


def _sort(scene: Scene, states: States, goal: Goal) -> Floats:
    return _all_of([_put(scene, states, replace(goal, thing=member)) for member in goal.members])


def _joint_progress(scene: Scene, states: States, goal: Goal) -> Floats:
    thing, value = scene.things[goal.thing], states.value[:, goal.thing]
    assert thing.type.joint is not None
    end = float(goal.verb == thing.type.joint.verbs[0])
    near = _near(states, handle_of(thing, value))
    left = np.abs(value - end)
    family = "press" if goal.verb == "press" else "swing"
    return _graded(_covered(left, AT_END), near, left <= AT_END, family)


Measure = Callable[[Scene, States, Goal], Floats]
_PROGRESS: dict[str, Measure] = {
    **{"lift": _lift, "put-in": _put, "put-on": _put, "stack": _put, "put-next-to": _next_to},
    **{"take-out": _take_out, "push": _push, "pour": _pour, "sort": _sort},
}


# What can be asked.


def goals_of(scene: Scene, vocabulary: Vocabulary = EVERYTHING) -> list[Goal]:
    """Return every goal of one step in a scene, for the verbs of a vocabulary; none is reached at the start."""
    found = [goal for make in (_free_goals, _joint_goals, _group_goals) for goal in make(scene)]
    return [goal for goal in found if goal.verb in vocabulary.verbs]


def _free_goals(scene: Scene) -> Iterator[Goal]:
    carrying = {thing.on for thing in scene.things}
    for i, thing in enumerate(scene.things):
        if thing.type.role != "movable" or i in carrying:
            continue
        yield Goal("lift", i)
        if thing.on >= 0:
            yield Goal("take-out", i, thing.on)
        else:
            yield from (Goal("push", i, direction=direction) for direction in DIRECTIONS)
        for j, other in enumerate(scene.things):
            if j not in (i, thing.on):
                yield from _pair_goals(thing, other, i, j)


def _pair_goals(thing: Thing, other: Thing, i: int, j: int) -> Iterator[Goal]:
    apart = float(np.hypot(*np.subtract(thing.place, other.place)))
    fits = thing.radius <= 1.6 * other.inner and apart > other.inner + 0.04
    open_enough = other.type.joint is None or other.value > 0.5
    if fits and open_enough and other.type.role != "movable":
        yield Goal(f"put-{other.type.relation}", i, j)
    if other.type.role == "movable" and other.on < 0 and thing.on < 0:
        if thing.radius <= 2.5 * other.inner and apart > other.inner + 0.04:
            yield Goal("stack", i, j)
        if apart > thing.radius + other.radius + BESIDE + 0.06:
            yield Goal("put-next-to", i, j)
    if thing.value > 0.5 and other.type.fill and other.value < 0.2 and thing.on < 0:
        yield Goal("pour", i, j)


def _joint_goals(scene: Scene) -> Iterator[Goal]:
    for i, thing in enumerate(scene.things):
        if thing.type.joint:
            verb = thing.type.joint.verbs[0 if thing.value < 0.5 else 1]
            if verb:
                yield Goal(verb, i)


def _group_goals(scene: Scene) -> Iterator[Goal]:
    free = [i for i, thing in enumerate(scene.things) if thing.type.role == "movable" and thing.on < 0]
    groups: dict[str, list[int]] = {}
    for i in free:
        thing = scene.things[i]
        for name in filter(None, (thing.type.group, f"{thing.colour} things" if not thing.type.colours else "")):
            groups.setdefault(name, []).append(i)
    for name, members in groups.items():
        # All that answer to the name are meant, also those that already lie somewhere.
        everything = [
            t for t in scene.things if t.type.role == "movable" and name in (t.type.group, f"{t.colour} things")
        ]
        if len(members) < 2 or len(members) > 3 or len(everything) != len(members):
            continue
        for j, other in enumerate(scene.things):
            if other.type.role == "receptacle" and all(scene.things[i].radius <= 1.6 * other.inner for i in members):
                yield Goal("sort", members[0], j, members=tuple(members), group=name)


def several_steps(scene: Scene, goals: list[Goal], count: int, rng: Generator) -> Goal | None:
    """Return so many goals as one that can all be reached in the end, such as opening a drawer and filling it."""
    lasting = [goal for goal in goals if goal.verb not in _PASSING]
    first = pick(lasting, rng) if lasting else None
    if first is None:
        return None
    steps = [first]
    if first.verb == "open" and scene.things[first.thing].inner:
        fits = [
            i for i, t in enumerate(scene.things) if t.type.role == "movable" and t.on < 0 and not _carries(scene, i)
        ]
        fits = [i for i in fits if scene.things[i].radius <= 1.6 * scene.things[first.thing].inner]
        if fits:
            steps.append(Goal("put-in", pick(fits, rng), first.thing))
    while len(steps) < count:
        more = [goal for goal in lasting if all(_leaves_alone(goal, step) for step in steps)]
        if not more:
            return None
        steps.append(pick(more, rng))
    return in_steps(steps)


def _leaves_alone(goal: Goal, step: Goal) -> bool:
    """Tell whether a goal can be reached after a step without undoing it; two may fill the same place."""
    busy = {step.thing, step.other}
    if goal.thing in busy or (goal.verb == "stack" and goal.other in busy):
        return False
    return not busy & {goal.thing, goal.other} or goal.other == step.other != -1


def _carries(scene: Scene, number: int) -> bool:
    return any(thing.on == number for thing in scene.things)


# Words.


@cache
def phrasings() -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the phrasings of every verb, those for training and those held out."""
    with Path(__file__).with_name("instructions.toml").open("rb") as handle:
        rows = tomllib.load(handle)
    return {verb: {kind: tuple(lists[kind]) for kind in PHRASINGS} for verb, lists in rows.items()}


def names_of(scene: Scene, number: int) -> list[str]:
    """Return what a thing may be called here: its names alone where there is one of its kind, else with its colour."""
    thing = scene.things[number]
    coloured = [f"the {thing.colour} {name}" for name in thing.type.names]
    alone = sum(other.kind == thing.kind for other in scene.things) == 1
    plain = [f"the {name}" for name in thing.type.names]
    if not alone:
        return coloured
    return plain if len(thing.type.colours) == 1 else [*plain, *coloured]


def texts_of(scene: Scene, goal: Goal, kind: str = "train") -> list[str]:
    """Return every way to say a goal; of several steps, every combination of theirs."""
    if goal.also is not None:
        return [joined_text(said) for said in product(*(texts_of(scene, step, kind) for step in goal.steps))]
    templates = phrasings()[goal.verb][kind]
    others = names_of(scene, goal.other) if goal.other >= 0 else [""]
    relation = scene.things[goal.other].type.relation if goal.other >= 0 else ""
    words = {"where": goal.direction, "group": goal.group, "in": relation}
    words["from"] = "out of" if relation == "in" else "off"
    said = list(
        dict.fromkeys(
            _capital(template.format(a=a, b=b, **words))
            for a in names_of(scene, goal.thing)
            for b in others
            for template in templates
        )
    )
    return [f"{text}." for text in said]


def joined_text(said: Sequence[str]) -> str:
    """Return the texts of several steps as one sentence."""
    first, *others = (text.removesuffix(".") for text in said)
    return " and ".join([first, *(f"{text[:1].lower()}{text[1:]}" for text in others)]) + "."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def draw_texts(scene: Scene, goal: Goal, kind: str, rng: Generator) -> list[str]:
    """Return one way to say each step of a goal; `joined_text` makes the text of the goal of them."""
    ways = [texts_of(scene, step, kind) for step in goal.steps]
    sizes = [len(way) for way in ways]
    chosen = np.unravel_index(int(rng.integers(math.prod(sizes))), sizes)  # three steps have millions of combinations
    return [way[int(number)] for way, number in zip(ways, chosen, strict=True)]


def draw_text(scene: Scene, goal: Goal, kind: str, rng: Generator) -> str:
    """Return one way to say a goal."""
    return joined_text(draw_texts(scene, goal, kind, rng))
