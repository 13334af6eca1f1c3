"""Where the parts of things are: in the scene of their task, and in a scene of their own without robot and table."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.worlds.metaworld.physics import load_module
from rewardlab.worlds.metaworld.things import THINGS, Thing, ThingState

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
