"""Other shapes and colours for the things of a task: where each part is stays exact, only its look changes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from rewardlab.core.seeding import rng_for
from rewardlab.worlds.metaworld.physics import load_module
from rewardlab.worlds.metaworld.thing_geometry import parts_of_the_task

COLOURS = {
    "red": (0.85, 0.12, 0.1),
    "green": (0.15, 0.65, 0.2),
    "blue": (0.12, 0.25, 0.85),
    "yellow": (0.95, 0.85, 0.1),
    "orange": (0.95, 0.5, 0.05),
    "purple": (0.5, 0.15, 0.65),
    "pink": (0.95, 0.5, 0.7),
    "white": (0.95, 0.95, 0.95),
    "black": (0.08, 0.08, 0.08),
    "grey": (0.5, 0.5, 0.5),
}
_SHAPED = 0.6  # share of scenes whose parts also get another shape
_BOX, _ELLIPSOID, _CYLINDER = 6, 4, 5  # MuJoCo's numbers


@dataclass(frozen=True)
class ThingLook:
    """The names of the colours of what moves and of what stands still."""

    moving: str
    still: str


def draw_look(seed: int) -> ThingLook:
    """Return the colours that a seed gives."""
    names = rng_for(seed, "look").permutation(list(COLOURS))
    return ThingLook(str(names[0]), str(names[1]))


@contextmanager
def other_look(model: Any, seed: int) -> Iterator[None]:
    """Give the things of a task itself another look while the block runs."""
    shape = (model.geom_type, model.geom_size, model.geom_pos, model.geom_dataid, model.geom_sameframe)
    columns = (*shape, model.geom_rgba, model.geom_matid)
    before = [column.copy() for column in columns]
    _repaint(model, draw_look(seed), rng_for(seed, "shapes"))
    try:
        yield
    finally:
        for column, old in zip(columns, before):
            column[:] = old


def _repaint(model: Any, look: ThingLook, rng: Generator) -> None:
    geoms, moving = parts_of_the_task(model)
    shaped = rng.random() < _SHAPED
    for geom, moves in zip(geoms, moving):
        shade = np.array(COLOURS[look.moving if moves else look.still]) * rng.uniform(0.85, 1.1)
        model.geom_rgba[geom] = (*shade.clip(0, 1), 1.0)
        model.geom_matid[geom] = -1
        if shaped and rng.random() < 0.8:
            _reshape(model, int(geom), rng)


def _reshape(model: Any, geom: int, rng: Generator) -> None:
    """Replace a geom by a plain shape that fills about the box around it."""
    middle, half = model.geom_aabb[geom, :3].copy(), model.geom_aabb[geom, 3:] * rng.uniform(0.75, 1.2, 3)
    half = half.clip(0.004, 0.3)
    rotated = np.zeros(3)
    load_module("mujoco").mju_rotVecQuat(rotated, middle, model.geom_quat[geom])
    model.geom_pos[geom] += rotated
    kind = int(rng.choice((_BOX, _ELLIPSOID, _CYLINDER), p=(0.5, 0.25, 0.25)))
    round_enough = 0.6 < half[0] / half[1] < 1.7
    kind = _BOX if kind == _CYLINDER and not round_enough else kind
    model.geom_size[geom] = (half[0], half[2], 0.0) if kind == _CYLINDER else half
    model.geom_type[geom], model.geom_dataid[geom], model.geom_sameframe[geom] = kind, -1, 0
