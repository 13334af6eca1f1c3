"""Objects of other tasks in the scene, seen by the camera alone."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.seeding import pick, rng_for
from rewardlab.worlds.metaworld.physics import Trajectory, load_module, open_task
from rewardlab.worlds.metaworld.render import TaskRenderer, fast_to_render
from rewardlab.worlds.metaworld.tasks import TASK_OBJECTS
from rewardlab.worlds.offscreen import in_rendering_thread


@dataclass(frozen=True)
class ThingState:
    """How a thing stands there: joints that are not at rest, and the tasks that could be asked of it as it stands."""

    tasks: tuple[str, ...]
    joints: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Thing:
    """The bodies of one scene that belong together, in one of several states."""

    task: str  # whose scene has it
    bodies: tuple[str, ...]
    states: tuple[ThingState, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """Return every task that can be asked of it."""
        return tuple(dict.fromkeys(task for state in self.states for task in state.tasks))


def _thing(task: str, bodies: str, *states: ThingState) -> Thing:
    return Thing(task, tuple(bodies.split()), states or (ThingState((task,)),))


# fmt: off
THINGS: dict[str, Thing] = {
    "ring and peg": _thing("assembly", "RoundNut peg"),
    "basket and ball": _thing("basketball", "bsktball basket_goal"),
    "box and lid": _thing("box-close", "boxbody boxbodytop"),
    "button": _thing("button-press", "box"),
    "upright button": _thing("button-press-topdown", "box"),
    "coffee machine": _thing("coffee-button", "obj coffee_machine"),
    "dial": _thing("dial-turn", "dial"),
    "safe": _thing("door-open", "door", ThingState(("door-open",)),
                   ThingState(("door-close",), (("doorjoint", -1.3),))),
    "locked safe": _thing("door-lock", "door"),
    "drawer": _thing("drawer-open", "drawer", ThingState(("drawer-open",)),
                     ThingState(("drawer-close",), (("goal_slidey", -0.15),))),
    "tap": _thing("faucet-open", "faucetBase", ThingState(("faucet-open", "faucet-close"))),
    "hammer and nail": _thing("hammer", "hammerbody box"),
    "handle": _thing("handle-press", "box"),
    "side handle": _thing("handle-press-side", "box"),
    "lever": _thing("lever-pull", "lever"),
    "peg and hole": _thing("peg-insert-side", "peg box"),
    "plug": _thing("peg-unplug-side", "plug1 box"),
    "net and disc": _thing("plate-slide", "puck_channel puck_goal"),
    "shelf": _thing("shelf-place", "obj shelf"),
    "goal and ball": _thing("soccer", "soccer_ball goal_whole"),
    "stick and thermos": _thing("stick-push", "stick object"),
    "window": _thing("window-open", "window", ThingState(("window-open",)),
                     ThingState(("window-close",), (("window_slide", 0.2),))),
}
# fmt: on


def nouns(thing: Thing) -> set[str]:
    """Return the last word of what each of its tasks moves, by which people would tell it from another thing."""
    return {TASK_OBJECTS[task].split()[-1] for task in thing.tasks}


# Where the parts of things are: in the scene of their task, and in a scene of their own without robot and table.

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHOWN_GROUPS = (0, 1, 2)  # of geoms that are drawn; the others only collide
SCENERY = ("tablelink", "RetainingWall", "base", "mocap")  # bodies of every scene that belong to no thing


@dataclass(frozen=True, eq=False)
class ThingShape:
    """What is seen of a thing in one state, relative to its middle on the table: poses of its geoms, and its radius."""

    position: Floats  # (geoms, 3)
    rotation: Floats  # (geoms, 3, 3)
    radius: float


def scene_path(task: str) -> str:
    """Return the path of the scene of a task, without opening it."""
    scene: Any = load_module("metaworld.env_dict").ALL_V3_ENVIRONMENTS[f"{task}-v3"].model_name
    return str(scene.fget(None))


def thing_spec(thing: Thing) -> Any:
    """Return a scene with nothing in it but what is seen of a thing, and its joints."""
    mujoco = load_module("mujoco")

    spec = mujoco.MjSpec.from_file(scene_path(thing.task))
    for body in list(spec.worldbody.bodies):
        if body.name not in thing.bodies:
            spec.detach_body(body)
    world = spec.worldbody
    unseen = [geom for geom in spec.geoms if geom.group not in SHOWN_GROUPS and geom.parent is not world]
    for part in (*unseen, *world.geoms, *world.lights, *world.cameras, *spec.sites):
        part.delete()
    _delete_unused(spec.meshes, {geom.meshname for geom in spec.geoms})
    _delete_unused(spec.materials, {geom.material for geom in spec.geoms})
    _delete_unused(spec.textures, {name for material in spec.materials for name in material.textures})
    spec.compiler.boundmass = spec.compiler.boundinertia = 1e-6  # what had mass is mostly what is not seen
    return spec


def _delete_unused(assets: Sequence[Any], used: set[str]) -> None:
    for asset in list(assets):
        if asset.name not in used:
            asset.delete()


@cache
def thing_shape(name: str, state: ThingState) -> ThingShape:
    """Return what is seen of a thing in a state."""
    mujoco = load_module("mujoco")

    model = thing_spec(THINGS[name]).compile()
    data = mujoco.MjData(model)
    for joint, value in state.joints:
        data.joint(joint).qpos[:] = value
    mujoco.mj_kinematics(model, data)
    corners = box_corners(model, data, np.arange(model.ngeom)).reshape(-1, 3)
    low, high = corners.min(axis=0)[:2], corners.max(axis=0)[:2]
    position = data.geom_xpos - [*(low + high) / 2, 0.0]
    return ThingShape(position, data.geom_xmat.reshape(-1, 3, 3).copy(), float(np.linalg.norm(high - low) / 2))


def box_corners(model: Any, data: Any, geoms: Ints) -> Floats:
    """Return the corners of the boxes around geoms as they stand, (geoms, 8, 3)."""
    signs = np.array(np.meshgrid((-1, 1), (-1, 1), (-1, 1))).reshape(3, 8).T
    boxes, rotation = model.geom_aabb[geoms], data.geom_xmat[geoms].reshape(-1, 3, 3)
    local = boxes[:, None, :3] + signs * boxes[:, None, 3:]
    return np.asarray(local @ rotation.swapaxes(1, 2) + data.geom_xpos[geoms, None])


def parts_of_the_task(model: Any) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the visible geoms of the things that a task itself has, and which of them move."""
    names = body_names(model)
    others = [body for body, name in enumerate(names) if name in SCENERY or "/" in name]
    roots = model.body_rootid[model.geom_bodyid]
    geoms = np.flatnonzero(np.isin(model.geom_group, SHOWN_GROUPS) & (roots != 0) & ~np.isin(roots, others))
    return geoms, model.body_weldid[model.geom_bodyid[geoms]] != 0


