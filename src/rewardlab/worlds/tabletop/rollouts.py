"""Rollouts: a hand that goes through a task in one of several qualities, without physics, state by state.

What a hand holds moves with it, what it lets go falls, and a joint follows its handle. So every state is exact.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.catalog import find
from rewardlab.core.episode import FailureCause, FailureEvent
from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import pick, rng_for
from rewardlab.worlds.tabletop.arms import within_reach
from rewardlab.worlds.tabletop.catalog import EVERYTHING, Vocabulary
from rewardlab.worlds.tabletop.goals import (
    BESIDE,
    LIFTED,
    PUSHED,
    Goal,
    States,
    clear_of,
    direction_of,
    goals_of,
    handle_of,
    in_steps,
    inner_place,
    progress,
    rotation_z,
    several_steps,
)
from rewardlab.worlds.tabletop.scene import Scene, draw_scene, usable_verbs

Floats = NDArray[np.float64]

STEPS_PER_SECOND = 20
WIDEST = 0.08  # metres between open fingers
_ABOVE = 0.1  # metres above a thing from which the hand comes down
_TRIES = 20
TWO_STEPS, THREE_STEPS = "two-steps", "three-steps"  # in place of a verb
STEPS = {TWO_STEPS: 2, THREE_STEPS: 3}  # goals that are asked for in one instruction
_TWO_STEPS = 0.1  # share of rollouts with two goals at once
_VERB_SHARES = {
    **{"lift": 2.5, "put-in": 3.0, "put-on": 2.5, "put-next-to": 1.5, "take-out": 1.5, "push": 2.0, "stack": 1.5},
    **{"pour": 1.0, "sort": 1.0, "open": 1.5, "close": 1.5, "press": 1.0, "turn": 0.8},
}


@dataclass(frozen=True, eq=False)
class Rollout:
    """One rollout: the scene, what was to be done, how it was done, its states, and why and in which it failed."""

    seed: int
    scene: Scene
    goal: Goal
    quality: str
    states: States
    failure: FailureEvent | None = None


@dataclass(frozen=True)
class Manner:
    """How a task is gone through: the grasp misses, the thing slips on the way, or the end falls short."""

    miss: bool = False
    drop: bool = False
    short: bool = False


# How often each quality is drawn where none is asked for.
QUALITIES = {
    **{"success": 0.34, "stop": 0.12, "missed_grasp": 0.08, "drop": 0.08, "wrong_thing": 0.09, "wrong_place": 0.07},
    **{"near_miss": 0.1, "undone": 0.04, "retried": 0.05, "idle": 0.03},
}


def make_rollout(
    seed: int, verb: str = "", quality: str = "", vocabulary: Vocabulary = EVERYTHING, camera: str = "any"
) -> Rollout:
    """Return the rollout of a seed; verb and quality are drawn where they are not given."""
    rng = rng_for(seed, "tabletop", verb, quality)
    try:
        asked = verb or (TWO_STEPS if rng.random() < _TWO_STEPS else _draw_verb(rng, vocabulary))
        scene, goal, goals = _draw_goal(rng, asked, vocabulary, camera)
    except PlanError:
        if verb:
            raise
        scene, goal, goals = _draw_goal(rng, _draw_verb(rng, vocabulary), vocabulary, camera)
    how = quality or str(rng.choice(list(QUALITIES), p=list(QUALITIES.values())))
    motion = Motion(scene, rng)
    find(_QUALITIES, how, "quality")(motion, goal, goals)
    states = motion.states()
    failure = _failure_of(motion, goal, states)
    if not within_reach(scene.arm, states):
        scene = replace(scene, arm=replace(scene.arm, make="made", paint=(*scene.arm.paint[:3], 1.0)))
    return Rollout(seed, scene, goal, how, states, failure)


def _failure_of(motion: "Motion", goal: Goal, states: States) -> FailureEvent | None:
    """Return why the goal is not reached in the last state, and the state from which on that can be seen."""
    if progress(motion.scene, states, goal)[-1] == 1:
        return None
    return motion.failure or FailureEvent("other")


def _draw_verb(rng: Generator, vocabulary: Vocabulary) -> str:
    """Return a verb, those more often that people ask of robots."""
    verbs = usable_verbs(vocabulary)
    shares = np.array([_VERB_SHARES.get(verb, 0.5) for verb in verbs])
    return str(rng.choice(verbs, p=shares / shares.sum()))


def _draw_goal(rng: Generator, verb: str, vocabulary: Vocabulary, camera: str) -> tuple[Scene, Goal, list[Goal]]:
    """Return a scene, a goal of this verb in it, and every goal of one step that can be gone through."""
    for _ in range(5 * _TRIES if verb == THREE_STEPS else _TRIES):
        scene = draw_scene(
            rng, pick(usable_verbs(vocabulary), rng) if verb in STEPS else verb, vocabulary, camera=camera
        )
        goals = [goal for goal in goals_of(scene, vocabulary) if _way_is_free(scene, goal)]
        if verb in STEPS:
            together = several_steps(scene, goals, STEPS[verb], rng)
            own = [together] if together is not None and set(together.verbs) <= vocabulary.verbs else []
        else:
            own = [goal for goal in goals if goal.verb == verb]
            own = [goal for goal in own if goal.thing == 0] or own
        if own:
            return scene, pick(own, rng), goals
    raise PlanError(f"no scene had nothing to do for {verb!r} with these kinds; allow more kinds")


def _way_is_free(scene: Scene, goal: Goal) -> bool:
    """Tell whether nothing stands where a push would bring its thing, on the table."""
    if goal.verb != "push":
        return True
    thing = scene.things[goal.thing]
    for far in (0.06, 0.12, 0.17):
        spot = np.array(thing.place) + far * direction_of(scene, goal.direction)[:2]
        others = [other for number, other in enumerate(scene.things) if number != goal.thing]
        if any(np.hypot(*(spot - other.place)) < thing.radius + other.radius for other in others):
            return False
    return bool(-0.27 < spot[0] < 0.32 and abs(spot[1]) < 0.36)


def hand_rotation(yaw: Floats, tilt: Floats) -> Floats:
    """Return rotations (n, 3, 3) of a hand that points down, turned about the vertical and tilted about its opening."""
    cy, sy, ct, st = np.cos(yaw), np.sin(yaw), np.cos(tilt), np.sin(tilt)
    zero = np.zeros_like(cy)
    rows = [[cy * ct, sy, -cy * st], [sy * ct, -cy, -sy * st], [-st, zero, -ct]]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def up(height: float) -> Floats:
    """Return the way straight up."""
    return np.array([0.0, 0.0, height])


def eased(count: int) -> Floats:
    """Return the way from 0 to 1 in so many steps, slow at both ends, without the start."""
    t = np.arange(1, count + 1) / count
    return t * t * (3 - 2 * t)


@dataclass
class Motion:
    """A rollout in the making: where everything is now, and what was noted so far."""

    scene: Scene
    rng: Generator
    chunks: list[tuple[Any, ...]] = field(default_factory=list)  # stretches of the columns of States
    failure: FailureEvent | None = None  # the first thing that went wrong

    def __post_init__(self) -> None:
        scene, rng = self.scene, self.rng
        self.speed = float(rng.uniform(0.2, 0.5))  # metres a second
        self.hand = np.array([rng.uniform(-0.22, -0.02), rng.uniform(-0.15, 0.15), rng.uniform(0.22, 0.36)])
        self.home = self.hand.copy()
        self.yaw, self.tilt, self.opening, self.held = float(rng.uniform(-0.4, 0.4)), 0.0, WIDEST * 0.9, -1
        support = [scene.things[thing.on].floor if thing.on >= 0 else 0.0 for thing in scene.things]
        self.place = np.array([[*thing.place, z] for thing, z in zip(scene.things, support, strict=True)])
        self.pose = np.stack([rotation_z(thing.yaw) for thing in scene.things])
        self.value = np.array([thing.value for thing in scene.things])
        self.start = self.place.copy()
        self._play(self.hand[None])

    def states(self) -> States:
        """Return everything that was noted."""
        return States(*(np.concatenate(column) for column in zip(*self.chunks, strict=True)))

    def now(self) -> States:
        """Return the last state alone."""
        return States(*(column[-1:] for column in self.chunks[-1]))

    def fail(self, cause: FailureCause, state: int | None = None) -> None:
        """Note that it went wrong in this state, by default the last one, if nothing went wrong before."""
        self.failure = self.failure or FailureEvent(cause, self.steps - 1 if state is None else state)

    @property
    def steps(self) -> int:
        """Return how many states were noted."""
        return sum(len(chunk[0]) for chunk in self.chunks)

    def _play(
        self, hand: Floats, yaw: Floats | None = None, tilt: Floats | None = None, opening: Floats | None = None,
        values: Mapping[int, Floats] | None = None, places: Mapping[int, Floats] | None = None,
    ) -> None:  # fmt: skip
        """Note a stretch of the hand's path, with what it holds or moves."""
        count = len(hand)
        yaw = np.full(count, self.yaw) if yaw is None else yaw
        tilt = np.full(count, self.tilt) if tilt is None else tilt
        opening = np.full(count, self.opening) if opening is None else opening
        turn = hand_rotation(yaw, tilt)
        place, pose, value = (np.repeat(now[None], count, axis=0) for now in (self.place, self.pose, self.value))
        if self.held >= 0:
            place[:, self.held] = hand + turn @ self.offset[0]
            pose[:, self.held] = turn @ self.offset[1]
        for number, path in (values or {}).items():
            value[:, number] = path
        for number, path in (places or {}).items():
            place[:, number] = path
        self.chunks.append((hand, turn, opening, np.full(count, self.held), place, pose, value))
        self.hand, self.yaw, self.tilt, self.opening = hand[-1], float(yaw[-1]), float(tilt[-1]), float(opening[-1])
        self.place, self.pose, self.value = place[-1], pose[-1], value[-1]

    # Skills.

    def go(
        self, goal: Floats, *, yaw: float | None = None, tilt: float | None = None, opening: float | None = None,
        slow: float = 1.0, wander: float = 0.012,
    ) -> None:  # fmt: skip
        """Move the hand to a place, a little off the straight line."""
        way = goal - self.hand
        turn = 0.0 if yaw is None else abs(yaw - self.yaw)
        bend = 0.0 if tilt is None else abs(tilt - self.tilt)
        far = max(float(np.linalg.norm(way)), 0.12 * turn, 0.12 * bend)
        count = max(2, round(STEPS_PER_SECOND * slow * far / self.speed))
        s = eased(count)
        aside = self.rng.normal(0, wander, 3) * min(1.0, far / 0.15)
        hand = self.hand + s[:, None] * way + np.sin(np.pi * s)[:, None] * aside
        ways = [(self.yaw, yaw), (self.tilt, tilt), (self.opening, opening)]
        yaws, tilts, openings = (None if end is None else now + s * (end - now) for now, end in ways)
        self._play(hand, yaws, tilts, openings)

    def wait(self, count: int) -> None:
        """Stay where it is, not quite still."""
        drift = np.cumsum(self.rng.normal(0, 0.0006, (count, 3)), axis=0)
        self._play(self.hand + drift)

    def grip(self, opening: float) -> None:
        """Open or close the fingers."""
        count = int(self.rng.integers(3, 6))
        self._play(
            np.repeat(self.hand[None], count, axis=0), opening=self.opening + eased(count) * (opening - self.opening)
        )

    def grasp(self, number: int, *, miss: bool = False) -> None:
        """Come down on a thing and close the fingers, on it or beside it."""
        thing, rng = self.scene.things[number], self.rng
        height, width = thing.type.grip[0] * thing.size, thing.type.grip[1] * thing.size
        spot = self.place[number] + up(height)
        if miss:
            angle = rng.uniform(-np.pi, np.pi)
            beside = thing.radius * rng.uniform(0.8, 1.2) + rng.uniform(0.03, 0.05)
            spot = spot + beside * np.array([np.cos(angle), np.sin(angle), 0.0]) + up(rng.uniform(0, 0.03))
        yaw = rng.uniform(-0.5, 0.5) if thing.type.round else _half_turn(thing.yaw)
        self.go(spot + up(_ABOVE), yaw=float(yaw), tilt=0.0, opening=min(WIDEST, width + 0.03))
        self.go(spot, slow=1.5, wander=0.003)
        self.grip(0.004 if miss else width)
        if miss:
            self.fail("missed_grasp")
        else:
            turn = hand_rotation(np.array([self.yaw]), np.array([self.tilt]))[0]
            self.offset = turn.T @ (self.place[number] - self.hand), turn.T @ self.pose[number]
            self.held = number

    def release(self) -> None:
        """Open the fingers; what they held falls to what is below."""
        number, self.held = self.held, -1
        if number >= 0:
            spot = self._landing(number)
            fall = max(0.0, float(self.place[number, 2] - spot[2]))
            count = max(2, round(STEPS_PER_SECOND * np.sqrt(2 * fall / 9.81)) + 1)
            t = (np.arange(1, count + 1) / count)[:, None]
            path = self.place[number] + (spot - self.place[number]) * np.hstack([t, t, t**2])
            self.pose[number] = rotation_z(float(np.arctan2(self.pose[number, 1, 0], self.pose[number, 0, 0])))
            wide = min(WIDEST, self.opening + 0.03)
            opening = self.opening + np.minimum(1, 2 * t[:, 0]) * (wide - self.opening)
            self._play(np.repeat(self.hand[None], count, axis=0), opening=opening, places={number: path})
        self.grip(min(WIDEST, self.opening + 0.02))

    def _landing(self, number: int) -> Floats:
        """Return where a thing comes to rest: in or on what is below it, else on the table clear of the others."""
        now, thing = self.now(), self.scene.things[number]
        spot: Floats = self.place[number].copy()
        spot[2] = 0.0
        for j, other in enumerate(self.scene.things):
            if j == number:
                continue
            inner = inner_place(self.scene, now, j)[0]
            opened = other.type.joint is None or self.value[j] > 0.5
            if other.inner and opened and np.hypot(*(spot - inner)[:2]) <= other.inner:
                spot[2] = inner[2]
                return spot
        for j, other in enumerate(self.scene.things):
            away, clear = spot[:2] - self.place[j, :2], other.radius + 0.4 * thing.radius
            if j != number and np.hypot(*away) < clear and self.place[j, 2] < 0.01:
                spot[:2] = self.place[j, :2] + away / max(float(np.hypot(*away)), 1e-3) * clear
        return spot

    def retreat(self) -> None:
        """Go up and a little back."""
        back = np.array([-self.rng.uniform(0, 0.08), self.rng.uniform(-0.05, 0.05), self.rng.uniform(0.09, 0.18)])
        self.go(self.hand + back, tilt=0.0)
        if self.rng.random() < 0.5:
            self.go(self.home + self.rng.normal(0, 0.03, 3), opening=WIDEST * 0.9)

    def carry(self, number: int, spot: Floats, manner: Manner = Manner()) -> None:
        """Take a thing, bring it to a spot, and let it go there."""
        self.grasp(number, miss=manner.miss)
        low = self.scene.things[number].type.grip[0] * self.scene.things[number].size
        high = max(0.14, float(spot[2]) + 0.1) + low
        self.go(np.array([*self.hand[:2], high]))
        over = np.array([*spot[:2], high])
        if manner.drop:
            self.go(self.hand + self.rng.uniform(0.2, 0.8) * (over - self.hand))
            self.fail("dropped", self.steps)
            self.release()
            if self.rng.random() < 0.5:
                self.retreat()
                return
        self.go(over)
        self.go(spot + up(low + 0.004), slow=1.4, wander=0.003)
        if manner.short:
            self.fail("target_not_reached", self.steps)
        self.release()
        self.retreat()

    def work(self, number: int, end: float, manner: Manner = Manner()) -> None:
        """Bring a joint to a value by its handle."""
        thing, rng = self.scene.things[number], self.rng
        joint = thing.type.joint
        assert joint is not None
        start = float(self.value[number])
        part = rng.uniform(0.15, 0.65) if manner.drop else rng.uniform(0.68, 0.86) if manner.short else 1.0
        count = max(6, round(STEPS_PER_SECOND * rng.uniform(0.8, 2.0)))
        path = start + part * (end - start) * eased(count)
        pinched = 0.004 if joint.axis[2] == -1 and joint.pivot is None else 0.026
        aside = np.zeros(3)
        if manner.miss:
            aside = np.array([*(rng.choice([-1, 1], 2) * rng.uniform(0.035, 0.06, 2)), rng.uniform(0.02, 0.05)])
        yaw, turning = _full_turn(thing.yaw - np.pi), joint.pivot is not None and joint.axis[2] != 0
        first = handle_of(thing, np.array([start]))[0] + aside
        swing = joint.axis[2] * joint.travel * (1.0 if joint.pivot == (0, 0, 0) else 0.6) if turning else 0.0
        out = rotation_z(thing.yaw)[:, 0] * (0.06 if joint.lean else 0.0)
        begin = yaw + swing * start
        self.go(first + out + up(0.08), yaw=begin, tilt=-joint.lean, opening=max(0.05, 2 * pinched))
        self.go(first, slow=1.4, wander=0.002)
        self.grip(pinched)
        if manner.miss:
            self.fail("missed_grasp")
        values = None if manner.miss else {number: path}
        self._play(handle_of(thing, path) + aside, yaw=yaw + swing * path, values=values)
        if part < 1:
            self.fail("target_not_reached", self.steps)
        self.grip(0.05)
        last = out + up(0.08)
        self.go(self.hand + last)
        self.retreat()

    def push(self, number: int, direction: Floats, far: float, manner: Manner = Manner()) -> None:
        """Push a thing over the table with closed fingers."""
        thing, rng = self.scene.things[number], self.rng
        behind = thing.radius + 0.018
        height = min(0.03, 0.6 * thing.size * thing.type.height) + 0.005
        aside = np.array([-direction[1], direction[0], 0]) * (thing.radius + rng.uniform(0.03, 0.05)) * manner.miss
        start = self.place[number] - behind * direction + aside + up(height)
        yaw = _half_turn(float(np.arctan2(direction[1], direction[0])))
        self.go(start + up(0.09), yaw=yaw, tilt=0.0, opening=0.004)
        self.go(start, slow=1.3, wander=0.003)
        count = max(5, round(STEPS_PER_SECOND * far / (0.6 * self.speed)))
        way = eased(count)[:, None] * (far * direction)
        if manner.miss:
            self.fail("missed_grasp")
        self._play(self.hand + way, places=None if manner.miss else {number: self.place[number] + way})
        if manner.short or manner.drop:
            self.fail("target_not_reached", self.steps)
        self.go(self.hand - 0.02 * direction)
        self.retreat()

    def pour(self, number: int, target: Floats, other: int, manner: Manner = Manner()) -> None:
        """Take a vessel, hold it over a spot and tip it; what it holds goes into the other vessel, or is spilled."""
        self.grasp(number, miss=manner.miss)
        held, rng = self.held == number, self.rng
        self.go(self.hand + up(0.14))
        forward = rotation_z(self.yaw)[:, 0]
        over = target - 0.05 * forward
        over[2] = target[2] + 0.09 + 0.4 * self.scene.things[number].radius
        if manner.drop:
            self.go(self.hand + rng.uniform(0.3, 0.8) * (over - self.hand))
            self.fail("dropped", self.steps)
            self.release()
            self.retreat()
            return
        self.go(over)
        self.go(over, tilt=1.1)
        amount = float(self.value[number]) * (rng.uniform(0.35, 0.7) if manner.short else rng.uniform(0.88, 1.0)) * held
        count = max(8, round(STEPS_PER_SECOND * rng.uniform(1.0, 2.0)))
        values = {number: self.value[number] - amount * eased(count)}
        if other >= 0:
            values[other] = self.value[other] + amount * eased(count)
        steps = np.repeat(self.hand[None], count, axis=0)
        self._play(steps, tilt=self.tilt + eased(count) * 0.6, values=values)
        if manner.short:
            self.fail("target_not_reached", self.steps)
        self.go(over + up(0.02), tilt=0.0)
        self.wait(3)


