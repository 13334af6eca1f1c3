"""Crowded scenes: the things of other tasks stand beside those of a rollout; only the camera sees them.

The physics never meets them, so every label stays exact, and what is asked of them is known not to have been done.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.worlds.metaworld.physics import load_module
from rewardlab.worlds.metaworld.render import TaskRenderer, fast_to_render
from rewardlab.worlds.metaworld.thing_geometry import Ints, body_names, scene_path, thing_shape, thing_spec
from rewardlab.worlds.metaworld.thing_placement import PlacedThing
from rewardlab.worlds.metaworld.things import THINGS
from rewardlab.worlds.offscreen import in_rendering_thread

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
