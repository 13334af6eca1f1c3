"""Objects of other tasks in the scene, seen by the camera alone."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.seeding import pick, rng_for
from rewardlab.worlds.metaworld.physics import Trajectory, load_module, open_task
from rewardlab.worlds.metaworld.render import TaskRenderer, fast_to_render
from rewardlab.worlds.metaworld.tasks import TASK_OBJECTS
from rewardlab.worlds.offscreen import in_rendering_thread


@dataclass(frozen=True)
class DistractorState:
    """How a distractor stands there: joints that are not at rest, and the tasks one could ask of it as it stands."""

    tasks: tuple[str, ...]
    joints: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Distractor:
    """The bodies of one scene that belong together, in one of several states."""

    task: str  # whose scene has it
    bodies: tuple[str, ...]
    states: tuple[DistractorState, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """Return every task that can be asked of it."""
        return tuple(dict.fromkeys(task for state in self.states for task in state.tasks))


def _distractor(task: str, bodies: str, *states: DistractorState) -> Distractor:
    return Distractor(task, tuple(bodies.split()), states or (DistractorState((task,)),))


# fmt: off
DISTRACTORS: dict[str, Distractor] = {
    "ring and peg": _distractor("assembly", "RoundNut peg"),
    "basket and ball": _distractor("basketball", "bsktball basket_goal"),
    "box and lid": _distractor("box-close", "boxbody boxbodytop"),
    "button": _distractor("button-press", "box"),
    "upright button": _distractor("button-press-topdown", "box"),
    "coffee machine": _distractor("coffee-button", "obj coffee_machine"),
    "dial": _distractor("dial-turn", "dial"),
    "safe": _distractor("door-open", "door", DistractorState(("door-open",)),
                   DistractorState(("door-close",), (("doorjoint", -1.3),))),
    "locked safe": _distractor("door-lock", "door"),
    "drawer": _distractor("drawer-open", "drawer", DistractorState(("drawer-open",)),
                     DistractorState(("drawer-close",), (("goal_slidey", -0.15),))),
    "tap": _distractor("faucet-open", "faucetBase", DistractorState(("faucet-open", "faucet-close"))),
    "hammer and nail": _distractor("hammer", "hammerbody box"),
    "handle": _distractor("handle-press", "box"),
    "side handle": _distractor("handle-press-side", "box"),
    "lever": _distractor("lever-pull", "lever"),
    "peg and hole": _distractor("peg-insert-side", "peg box"),
    "plug": _distractor("peg-unplug-side", "plug1 box"),
    "net and disc": _distractor("plate-slide", "puck_channel puck_goal"),
    "shelf": _distractor("shelf-place", "obj shelf"),
    "goal and ball": _distractor("soccer", "soccer_ball goal_whole"),
    "stick and thermos": _distractor("stick-push", "stick object"),
    "window": _distractor("window-open", "window", DistractorState(("window-open",)),
                     DistractorState(("window-close",), (("window_slide", 0.2),))),
}
# fmt: on


def nouns(distractor: Distractor) -> set[str]:
    """Return the last word of what each of its tasks moves, by which people would tell it from another object."""
    return {TASK_OBJECTS[task].split()[-1] for task in distractor.tasks}


# Where the parts of distractors are: in the scene of their task, and in a scene of their own without robot and table.

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHOWN_GROUPS = (0, 1, 2)  # of geoms that are drawn; the others only collide
SCENERY = ("tablelink", "RetainingWall", "base", "mocap")  # bodies of every scene that belong to no object


@dataclass(frozen=True, eq=False)
class DistractorShape:
    """What is seen of a distractor in one state, relative to its middle on the table: poses of geoms, and radius."""

    position: Floats  # (geoms, 3)
    rotation: Floats  # (geoms, 3, 3)
    radius: float


def scene_path(task: str) -> str:
    """Return the path of the scene of a task, without opening it."""
    scene: Any = load_module("metaworld.env_dict").ALL_V3_ENVIRONMENTS[f"{task}-v3"].model_name
    return str(scene.fget(None))


def distractor_spec(distractor: Distractor) -> Any:
    """Return a scene with nothing in it but what is seen of a distractor, and its joints."""
    mujoco = load_module("mujoco")
    spec = mujoco.MjSpec.from_file(scene_path(distractor.task))
    for body in list(spec.worldbody.bodies):
        if body.name not in distractor.bodies:
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
def distractor_shape(name: str, state: DistractorState) -> DistractorShape:
    """Return what is seen of a distractor in a state."""
    mujoco = load_module("mujoco")
    model = distractor_spec(DISTRACTORS[name]).compile()
    data = mujoco.MjData(model)
    for joint, value in state.joints:
        data.joint(joint).qpos[:] = value
    mujoco.mj_kinematics(model, data)
    corners = box_corners(model, data, np.arange(model.ngeom)).reshape(-1, 3)
    low, high = corners.min(axis=0)[:2], corners.max(axis=0)[:2]
    position = data.geom_xpos - [*(low + high) / 2, 0.0]
    return DistractorShape(position, data.geom_xmat.reshape(-1, 3, 3).copy(), float(np.linalg.norm(high - low) / 2))


def box_corners(model: Any, data: Any, geoms: Ints) -> Floats:
    """Return the corners of the boxes around geoms as they stand, (geoms, 8, 3)."""
    signs = np.array(np.meshgrid((-1, 1), (-1, 1), (-1, 1))).reshape(3, 8).T
    boxes, rotation = model.geom_aabb[geoms], data.geom_xmat[geoms].reshape(-1, 3, 3)
    local = boxes[:, None, :3] + signs * boxes[:, None, 3:]
    return np.asarray(local @ rotation.swapaxes(1, 2) + data.geom_xpos[geoms, None])


def parts_of_the_task(model: Any) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the visible geoms of the objects that a task itself has, and which of them move."""
    names = body_names(model)
    others = [body for body, name in enumerate(names) if name in SCENERY or "/" in name]
    roots = model.body_rootid[model.geom_bodyid]
    geoms = np.flatnonzero(np.isin(model.geom_group, SHOWN_GROUPS) & (roots != 0) & ~np.isin(roots, others))
    return geoms, model.body_weldid[model.geom_bodyid[geoms]] != 0


