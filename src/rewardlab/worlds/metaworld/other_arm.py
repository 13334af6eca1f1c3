"""Another embodiment: the rollout filmed with a Panda in place of the Sawyer, or with links of other proportions.

Only the camera sees it: the physics ran with the Sawyer, so every label stays exact.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.errors import NotApplicable
from rewardlab.worlds.metaworld.crowded_scene import compile_crowded, crowded_spec
from rewardlab.worlds.metaworld.hand_following import follow_hand
from rewardlab.worlds.metaworld.panda_arm import panda_spec
from rewardlab.worlds.metaworld.physics import Trajectory, load_module
from rewardlab.worlds.metaworld.render import TaskRenderer, fast_to_render
from rewardlab.worlds.metaworld.thing_geometry import body_names, scene_path
from rewardlab.worlds.offscreen import in_rendering_thread

Ints = NDArray[np.intp]
Vertices = NDArray[np.float32]

MOST_DISTANCE, MOST_TILT = 0.01, 0.15  # metres and radians between the recorded hand and one that follows it
_SAWYER, _PANDA = "base", "panda/link0"  # the bodies that all others of an arm hang on
_HIDDEN = 5  # a group of geoms that is not drawn
_MESH = 7  # MuJoCo's number for a geom that is a mesh


@in_rendering_thread
def other_arm_renderer(task: str, *, crowded: bool) -> TaskRenderer:
    """Return this process's renderer of a task in which a Panda stands where the Sawyer stood."""
    return _other_arm_renderer(task, crowded, os.getpid())


@lru_cache(maxsize=2)  # a scene holds some 30 MB of meshes and textures, a crowded one 60
def _other_arm_renderer(task: str, crowded: bool, process: int) -> TaskRenderer:
    spec = crowded_spec(task) if crowded else load_module("mujoco").MjSpec.from_file(scene_path(task))
    spec.attach(panda_spec(seen=True), prefix="panda/", frame=spec.worldbody.add_frame())
    model = fast_to_render(compile_crowded(spec))
    model.geom_group[_geoms_of(model, _SAWYER)] = _HIDDEN
    return TaskRenderer(model)


def with_other_arm(trajectory: Trajectory, steps: Sequence[int]) -> Trajectory:
    """Return the rollout with the joints of the Panda behind its own; NotApplicable if these steps are out of reach."""
    motion, shown = follow_hand(trajectory), list(steps)
    distance, tilt = float(motion.distance[shown].max()), float(motion.tilt[shown].max())
    if distance > MOST_DISTANCE or tilt > MOST_TILT:
        raise NotApplicable(
            f"the other arm cannot follow the recorded hand: it stays {100 * distance:.1f} cm and "
            f"{np.degrees(tilt):.0f} degrees away, where {100 * MOST_DISTANCE:g} cm and "
            f"{np.degrees(MOST_TILT):.0f} degrees are allowed"
        )
    return replace(trajectory, qpos=np.hstack([trajectory.qpos, motion.qpos]))


def is_robot(model: Any, geom: int) -> bool:
    """Tell whether a geom belongs to an arm, be it the recorded one or the other."""
    return model.body(model.body_rootid[model.geom_bodyid[geom]]).name in (_SAWYER, _PANDA)


@contextmanager
def link_thickness(renderer: TaskRenderer, factor: float) -> Iterator[None]:
    """Make every link of the arm thicker or thinner while the block runs; its fingers stay as they are."""
    meshes = _link_meshes(renderer.model) if factor != 1 else ()
    before = [renderer.mesh(mesh) for mesh in meshes]
    for mesh, vertices in zip(meshes, before):
        renderer.upload_mesh(mesh, _thicker(vertices, factor))
    try:
        yield
    finally:
        for mesh, vertices in zip(meshes, before):
            renderer.upload_mesh(mesh, vertices)


def _thicker(vertices: Vertices, factor: float) -> Vertices:
    """Scale a mesh across its longest axis; MuJoCo keeps meshes in the frame of their principal axes."""
    scale = np.full(3, factor)
    scale[np.ptp(vertices, axis=0).argmax()] = 1
    return np.asarray(vertices * scale, np.float32)


def _link_meshes(model: Any) -> tuple[int, ...]:
    """Return the meshes of the arm that is seen, without those of its fingers."""
    root = _PANDA if _PANDA in body_names(model) else _SAWYER
    geoms = [geom for geom in _geoms_of(model, root) if model.geom_type[geom] == _MESH]
    return tuple(int(model.geom_dataid[geom]) for geom in geoms if "finger" not in _body_name(model, geom))


def _geoms_of(model: Any, root: str) -> Ints:
    return np.flatnonzero(model.body_rootid[model.geom_bodyid] == model.body(root).id)


def _body_name(model: Any, geom: int) -> str:
    return str(model.body(model.geom_bodyid[geom]).name)