def _half_turn(angle: float) -> float:
    """Return the same line within a quarter turn of straight ahead."""
    return float((angle + np.pi / 2) % np.pi - np.pi / 2)


def _full_turn(angle: float) -> float:
    return float((angle + np.pi) % (2 * np.pi) - np.pi)


# Tasks: what a hand does for a goal.


def do(motion: Motion, goal: Goal, manner: Manner = Manner()) -> None:
    """Go through a goal in a manner; of several steps, one that is drawn goes wrong."""
    if goal.also is not None:
        first = motion.rng.random() < 0.5
        do(motion, replace(goal, also=None), manner if first else Manner())
        do(motion, goal.also, Manner() if first else manner)
    elif goal.verb == "sort":
        wrong = pick(goal.members, motion.rng)
        for number, member in enumerate(goal.members):
            manner_now = manner if member == wrong else Manner()
            angle = 2 * np.pi * number / len(goal.members)
            aside = 0.6 * motion.scene.things[goal.other].inner * np.array([np.cos(angle), np.sin(angle), 0.0])
            spot = _spot(motion, Goal("put-in", member, goal.other), manner_now.short)
            motion.carry(member, spot if manner_now.short else motion.place[goal.other] + aside, manner_now)
    elif goal.verb == "lift":
        motion.grasp(goal.thing, miss=manner.miss)
        high = motion.rng.uniform(0.03, 0.085) if manner.short else LIFTED + motion.rng.uniform(0.02, 0.12)
        if manner.drop:
            motion.go(motion.hand + up(motion.rng.uniform(0.4, 1.1) * high))
            motion.fail("dropped", motion.steps)
            motion.release()
        motion.go(motion.hand + up(high))
        if manner.short:
            motion.fail("target_not_reached")
        motion.wait(int(motion.rng.integers(4, 12)))
    elif goal.verb == "push":
        far = PUSHED + motion.rng.uniform(0.01, 0.07)
        far = (
            motion.rng.uniform(0.05, 0.085)
            if manner.short
            else far * motion.rng.uniform(0.2, 0.6)
            if manner.drop
            else far
        )
        motion.push(goal.thing, direction_of(motion.scene, goal.direction), float(far), manner)
    elif goal.verb == "pour":
        other = motion.scene.things[goal.other]
        motion.pour(goal.thing, motion.place[goal.other] + up(other.size * other.type.height), goal.other, manner)
    elif goal.other >= 0:
        motion.carry(goal.thing, _spot(motion, goal, manner.short), manner)
    else:
        joint = motion.scene.things[goal.thing].type.joint
        assert joint is not None
        motion.work(goal.thing, float(goal.verb == joint.verbs[0]), manner)


