"""What each edit does to the scene: camera, light, textures, paint, other looks."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rewardlab.core.catalog import find
from rewardlab.core.episode import Frames
from rewardlab.core.errors import NotApplicable
from rewardlab.core.seeding import pick, rng_for
from rewardlab.worlds.metaworld.distractors import (
    crowded_renderer,
    parts_of_the_task,
    place_distractors,
    standing_there,
)
from rewardlab.worlds.metaworld.other_arm import is_robot, link_thickness, other_arm_renderer, with_other_arm
from rewardlab.worlds.metaworld.physics import Trajectory, load_module
from rewardlab.worlds.metaworld.render import (
    WORKSPACE_CENTRE,
    CameraView,
    Edit,
    FrameScene,
    TaskRenderer,
    add_goal_marker,
    add_shape,
    task_renderer,
)
from rewardlab.worlds.metaworld.tasks import COLOURS
from rewardlab.worlds.offscreen import in_rendering_thread

_FINE = 256  # pixels; larger surfaces repeat each pixel


def random_texture(shape: tuple[int, ...], rng: Generator) -> NDArray[np.uint8]:
    """Return a texture of two colours: planks, tiles, weave or blotches, with a fine grain."""
    times = max(1, max(shape[:2]) // _FINE)
    height, width = -(-shape[0] // times), -(-shape[1] // times)
    y, x = np.mgrid[:height, :width] / max(height, width)
    angle, count = rng.uniform(0, np.pi), rng.integers(5, 15)
    along = x * np.cos(angle) + y * np.sin(angle)
    across = y * np.cos(angle) - x * np.sin(angle)
    fields = (
        np.floor(along * count) % 2,
        (np.floor(x * count) + np.floor(y * count)) % 2,
        0.5 + 0.25 * (np.sin(2 * np.pi * count * along) + np.sin(2 * np.pi * count * across)),
        _blotches((height, width), rng, int(count)),
    )
    mix = pick(fields, rng)[..., None]
    first, second = rng.uniform(30, 225, (2, 3))
    grain = rng.normal(0, 6, (height, width, 1))
    small = np.asarray(np.clip(first + mix * (second - first) + grain, 0, 255), np.uint8)
    return small.repeat(times, axis=0).repeat(times, axis=1)[: shape[0], : shape[1]]


def _blotches(shape: tuple[int, int], rng: Generator, count: int) -> NDArray[np.float64]:
    coarse = rng.uniform(0, 1, (count, count))
    rows = np.linspace(0, count - 1, shape[0])
    columns = np.linspace(0, count - 1, shape[1])
    wide = np.stack([np.interp(columns, np.arange(count), row) for row in coarse])
    return np.stack([np.interp(rows, np.arange(count), column) for column in wide.T], axis=1)


# Other shapes and colours for the objects of a task: where each part is stays exact, only its look changes.

_SHAPED = 0.6  # share of scenes whose parts also get another shape
_BOX, _ELLIPSOID, _CYLINDER = 6, 4, 5  # MuJoCo's numbers


@dataclass(frozen=True)
class ObjectLook:
    """The names of the colours of what moves and of what stands still."""

    moving: str
    still: str


def draw_look(seed: int) -> ObjectLook:
    """Return the colours that a seed gives."""
    names = rng_for(seed, "look").permutation(list(COLOURS))
    return ObjectLook(str(names[0]), str(names[1]))


@contextmanager
def other_look(model: Any, seed: int) -> Iterator[None]:
    """Give the objects of a task itself another look while the block runs."""
    shape = (model.geom_type, model.geom_size, model.geom_pos, model.geom_dataid, model.geom_sameframe)
    columns = (*shape, model.geom_rgba, model.geom_matid)
    before = [column.copy() for column in columns]
    look, rng = draw_look(seed), rng_for(seed, "shapes")
    shaped = rng.random() < _SHAPED
    for geom, moves in zip(*parts_of_the_task(model), strict=True):
        shade = np.array(COLOURS[look.moving if moves else look.still]) * rng.uniform(0.85, 1.1)
        model.geom_rgba[geom] = (*shade.clip(0, 1), 1.0)
        model.geom_matid[geom] = -1
        if shaped and rng.random() < 0.8:
            _reshape(model, int(geom), rng)
    try:
        yield
    finally:
        for column, old in zip(columns, before, strict=True):
            column[:] = old


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


Floats = NDArray[np.float64]
Amounts = Sequence[float]
Colour = tuple[float, float, float, float]
MakeEdit = Callable[[Trajectory, Amounts], Edit]  # of each frame
EditModel = Callable[[TaskRenderer, Trajectory, Amounts], AbstractContextManager[None]]  # for the whole clip

# At most how many objects of other tasks stand in the scene, and the seed of which and where. Datasets on disk say
# "things", and "distractors" for drawn shapes.
DISTRACTOR_OBJECTS_EDIT = "things"
ROBOT_EDIT = "robot"  # 1 for the other arm, the thickness of its links, and a paint: red, green, blue and opacity
LOOK_EDIT = "look"  # the seed of other shapes and colours for the objects of the task
_TABLE_BOUNDS = (-0.42, 0.42, 0.45, 0.88)  # metres: the part of the table that is in view
_CLEARANCE = 0.09  # metres that stay free around the gripper's path and the objects
_SHAPES = (2, 5, 6)  # MuJoCo's sphere, cylinder and box


@in_rendering_thread
def render_rollout(
    trajectory: Trajectory,
    steps: Sequence[int],
    view: CameraView,
    changes: Sequence[tuple[str, Amounts]] = (),
    *,
    tiled: bool = False,
) -> Frames:
    """Return the frames of these steps under the named scene edits; without any, as they were recorded."""
    other_arm = any(name == ROBOT_EDIT and amounts[0] for name, amounts in changes)
    task, crowded, shown = trajectory.task, any(name == DISTRACTOR_OBJECTS_EDIT for name, _ in changes), trajectory
    if other_arm:
        renderer, shown = other_arm_renderer(task, crowded=crowded), with_other_arm(trajectory, steps)
    else:
        renderer = crowded_renderer(task) if crowded else task_renderer(task)
    with ExitStack() as undo:
        edits = []
        for name, amounts in changes:
            if name in _MODEL_EDITS:
                undo.enter_context(_MODEL_EDITS[name](renderer, trajectory, amounts))
            if name in SCENE_EDITS or name not in _MODEL_EDITS:
                edits.append(find(SCENE_EDITS, name, "change of a world")(trajectory, amounts))
        return renderer.render(shown, steps, view, edits, tiled=tiled)


def _camera(_trajectory: Trajectory, amounts: Amounts) -> Edit:
    """Turn the camera around the workspace by degrees, raise it by degrees, and scale its distance."""
    turn, lift, back = amounts

    def edit(frame: FrameScene) -> None:
        for camera in frame.scene.camera:
            away = np.asarray(camera.pos, np.float64) - WORKSPACE_CENTRE
            side = np.cross(np.asarray(camera.forward, np.float64), np.array([0.0, 0.0, 1.0]))
            move = _rotation(np.array([0.0, 0.0, 1.0]), turn) @ _rotation(side / np.linalg.norm(side), -lift)
            camera.pos = WORKSPACE_CENTRE + back * (move @ away)
            camera.forward, camera.up = move @ camera.forward, move @ camera.up

    return edit


def _fov(_trajectory: Trajectory, amounts: Amounts) -> Edit:
    """Scale the field of view."""
    (scale,) = amounts

    def edit(frame: FrameScene) -> None:
        for camera in frame.scene.camera:
            camera.frustum_top *= scale
            camera.frustum_bottom *= scale

    return edit


def _light_position(_trajectory: Trajectory, amounts: Amounts) -> Edit:
    """Turn the lights around the vertical axis by degrees and let one of them do more of the lighting."""
    turn, share = amounts

    def edit(frame: FrameScene) -> None:
        lights = [light for light in frame.scene.lights[: frame.scene.nlight] if not light.headlight]
        for index, light in enumerate(lights):
            light.dir = _rotation(np.array([0.0, 0.0, 1.0]), turn) @ light.dir
            light.diffuse *= 1 + 2 * share if index == 0 else 1 - share
        for light in frame.scene.lights[: frame.scene.nlight]:
            if light.headlight:
                light.diffuse *= 1 - share

    return edit


def _light(_trajectory: Trajectory, amounts: Amounts) -> Edit:
    """Multiply the red, green and blue of all lights."""
    factors = np.array(amounts, np.float32)

    def edit(frame: FrameScene) -> None:
        for light in frame.scene.lights[: frame.scene.nlight]:
            light.diffuse *= factors
            light.ambient *= factors
            light.specular *= factors

    return edit


def _distractors(trajectory: Trajectory, amounts: Amounts) -> Edit:
    """Put distractor objects on the table, away from the gripper's path, the goal and the other objects."""
    count, seed = (int(amount) for amount in amounts)
    rng = rng_for(seed, "distractors", trajectory.task, trajectory.seed)
    positions, top = _free_table_spots(trajectory, rng, count), task_renderer(trajectory.task).table_top()
    shapes: list[tuple[int, Floats, Floats, Colour]] = []
    for position in positions:
        size = rng.uniform(0.018, 0.035, 3)
        size = size if (shape := int(rng.choice(_SHAPES))) == 6 else np.array([size[0], size[2], size[2]])
        height = size[0] if shape == 2 else size[1] if shape == 5 else size[2]
        shapes.append((shape, np.array([*position, top + height]), size, (*rng.uniform(0.1, 0.95, 3), 1.0)))

    def edit(frame: FrameScene) -> None:
        for shape in shapes:
            add_shape(frame.scene, *shape)

    return edit