def body_names(model: Any) -> list[str]:
    """Return the names of the bodies; those of an attached distractor begin with its name and a slash."""
    return [model.body(body).name for body in range(model.nbody)]


# Which objects of other tasks stand beside a rollout, and where: away from the gripper's path and from one another.

_TABLE = (-0.46, 0.46, 0.42, 0.92)  # metres: where the middle of a distractor may stand
_GRIPPER_RADIUS, _GAP = 0.06, 0.02  # metres
_PATH_POINTS = 40  # of the gripper, that a distractor must not stand in
_TRIES = 60  # places tried for a distractor
_MOST_TURN = 40.0  # degrees about the vertical axis


@dataclass(frozen=True, eq=False)
class PlacedDistractor:
    """A distractor of the catalog, how it stands there, where its middle is, and how far it is turned (radians)."""

    name: str
    state: DistractorState
    centre: Floats  # (2,)
    turn: float


@lru_cache(maxsize=4)  # who asks what stands there also has it rendered
def place_distractors(trajectory: Trajectory, count: int, seed: int) -> tuple[PlacedDistractor, ...]:
    """Return up to so many distractors that find room beside the work; the same for the same rollout and seed.

    No two of them, and none of the task's own, share a noun: an instruction means one of them.
    """
    rng = rng_for(seed, "things", trajectory.task, trajectory.seed)
    (taken, radii), said = _taken(trajectory), {TASK_OBJECTS[trajectory.task].split()[-1]}
    placed: list[PlacedDistractor] = []
    for name in map(str, rng.permutation(list(DISTRACTORS))):
        distractor = DISTRACTORS[name]
        if len(placed) == count:
            break
        if scene_path(distractor.task) == scene_path(trajectory.task) or nouns(distractor) & said:
            continue
        state = pick(distractor.states, rng)
        radius = distractor_shape(name, state).radius
        low, high = np.array(_TABLE[::2]), np.array(_TABLE[1::2])
        free = (
            place
            for place in rng.uniform(low, high, (_TRIES, 2))
            if (np.linalg.norm(taken - place, axis=1) > radii + radius + _GAP).all()
        )
        if (centre := next(free, None)) is not None:
            turn = float(np.radians(rng.uniform(-_MOST_TURN, _MOST_TURN)))
            placed.append(PlacedDistractor(name, state, centre, turn))
            taken, radii, said = np.vstack([taken, centre]), np.append(radii, radius), said | nouns(distractor)
    return tuple(placed)


