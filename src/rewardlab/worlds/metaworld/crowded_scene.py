"""Crowded scenes: the things of other tasks stand beside those of a rollout; only the camera sees them.

The physics never meets them, so every label stays exact, and what is asked of them is known not to have been done.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.seeding import rng_for
from rewardlab.worlds.metaworld.objects import TASK_OBJECTS
from rewardlab.worlds.metaworld.physics import Trajectory, load_module, open_task
from rewardlab.worlds.metaworld.render import TaskRenderer, fast_to_render
from rewardlab.worlds.metaworld.things import THINGS, Thing, ThingState, nouns

Floats = NDArray[np.float64]

_SCENERY = ("tablelink", "RetainingWall", "base", "mocap")  # bodies of every scene that belong to no thing
_SHOWN = (0, 1, 2)  # the groups of geoms that are drawn
_HIDDEN = 5  # the group of geoms that are not drawn
_TABLE = (-0.46, 0.46, 0.42, 0.92)  # metres: where the middle of a thing may stand
_GRIPPER_RADIUS, _GAP = 0.06, 0.02  # metres
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
class ThingShape:
    """What of a thing is seen in one state, relative to its middle on the table: poses of its geoms, and its radius."""

    position: Floats  # (geoms, 3)
    rotation: Floats  # (geoms, 3, 3)
    radius: float


def crowded_renderer(task: str) -> TaskRenderer:
    """Return this process's renderer of a task whose model also has every other thing; a forked process builds its own."""
    return _crowded_renderer(task, os.getpid())


@lru_cache(maxsize=2)
def _crowded_renderer(task: str, process: int) -> TaskRenderer:
    renderer = TaskRenderer(fast_to_render(_crowded_model(task)))
    hide_things(renderer.model)
    return renderer


@contextmanager
def standing_there(model: Any, things: Sequence[PlacedThing]) -> Iterator[None]:
    """Show these things in a crowded model while the block runs."""
    for placed in things:
        _show(model, placed)
    try:
        yield
    finally:
        hide_things(model)


def hide_things(model: Any) -> None:
    """Hide every thing that is not of the rollout itself."""
    for name in THINGS:
        model.geom_group[_geoms_of(model, name)] = _HIDDEN


def _show(model: Any, placed: PlacedThing) -> None:
    """Put the geoms of a thing where they belong; its bodies all lie at the origin."""
    mujoco = load_module("mujoco")

    shape, geoms = thing_shape(placed.name, placed.state), _geoms_of(model, placed.name)
    turn = np.array(
        [[np.cos(placed.turn), -np.sin(placed.turn), 0], [np.sin(placed.turn), np.cos(placed.turn), 0], [0, 0, 1]]
    )
    model.geom_pos[geoms] = shape.position @ turn.T + [*placed.centre, 0.0]
    for geom, rotation in zip(geoms, turn @ shape.rotation):
        mujoco.mju_mat2Quat(model.geom_quat[geom], rotation.ravel())
    model.geom_group[geoms] = 1


def _geoms_of(model: Any, name: str) -> NDArray[np.int64]:
    """Return the geoms of a thing in a crowded model, in the order of its own scene; a host lacks its own."""
    roots = [body for body in _body_names(model) if body in {f"{name}/{part}" for part in THINGS[name].bodies}]
    inside = np.isin(model.body_rootid[model.geom_bodyid], [model.body(root).id for root in roots])
    return np.flatnonzero(inside)


def _crowded_model(task: str) -> Any:
    """Return the compiled scene of a task with the visible parts of every thing of another scene, without joints."""
    mujoco = load_module("mujoco")

    host = mujoco.MjSpec.from_file(_scene_path(task))
    joined = [name for name, thing in THINGS.items() if _scene_path(thing.task) != _scene_path(task)]
    for name in joined:
        parts = _thing_spec(THINGS[name])
        for joint in list(parts.joints):
            joint.delete()
        host.attach(parts, prefix=f"{name}/", frame=host.worldbody.add_frame())
    model = host.compile()
    roots = [model.body(f"{name}/{part}").id for name in joined for part in THINGS[name].bodies]
    attached = np.isin(model.body_rootid, roots)
    model.body_pos[attached], model.body_quat[attached] = 0.0, (1.0, 0.0, 0.0, 0.0)
    model.geom_sameframe[attached[model.geom_bodyid]] = 0
    return model


def _thing_spec(thing: Thing) -> Any:
    """Return a scene with nothing in it but what is seen of a thing, and its joints."""
    mujoco = load_module("mujoco")

    spec = mujoco.MjSpec.from_file(_scene_path(thing.task))
    for body in list(spec.worldbody.bodies):
        if body.name not in thing.bodies:
            spec.detach_body(body)
    world = spec.worldbody
    for part in (*world.geoms, *world.lights, *world.cameras, *spec.sites):
        part.delete()
    for geom in list(spec.geoms):
        if geom.group not in _SHOWN:
            geom.delete()
    _delete_unused(spec.meshes, {geom.meshname for geom in spec.geoms})
    _delete_unused(spec.materials, {geom.material for geom in spec.geoms})
    _delete_unused(spec.textures, {name for material in spec.materials for name in material.textures})
    spec.compiler.boundmass = spec.compiler.boundinertia = 1e-6  # what had mass is mostly what is not seen
    return spec