def body_names(model: Any) -> list[str]:
    """Return the names of the bodies; those of an attached thing begin with its name and a slash."""
    return [model.body(body).name for body in range(model.nbody)]


# Which things of other tasks stand beside a rollout, and where: away from the gripper's path and from one another.

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


# Crowded scenes: the things of other tasks stand beside those of a rollout; only the camera sees them.
#
# The physics never meets them, so every label stays exact, and what is asked of them is known not to have been done.

_SHOWN, _HIDDEN = 1, 5  # groups of geoms, of which the second is not drawn


@in_rendering_thread
def crowded_renderer(task: str) -> TaskRenderer:
    """Return this process's renderer of a task whose model also has every other thing, hidden."""
    return _crowded_renderer(task, os.getpid())


@lru_cache(maxsize=2)  # a crowded scene holds some 60 MB of meshes and textures
def _crowded_renderer(task: str, process: int) -> TaskRenderer:
    return TaskRenderer(fast_to_render(compile_crowded(crowded_spec(task))))


@contextmanager
def standing_there(model: Any, things: Sequence[PlacedThing]) -> Iterator[None]:
    """Show these things in a crowded model while the block runs."""
    try:
        for placed in things:
            _show(model, placed)
        yield
    finally:
        _hide_things(model)


def _hide_things(model: Any) -> None:
    model.geom_group[_of_things(model)[model.geom_bodyid]] = _HIDDEN


def _of_things(model: Any) -> NDArray[np.bool_]:
    """Tell of each body whether it belongs to a thing of another scene."""
    roots = [body for body, name in enumerate(body_names(model)) if "/" in name and name.split("/")[0] in THINGS]
    return np.isin(model.body_rootid, roots)


def _show(model: Any, placed: PlacedThing) -> None:
    """Put the geoms of a thing where they belong; its bodies all lie at the origin."""
    mujoco = load_module("mujoco")

    shape, geoms = thing_shape(placed.name, placed.state), _geoms_of(model, placed.name)
    cos, sin = np.cos(placed.turn), np.sin(placed.turn)
    turn = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
    model.geom_pos[geoms] = shape.position @ turn.T + [*placed.centre, 0.0]
    for geom, rotation in zip(geoms, turn @ shape.rotation):
        mujoco.mju_mat2Quat(model.geom_quat[geom], rotation.ravel())
    model.geom_group[geoms] = _SHOWN


def _geoms_of(model: Any, name: str) -> Ints:
    """Return the geoms of a thing in a crowded model, in the order of its own scene; the task's own is not there."""
    names = body_names(model)
    roots = [names.index(part) for part in (f"{name}/{body}" for body in THINGS[name].bodies) if part in names]
    return np.flatnonzero(np.isin(model.body_rootid[model.geom_bodyid], roots))


def crowded_spec(task: str) -> Any:
    """Return the scene of a task with what is seen of every thing of other scenes, behind its own bodies."""
    mujoco = load_module("mujoco")

    host = mujoco.MjSpec.from_file(scene_path(task))
    for name, thing in THINGS.items():
        if scene_path(thing.task) == scene_path(task):
            continue
        parts = thing_spec(thing)
        for joint in list(parts.joints):
            joint.delete()
        host.attach(parts, prefix=f"{name}/", frame=host.worldbody.add_frame())
    return host


def compile_crowded(spec: Any) -> Any:
    """Return the compiled model of a crowded scene, in which every thing is hidden and can be put anywhere."""
    model = spec.compile()
    attached = _of_things(model)
    model.body_pos[attached], model.body_quat[attached] = 0.0, (1.0, 0.0, 0.0, 0.0)
    model.geom_sameframe[attached[model.geom_bodyid]] = 0
    _hide_things(model)
    return model