def _spot(motion: Motion, goal: Goal, short: bool) -> Floats:
    """Return where a thing is put for a goal, or centimetres beside it."""
    scene, rng = motion.scene, motion.rng
    thing, other = scene.things[goal.thing], scene.things[goal.other]
    middle: Floats = inner_place(scene, motion.now(), goal.other)[0]
    if goal.verb == "put-next-to":
        near = thing.radius + other.radius
        far = near + (BESIDE + rng.uniform(0.015, 0.05) if short else rng.uniform(0.01, BESIDE - 0.01))
        return _clear_spot(motion, goal, motion.place[goal.other], float(far))
    if goal.verb == "take-out":
        if short:
            return np.asarray(middle + _round(rng) * other.inner * 0.6)
        return _clear_spot(motion, goal, motion.place[goal.other], clear_of(scene, goal) + rng.uniform(0.03, 0.1))
    if short:
        return _clear_spot(
            motion, goal, motion.place[goal.other], other.radius + 0.4 * thing.radius + rng.uniform(0.002, 0.02)
        )
    lying = [j for j in range(len(scene.things)) if j not in (goal.thing, goal.other)]
    spots = [middle + _round(rng) * other.inner * rng.uniform(0, 0.7 if i else 0.3) for i in range(8)]
    apart = [min([float(np.hypot(*(spot - motion.place[j])[:2])) for j in lying] + [0.06]) for spot in spots]
    return np.asarray(spots[int(np.argmax(apart))])