def _taken(trajectory: Trajectory) -> tuple[Floats, Floats]:
    """Return centres and radii of what must stay free: the gripper's path, the goal, the objects at each turn."""
    every = max(1, len(trajectory.gripper_pos) // _PATH_POINTS)
    path = np.vstack([trajectory.gripper_pos[::every, :2], trajectory.goal[None, :2]])
    mujoco = load_module("mujoco")
    model = open_task(trajectory.task).model
    data, before, boxes = mujoco.MjData(model), model.body_pos.copy(), []
    model.body_pos[:] = trajectory.body_pos
    for step in trajectory.turns:
        data.qpos[:] = trajectory.qpos[step]
        mujoco.mj_kinematics(model, data)
        boxes.append(box_corners(model, data, parts_of_the_task(model)[0])[..., :2])
    model.body_pos[:] = before
    corners = np.concatenate(boxes)  # (x, y) of the boxes around the parts of the task's own objects
    low, high = corners.min(axis=1), corners.max(axis=1)
    radius = np.concatenate([np.full(len(path), _GRIPPER_RADIUS), np.linalg.norm(high - low, axis=1) / 2])
    return np.vstack([path, (low + high) / 2]), radius


# Crowded scenes: objects of other tasks stand beside those of a rollout; only the camera sees them.
#
# The physics never meets them, so every label stays exact, and what is asked of them is known not to have been done.

_SHOWN, _HIDDEN = 1, 5  # groups of geoms, of which the second is not drawn


@in_rendering_thread
def crowded_renderer(task: str) -> TaskRenderer:
    """Return this process's renderer of a task whose model also has every distractor, hidden."""
    return _crowded_renderer(task, os.getpid())


@lru_cache(maxsize=2)  # a crowded scene holds some 60 MB of meshes and textures
def _crowded_renderer(task: str, _process: int) -> TaskRenderer:
    return TaskRenderer(fast_to_render(compile_crowded(crowded_spec(task))))


@contextmanager
def standing_there(model: Any, distractors: Sequence[PlacedDistractor]) -> Iterator[None]:
    """Show these distractors in a crowded model while the block runs."""
    try:
        for placed in distractors:
            _show(model, placed)
        yield
    finally:
        _hide_distractors(model)


def _hide_distractors(model: Any) -> None:
    model.geom_group[_of_distractors(model)[model.geom_bodyid]] = _HIDDEN


def _of_distractors(model: Any) -> NDArray[np.bool_]:
    """Tell of each body whether it belongs to an object of another scene."""
    roots = [body for body, name in enumerate(body_names(model)) if "/" in name and name.split("/")[0] in DISTRACTORS]
    return np.isin(model.body_rootid, roots)


def _show(model: Any, placed: PlacedDistractor) -> None:
    """Put the geoms of a distractor where they belong; its bodies all lie at the origin."""
    mujoco = load_module("mujoco")
    shape, geoms = distractor_shape(placed.name, placed.state), _geoms_of(model, placed.name)
    cos, sin = np.cos(placed.turn), np.sin(placed.turn)
    turn = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
    model.geom_pos[geoms] = shape.position @ turn.T + [*placed.centre, 0.0]
    for geom, rotation in zip(geoms, turn @ shape.rotation, strict=True):
        mujoco.mju_mat2Quat(model.geom_quat[geom], rotation.ravel())
    model.geom_group[geoms] = _SHOWN


def _geoms_of(model: Any, name: str) -> Ints:
    """Return the geoms of a distractor in a crowded model, in the order of its own scene; not the task's own."""
    names = body_names(model)
    roots = [names.index(part) for part in (f"{name}/{body}" for body in DISTRACTORS[name].bodies) if part in names]
    return np.flatnonzero(np.isin(model.body_rootid[model.geom_bodyid], roots))


def crowded_spec(task: str) -> Any:
    """Return the scene of a task with what is seen of every object of other scenes, behind its own bodies."""
    mujoco = load_module("mujoco")
    host = mujoco.MjSpec.from_file(scene_path(task))
    for name, distractor in DISTRACTORS.items():
        if scene_path(distractor.task) == scene_path(task):
            continue
        parts = distractor_spec(distractor)
        for joint in list(parts.joints):
            joint.delete()
        host.attach(parts, prefix=f"{name}/", frame=host.worldbody.add_frame())
    return host


def compile_crowded(spec: Any) -> Any:
    """Return the compiled model of a crowded scene, in which every distractor is hidden and can be put anywhere."""
    model = spec.compile()
    attached = _of_distractors(model)
    model.body_pos[attached], model.body_quat[attached] = 0.0, (1.0, 0.0, 0.0, 0.0)
    model.geom_sameframe[attached[model.geom_bodyid]] = 0
    _hide_distractors(model)
    return model
