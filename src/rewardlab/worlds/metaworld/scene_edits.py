"""Changed worlds: edits of the scene before it is drawn. The physics never sees them, so every label stays exact."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.catalog import find
from rewardlab.core.episode import Frames
from rewardlab.core.errors import NotApplicable
from rewardlab.core.seeding import rng_for
from rewardlab.worlds.metaworld.physics import Trace
from rewardlab.worlds.metaworld.render import CENTRE, CameraView, Edit, Set, Studio, add_ball, add_shape, studio
from rewardlab.worlds.metaworld.textures import pattern

Floats = NDArray[np.float64]
Amounts = Sequence[float]
Colour = tuple[float, float, float, float]
MakeEdit = Callable[[Trace, Amounts], Edit]

_TABLE = (-0.42, 0.42, 0.45, 0.88)  # metres: the part of the table that is in view
_CLEAR = 0.09  # metres that stay free around the work
_SHAPES = (2, 5, 6)  # MuJoCo's sphere, cylinder and box


def render_rollout(
    trace: Trace,
    steps: Sequence[int],
    look: CameraView,
    changes: Sequence[tuple[str, Amounts]] = (),
    *,
    sheets: bool = False,
) -> Frames:
    """Film these steps with the named things in the scene changed; no change films what was recorded."""
    room = studio(trace.task)
    with ExitStack() as surfaces:
        edits = []
        for name, amounts in changes:
            if name in _SURFACES:
                surfaces.enter_context(_resurfaced(room, _SURFACES[name], *amounts))
            else:
                edits.append(find(CHANGES, name, "change of a world")(trace, amounts))
        return room.shoot(trace, steps, look, edits, sheets=sheets)


def _camera(trace: Trace, amounts: Amounts) -> Edit:
    """Walk the camera around the work by degrees, raise it by degrees, and step back by a factor."""
    turn, raise_, back = amounts

    def edit(now: Set) -> None:
        for camera in now.scene.camera:
            away = np.asarray(camera.pos, np.float64) - CENTRE
            side = np.cross(np.asarray(camera.forward, np.float64), np.array([0.0, 0.0, 1.0]))
            move = _rotation(np.array([0.0, 0.0, 1.0]), turn) @ _rotation(side / np.linalg.norm(side), -raise_)
            camera.pos = CENTRE + back * (move @ away)
            camera.forward, camera.up = move @ camera.forward, move @ camera.up

    return edit


def _fov(trace: Trace, amounts: Amounts) -> Edit:
    """Scale the angle that the lens sees."""
    (scale,) = amounts

    def edit(now: Set) -> None:
        for camera in now.scene.camera:
            camera.frustum_top *= scale
            camera.frustum_bottom *= scale

    return edit


def _light_position(trace: Trace, amounts: Amounts) -> Edit:
    """Turn the lamps around the room by degrees and let one of them do more of the lighting."""
    turn, share = amounts

    def edit(now: Set) -> None:
        lamps = [lamp for lamp in now.scene.lights[: now.scene.nlight] if not lamp.headlight]
        for number, lamp in enumerate(lamps):
            lamp.dir = _rotation(np.array([0.0, 0.0, 1.0]), turn) @ lamp.dir
            lamp.diffuse *= 1 + 2 * share if number == 0 else 1 - share
        for lamp in now.scene.lights[: now.scene.nlight]:
            if lamp.headlight:
                lamp.diffuse *= 1 - share

    return edit


def _light(trace: Trace, amounts: Amounts) -> Edit:
    """Multiply the red, green and blue of all light."""
    factors = np.array(amounts, np.float32)

    def edit(now: Set) -> None:
        for lamp in now.scene.lights[: now.scene.nlight]:
            lamp.diffuse *= factors
            lamp.ambient *= factors
            lamp.specular *= factors

    return edit


def _object_colour(trace: Trace, amounts: Amounts) -> Edit:
    """Paint everything that the task moves: red, green, blue, and how much of the paint covers."""
    return _painted(amounts, _is_thing)


def _robot_colour(trace: Trace, amounts: Amounts) -> Edit:
    """Paint the arm: red, green, blue, and how much of the paint covers."""
    return _painted(amounts, _is_robot)


def _distractors(trace: Trace, amounts: Amounts) -> Edit:
    """Put things on the table that nobody asked for, away from where the work is done."""
    count, seed = (int(amount) for amount in amounts)
    rng = rng_for(seed, "distractors", trace.task, trace.seed)
    places, top = _free_places(trace, rng, count), studio(trace.task).table_top()
    shapes: list[tuple[int, Floats, Floats, Colour]] = []
    for place in places:
        size = rng.uniform(0.018, 0.035, 3)
        size = size if (shape := int(rng.choice(_SHAPES))) == 6 else np.array([size[0], size[2], size[2]])
        height = size[0] if shape == 2 else size[1] if shape == 5 else size[2]
        shapes.append((shape, np.array([*place, top + height]), size, (*rng.uniform(0.1, 0.95, 3), 1.0)))

    def edit(now: Set) -> None:
        for shape in shapes:
            add_shape(now.scene, *shape)

    return edit


def _goal_hidden(trace: Trace, amounts: Amounts) -> Edit:
    """Fade the marker of the goal; only a world that shows one can lose it."""
    (alpha,) = amounts

    def edit(now: Set) -> None:
        if not now.look.marker:
            raise NotApplicable("this world never shows its goal marker, so there is none to hide")
        now.scene.geoms[now.scene.ngeom - 1].rgba[3] = alpha

    return edit


def _goal_decoys(trace: Trace, amounts: Amounts) -> Edit:
    """Hang markers like the goal's where the goal is not; they float, and nothing can touch them."""
    count, seed = (int(amount) for amount in amounts)
    rng = rng_for(seed, "decoys", trace.task, trace.seed)
    places = [np.array([x, y, rng.uniform(0.02, 0.25)]) for x, y in _free_places(trace, rng, count)]

    def edit(now: Set) -> None:
        for place in places:
            add_ball(now.scene, place, (0.9, 0.1, 0.1, 1.0))

    return edit