def _delete_unused(assets: Sequence[Any], used: set[str]) -> None:
    for asset in list(assets):
        if asset.name not in used:
            asset.delete()


def _scene_path(task: str) -> str:
    """Return the path of the scene of a task, without opening it."""
    scene: Any = load_module("metaworld.env_dict").ALL_V3_ENVIRONMENTS[f"{task}-v3"].model_name
    return str(scene.fget(None))


@cache
def thing_shape(name: str, state: ThingState) -> ThingShape:
    """Return what is seen of a thing in a state, from its own scene."""
    mujoco = load_module("mujoco")

    model = _thing_spec(THINGS[name]).compile()
    data = mujoco.MjData(model)
    for joint, value in state.joints:
        data.joint(joint).qpos[:] = value
    mujoco.mj_kinematics(model, data)
    position, rotation = data.geom_xpos.copy(), data.geom_xmat.reshape(-1, 3, 3).copy()
    corners = _corners(model, np.arange(model.ngeom), position, rotation)
    low, high = corners.min(axis=0)[:2], corners.max(axis=0)[:2]
    position[:, :2] -= (low + high) / 2
    return ThingShape(position, rotation, float(np.linalg.norm(high - low) / 2))


def _corners(model: Any, geoms: NDArray[np.int64], position: Floats, rotation: Floats) -> Floats:
    """Return the corners of the boxes around geoms, (8 x geoms, 3)."""
    signs = np.array(np.meshgrid((-1, 1), (-1, 1), (-1, 1))).reshape(3, 8).T
    boxes = model.geom_aabb[geoms]
    local = boxes[:, None, :3] + signs * boxes[:, None, 3:]
    return np.asarray((local @ rotation.swapaxes(1, 2) + position[:, None]).reshape(-1, 3))


def _occupied(trajectory: Trajectory) -> tuple[Floats, Floats]:
    """Return circles that must stay free: the path of the gripper, the goal, and what stands on the table."""
    mujoco = load_module("mujoco")

    model = open_task(trajectory.task).model
    data = mujoco.MjData(model)
    body_pos = model.body_pos.copy()
    model.body_pos[:] = trajectory.body_pos
    geoms, _ = parts_of_the_task(model, trajectory.task)
    found = []
    for qpos in (trajectory.qpos[0], trajectory.qpos[-1]):
        data.qpos[:] = qpos
        mujoco.mj_kinematics(model, data)
        found += [
            _corners(model, geoms[i : i + 1], data.geom_xpos[g][None], data.geom_xmat[g].reshape(1, 3, 3))[:, :2]
            for i, g in enumerate(geoms)
        ]
    model.body_pos[:] = body_pos
    low, high = np.array([c.min(axis=0) for c in found]), np.array([c.max(axis=0) for c in found])
    path = np.vstack(
        [trajectory.gripper_pos[:: max(1, len(trajectory.gripper_pos) // 40), :2], trajectory.goal[None, :2]]
    )
    centres = np.vstack([(low + high) / 2, path])
    return centres, np.concatenate([np.linalg.norm(high - low, axis=1) / 2, np.full(len(path), _GRIPPER_RADIUS)])


def parts_of_the_task(model: Any, task: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the visible geoms of the things of a task itself, and which of them move."""
    names = _body_names(model)
    scenery = [names.index(name) for name in _SCENERY if name in names]
    others = [body for body, name in enumerate(names) if "/" in name]
    roots = model.body_rootid[model.geom_bodyid]
    shown = np.isin(model.geom_group, _SHOWN)
    geoms = np.flatnonzero(shown & (roots != 0) & ~np.isin(roots, [*scenery, *others]))
    return geoms, model.body_weldid[model.geom_bodyid[geoms]] != 0


def _body_names(model: Any) -> list[str]:
    return [model.body(body).name for body in range(model.nbody)]


def _free_place(busy: Floats, radii: Floats, radius: float, rng: Generator) -> Floats | None:
    low, high = np.array(_TABLE[::2]), np.array(_TABLE[1::2])
    for place in rng.uniform(low, high, (_TRIES, 2)):
        if (np.linalg.norm(busy - place, axis=1) > radii + radius + _GAP).all():
            return np.asarray(place)
    return None


def place_things(trajectory: Trajectory, count: int, seed: int) -> tuple[PlacedThing, ...]:
    """Return up to so many things that find room beside the work; the same for the same rollout and seed."""
    rng = rng_for(seed, "things", trajectory.task, trajectory.seed)
    busy, radii = _occupied(trajectory)
    taken_nouns = {TASK_OBJECTS[trajectory.task].split()[-1]}
    placed: list[PlacedThing] = []
    for name in rng.permutation(list(THINGS)):
        thing = THINGS[str(name)]
        if len(placed) == count:
            break
        if _scene_path(thing.task) == _scene_path(trajectory.task) or nouns(thing) & taken_nouns:
            continue
        state = thing.states[int(rng.integers(len(thing.states)))]
        radius = thing_shape(str(name), state).radius
        centre = _free_place(busy, radii, radius, rng)
        if centre is None:
            continue
        placed.append(PlacedThing(str(name), state, centre, float(np.radians(rng.uniform(-_MOST_TURN, _MOST_TURN)))))
        busy, radii = np.vstack([busy, centre]), np.append(radii, radius)
        taken_nouns |= nouns(thing)
    return tuple(placed)