def _round(rng: Generator) -> Floats:
    angle = rng.uniform(-np.pi, np.pi)
    return np.array([np.cos(angle), np.sin(angle), 0.0])


def _clear_spot(motion: Motion, goal: Goal, middle: Floats, far: float) -> Floats:
    """Return a spot on the table so far from a middle, clear of other things where that can be had."""
    spots = [middle * [1, 1, 0] + far * _round(motion.rng) for _ in range(_TRIES)]

    def room(spot: Floats) -> float:
        radius = motion.scene.things[goal.thing].radius
        gaps = [
            float(np.hypot(*(spot - motion.place[j])[:2])) - radius - other.radius
            for j, other in enumerate(motion.scene.things)
            if j not in (goal.thing, goal.other)
        ]
        outside = max(abs(spot[0]) - 0.3, abs(spot[1]) - 0.36, 0.0)
        return float(min([*gaps, 0.02]) - outside)

    return max(spots, key=room)


# Qualities. Each notes why the goal is not reached; what fits none of the causes is `other`, of which `idle` shows no
# state. Nothing in this world collides.

Go = Callable[[Motion, Goal, list[Goal]], None]


def _stop(motion: Motion, goal: Goal, _goals: list[Goal]) -> None:
    do(motion, goal)
    kept = int(motion.rng.uniform(0.12, 0.75) * motion.steps)
    states = motion.states()
    motion.chunks[:] = [tuple(column[: kept + 1] for column in vars(states).values())]
    still = int(motion.rng.integers(10, 50))
    motion.chunks.append(tuple(np.repeat(column[kept : kept + 1], still, axis=0) for column in vars(states).values()))
    motion.fail("early_end", kept)


