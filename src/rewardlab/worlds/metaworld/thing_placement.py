"""Which things of other tasks stand beside a rollout, and where: away from the gripper's path and from one another."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.seeding import pick, rng_for
from rewardlab.worlds.metaworld.objects import TASK_OBJECTS
from rewardlab.worlds.metaworld.physics import Trajectory, load_module, open_task
from rewardlab.worlds.metaworld.thing_geometry import box_corners, parts_of_the_task, scene_path, thing_shape
from rewardlab.worlds.metaworld.things import THINGS, ThingState, nouns

Floats = NDArray[np.float64]

_TABLE = (-0.46, 0.46, 0.42, 0.92)  # metres: where the middle of a thing may stand
_GRIPPER_RADIUS, _GAP = 0.06, 0.02  # metres
_PATH_POINTS = 40  # of the gripper, that a thing must not stand in
_TRIES = 60  # places tried for a thing
_MOST_TURN = 40.0  # degrees about the vertical axis


@dataclass(frozen=True, eq=False)
class PlacedThing:
    """A thing of the catalog, how it stands there, where its middle is, and how far it is turned (radians)."""

    name: str
    state: ThingState
    centre: Floats  # (2,)
    turn: float


@dataclass(frozen=True, eq=False)
class Circles:
    """Circles on the table that are taken."""

    centre: Floats  # (circles, 2)
    radius: Floats  # (circles,)

    def free(self, place: Floats, radius: float) -> bool:
        """Tell whether a circle of this radius finds room at a place."""
        return bool((np.linalg.norm(self.centre - place, axis=1) > self.radius + radius + _GAP).all())

    def with_one(self, place: Floats, radius: float) -> "Circles":
        """Return these and one more."""
        return Circles(np.vstack([self.centre, place]), np.append(self.radius, radius))


@lru_cache(maxsize=4)  # who asks what stands there also has it rendered
def place_things(trajectory: Trajectory, count: int, seed: int) -> tuple[PlacedThing, ...]:
    """Return up to so many things that find room beside the work; the same for the same rollout and seed.

    No two of them, and none of the task's own, share a noun: an instruction means one of them.
    """
    rng = rng_for(seed, "things", trajectory.task, trajectory.seed)
    taken, said = _taken(trajectory), {TASK_OBJECTS[trajectory.task].split()[-1]}
    placed: list[PlacedThing] = []
    for name in map(str, rng.permutation(list(THINGS))):
        thing = THINGS[name]
        if len(placed) == count:
            break
        if scene_path(thing.task) == scene_path(trajectory.task) or nouns(thing) & said:
            continue
        state = pick(thing.states, rng)
        radius = thing_shape(name, state).radius
        centre = _free_place(taken, radius, rng)
        if centre is not None:
            turn = float(np.radians(rng.uniform(-_MOST_TURN, _MOST_TURN)))
            placed.append(PlacedThing(name, state, centre, turn))
            taken, said = taken.with_one(centre, radius), said | nouns(thing)
    return tuple(placed)


def _free_place(taken: Circles, radius: float, rng: Generator) -> Floats | None:
    low, high = np.array(_TABLE[::2]), np.array(_TABLE[1::2])
    for place in rng.uniform(low, high, (_TRIES, 2)):
        if taken.free(place, radius):
            return np.asarray(place)
    return None


def _taken(trajectory: Trajectory) -> Circles:
    """Return what must stay free: the path of the gripper, the goal, and the task's things at the start and the end."""
    every = max(1, len(trajectory.gripper_pos) // _PATH_POINTS)
    path = np.vstack([trajectory.gripper_pos[::every, :2], trajectory.goal[None, :2]])
    corners = np.concatenate([_own_corners(trajectory, step) for step in (0, -1)])
    low, high = corners.min(axis=1), corners.max(axis=1)
    radius = np.concatenate([np.full(len(path), _GRIPPER_RADIUS), np.linalg.norm(high - low, axis=1) / 2])
    return Circles(np.vstack([path, (low + high) / 2]), radius)


def _own_corners(trajectory: Trajectory, step: int) -> Floats:
    """Return the corners (x, y) of the boxes around the parts of the task's own things, (parts, 8, 2)."""
    mujoco = load_module("mujoco")

    model = open_task(trajectory.task).model
    data, before = mujoco.MjData(model), model.body_pos.copy()
    model.body_pos[:], data.qpos[:] = trajectory.body_pos, trajectory.qpos[step]
    mujoco.mj_kinematics(model, data)
    model.body_pos[:] = before
    return box_corners(model, data, parts_of_the_task(model)[0])[..., :2]