CHANGES: dict[str, MakeEdit] = {
    "camera": _camera,
    "fov": _fov,
    "light_position": _light_position,
    "light": _light,
    "object_colour": _object_colour,
    "robot_colour": _robot_colour,
    "distractors": _distractors,
    "goal_hidden": _goal_hidden,
    "goal_decoys": _goal_decoys,
}
_SURFACES = {"table_texture": "T_table", "floor_texture": "T_floor"}


@contextmanager
def _resurfaced(room: Studio, texture: str, opacity: float, seed: float) -> Iterator[None]:
    """Give the table or the floor another pattern while the block runs."""
    old = room.texture(texture)
    new = pattern(old.shape[:2], rng_for(int(seed), "surface", texture))
    room.upload(texture, _mixed(old, new, opacity))
    try:
        yield
    finally:
        room.upload(texture, old)


def _mixed(old: Frames, new: Frames, opacity: float) -> Frames:
    share = np.uint16(round(256 * opacity))
    return np.asarray((old * (256 - share) + new * share) >> 8, np.uint8)


def _painted(amounts: Amounts, chosen: Callable[[Any, int], bool]) -> Edit:
    *colour, cover = amounts
    paint = np.array(colour, np.float32)

    def edit(now: Set) -> None:
        for geom in now.scene.geoms[: now.scene.ngeom]:
            if geom.objtype == _GEOM and geom.objid >= 0 and chosen(now.model, geom.objid):
                geom.rgba[:3] += cover * (paint - geom.rgba[:3])
                if cover > 0.6:
                    geom.matid = -1  # so that a texture does not shine through

    return edit


_GEOM = 5  # MuJoCo's number for a geom of the model


def _is_robot(model: Any, geom: int) -> bool:
    roots = model.body_rootid
    return bool(roots[model.geom_bodyid[geom]] == roots[model.body("hand").id])


def _is_thing(model: Any, geom: int) -> bool:
    """Tell whether a geom belongs to something that can move and is not the robot."""
    body = model.geom_bodyid[geom]
    return bool(model.body_weldid[body] != 0 and model.body_mocapid[body] < 0 and not _is_robot(model, geom))


def _free_places(trace: Trace, rng: Generator, count: int) -> list[Floats]:
    """Draw places on the table away from the hand's path, the goal and everything that stands there."""
    taken, radii = studio(trace.task).outline(trace)
    busy = np.concatenate([taken, trace.hand[::4, :2], trace.goal[None, :2]])
    reach = np.concatenate([radii, np.full(len(busy) - len(radii), 0.03)]) + _CLEAR
    low, high = np.array(_TABLE[::2]), np.array(_TABLE[1::2])
    places: list[Floats] = []
    for spot in rng.uniform(low, high, (600, 2)):
        others = np.array(places).reshape(-1, 2)
        free = (np.hypot(*(busy - spot).T) > reach).all() and (np.hypot(*(others - spot).T) > 0.08).all()
        if free:
            places.append(spot)
        if len(places) == count:
            return places
    raise NotApplicable(f"the table has no room for {count} more things away from the work")


def _rotation(axis: Floats, degrees: float) -> Floats:
    """Return the matrix that turns about a unit axis."""
    x, y, z = axis
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    angle = np.radians(degrees)
    return np.asarray(np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross)