def _wrong_thing(motion: Motion, goal: Goal, goals: list[Goal]) -> None:
    about = {goal.thing, *goal.members}
    others = [other for other in goals if other.thing not in about and not about & set(other.members)]
    alike = [other for other in others if other.verb == goal.verb]
    if not others:
        _idle(motion, goal, goals)
        return
    do(motion, pick(alike or others, motion.rng))
    motion.fail("wrong_object", _moving_states(motion)[0])


def _wrong_place(motion: Motion, goal: Goal, goals: list[Goal]) -> None:
    put = ("put-in", "put-on", "stack", "put-next-to", "sort")
    if goal.other < 0 and goal.verb not in ("push", "lift"):
        _wrong_thing(motion, goal, goals)
        return
    others = [
        other
        for other in goals
        if other.thing == goal.thing
        and (other.other, other.direction) != (goal.other, goal.direction)
        and (other.verb == goal.verb or (other.verb in put and goal.verb in put))
    ]
    if others and motion.rng.random() < 0.7:
        do(motion, pick(others, motion.rng))
    elif goal.verb == "pour":
        motion.pour(goal.thing, motion.place[goal.other] + 0.14 * _round(motion.rng), -1)
    else:
        spot = _clear_spot(motion, goal, motion.place[goal.thing], float(motion.rng.uniform(0.1, 0.2)))
        motion.carry(goal.thing, spot)
    motion.fail("target_not_reached", _moving_states(motion)[-1])