def _goal_hidden(_trajectory: Trajectory, amounts: Amounts) -> Edit:
    """Fade the marker of the goal; only a world that shows one can lose it."""
    (alpha,) = amounts

    def edit(frame: FrameScene) -> None:
        if not frame.view.marker:
            raise NotApplicable("this world never shows its goal marker, so there is none to hide")
        frame.scene.geoms[frame.scene.ngeom - 1].rgba[3] = alpha

    return edit


def _goal_decoys(trajectory: Trajectory, amounts: Amounts) -> Edit:
    """Add decoy goal markers where the goal is not; they float, and nothing can touch them."""
    count, seed = (int(amount) for amount in amounts)
    rng = rng_for(seed, "decoys", trajectory.task, trajectory.seed)
    positions = [np.array([x, y, rng.uniform(0.02, 0.25)]) for x, y in _free_table_spots(trajectory, rng, count)]

    def edit(frame: FrameScene) -> None:
        for position in positions:
            add_goal_marker(frame.scene, position)

    return edit


SCENE_EDITS: dict[str, MakeEdit] = {
    "camera": _camera,
    "fov": _fov,
    "light_position": _light_position,
    "light": _light,
    "object_colour": lambda _, amounts: _paint_geoms(amounts, _is_task_object),
    "robot_colour": lambda _, amounts: _paint_geoms(amounts, is_robot),
    # The paint stands behind which arm it is and how thick its links are.
    ROBOT_EDIT: lambda _, amounts: _paint_geoms(amounts[2:], is_robot),
    "distractors": _distractors,
    "goal_hidden": _goal_hidden,
    "goal_decoys": _goal_decoys,
}