def _moving_states(motion: Motion) -> list[int]:
    """Return the states in which the hand holds something, or anything is not where it was in the state before."""
    states = motion.states()
    things = np.concatenate([states.place.reshape(len(states), -1), states.value], axis=1)
    moved = np.append(False, (np.diff(things, axis=0) != 0).any(axis=1))
    return [int(state) for state in np.flatnonzero(moved | (states.held >= 0))]


def _undone(motion: Motion, goal: Goal, _goals: list[Goal]) -> None:
    """Undo the last step in the end; of three steps the second, before the third is done."""
    before = motion.place.copy()
    values = motion.value.copy()
    steps, rest = goal.steps[:2], goal.steps[2:]
    do(motion, in_steps(steps))
    done = motion.steps
    if goal.verb == "lift":
        low = motion.scene.things[goal.thing].size * motion.scene.things[goal.thing].type.grip[0]
        motion.go(motion.hand * [1, 1, 0] + up(low + before[goal.thing, 2]))
        motion.release()
        motion.retreat()
        _note_undoing(motion, in_steps(steps), done)
        return
    last = steps[-1]
    thing = last.members[-1] if last.members else last.thing
    if motion.scene.things[thing].type.joint:
        motion.work(thing, float(values[thing]))
    elif last.verb == "pour":
        motion.release()
    else:
        motion.carry(thing, before[thing])
    _note_undoing(motion, in_steps(steps), done)
    for step in rest:
        do(motion, step)