@contextmanager
def _with_texture(renderer: TaskRenderer, texture: str, amounts: Amounts) -> Iterator[None]:
    """Give the table or the floor another texture while the block runs: its opacity, and its seed."""
    opacity, seed = amounts
    old = renderer.texture(texture)
    new = random_texture(old.shape[:2], rng_for(int(seed), "surface", texture))
    share = np.uint16(round(256 * opacity))
    renderer.upload_texture(texture, np.asarray((old * (256 - share) + new * share) >> 8, np.uint8))
    try:
        yield
    finally:
        renderer.upload_texture(texture, old)


def _with_distractor_objects(
    renderer: TaskRenderer, trajectory: Trajectory, amounts: Amounts
) -> AbstractContextManager[None]:
    count, seed = (int(amount) for amount in amounts)
    return standing_there(renderer.model, place_distractors(trajectory, count, seed))


_MODEL_EDITS: dict[str, EditModel] = {
    "table_texture": lambda renderer, _, amounts: _with_texture(renderer, "T_table", amounts),
    "floor_texture": lambda renderer, _, amounts: _with_texture(renderer, "T_floor", amounts),
    DISTRACTOR_OBJECTS_EDIT: _with_distractor_objects,
    LOOK_EDIT: lambda renderer, _, amounts: other_look(renderer.model, int(amounts[0])),
    ROBOT_EDIT: lambda renderer, _, amounts: link_thickness(renderer, amounts[1]),
}


def _paint_geoms(amounts: Amounts, chosen: Callable[[Any, int], bool]) -> Edit:
    """Recolour the chosen geoms: red, green, blue, and the opacity of the paint."""
    *colour, cover = amounts
    paint = np.array(colour, np.float32)

    def edit(frame: FrameScene) -> None:
        for geom in frame.scene.geoms[: frame.scene.ngeom]:
            if geom.objtype == _GEOM and geom.objid >= 0 and chosen(frame.model, geom.objid):
                geom.rgba[:3] += cover * (paint - geom.rgba[:3])
                if cover > 0.6:
                    geom.matid = -1  # so that a texture does not shine through

    return edit


_GEOM = 5  # MuJoCo's number for a geom of the model


def _is_task_object(model: Any, geom: int) -> bool:
    """Tell whether a geom belongs to something that can move and is not the robot."""
    body = model.geom_bodyid[geom]
    return bool(model.body_weldid[body] != 0 and model.body_mocapid[body] < 0 and not is_robot(model, geom))


def _free_table_spots(trajectory: Trajectory, rng: Generator, count: int) -> list[Floats]:
    """Draw positions on the table away from the gripper's path, the goal and everything that stands there."""
    taken, radii = task_renderer(trajectory.task).footprints(trajectory)
    busy = np.concatenate([taken, trajectory.gripper_pos[::4, :2], trajectory.goal[None, :2]])
    reach = np.concatenate([radii, np.full(len(busy) - len(radii), 0.03)]) + _CLEARANCE
    low, high = np.array(_TABLE_BOUNDS[::2]), np.array(_TABLE_BOUNDS[1::2])
    positions: list[Floats] = []
    for position in rng.uniform(low, high, (600, 2)):
        others = np.array(positions).reshape(-1, 2)
        free = (np.hypot(*(busy - position).T) > reach).all() and (np.hypot(*(others - position).T) > 0.08).all()
        if free:
            positions.append(position)
        if len(positions) == count:
            return positions
    raise NotApplicable(f"the table has no room for {count} more objects away from the work")


def _rotation(axis: Floats, degrees: float) -> Floats:
    """Return the matrix that turns about a unit axis."""
    x, y, z = axis
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    angle = np.radians(degrees)
    return np.asarray(np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross)