def _note_undoing(motion: Motion, goal: Goal, done: int) -> None:
    """Note the first state from this one on in which less of the goal is reached than before it."""
    own = progress(motion.scene, motion.states(), goal)
    fewer = np.flatnonzero(own[done:] < own[done - 1])
    if len(fewer):
        motion.fail("other", done + int(fewer[0]))


def _retried(motion: Motion, goal: Goal, _goals: list[Goal]) -> None:
    first = replace(goal, also=None)
    drop = motion.rng.random() < 0.5 and goal.verb not in ("push", "sort")
    do(motion, first, Manner(drop=True) if drop else Manner(miss=True))
    motion.failure = None
    do(motion, goal)


def _idle(motion: Motion, _goal: Goal, _goals: list[Goal]) -> None:
    for _ in range(int(motion.rng.integers(1, 6))):
        if motion.rng.random() < 0.5:
            motion.wait(int(motion.rng.integers(8, 40)))
        else:
            motion.go(motion.home + motion.rng.normal(0, 0.05, 3))
    motion.wait(int(motion.rng.integers(8, 40)))


_QUALITIES: dict[str, Go] = {
    "success": lambda motion, goal, _: do(motion, goal),
    "stop": _stop,
    "missed_grasp": lambda motion, goal, _: do(motion, goal, Manner(miss=True)),
    "drop": lambda motion, goal, _: do(motion, goal, Manner(drop=True)),
    "wrong_thing": _wrong_thing,
    "wrong_place": _wrong_place,
    "near_miss": lambda motion, goal, _: do(motion, goal, Manner(short=True)),
    "undone": _undone,
    "retried": _retried,
    "idle": _idle,
}
