"""Film: pictures of the states of a rollout, from several cameras, with nothing on them that is not in the scene."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.catalog import find
from rewardlab.core.episode import Frames
from rewardlab.worlds.metaworld.physics import Trace, load_module, open_task
from rewardlab.worlds.offscreen import make_current

Floats = NDArray[np.float64]
CENTRE = np.array([0.0, 0.68, 0.1])  # the middle of the work, which the cameras look at and turn around
_MOST_GEOMS = 1000
_LARGEST_SIDE = 512  # pixels; the side of the largest picture


@dataclass(frozen=True)
class Camera:
    """Where a camera stands, in degrees around and above the centre of the work and metres from it.

    A camera with a `fixed` name is one of Meta-World's own; those come out upside down and are turned.
    """

    azimuth: float = 0.0
    elevation: float = 0.0
    distance: float = 1.0
    fixed: str = ""


CAMERAS = {
    "right": Camera(145, -32, 1.05),
    "left": Camera(35, -32, 1.05),
    "front": Camera(-90, -35, 0.95),
    "top": Camera(90, -85, 1.0),
    "far": Camera(147, -35, 1.7),
    "corner2": Camera(fixed="corner2"),
    "corner3": Camera(fixed="corner3"),
}


@dataclass(frozen=True)
class CameraView:
    """How a rollout is filmed: the camera, the side of the picture in pixels, and whether the goal is marked."""

    camera: str = "right"
    size: int = 128
    marker: bool = False


@dataclass(eq=False)
class Set:
    """The scene of one frame while it is still open to changes: MuJoCo's abstract scene, the task and the rollout."""

    scene: Any
    model: Any
    trace: Trace
    look: CameraView


Edit = Callable[[Set], None]


class Studio:
    """What it takes to film one task: the graphics memory with its meshes and textures."""

    def __init__(self, task: str) -> None:
        mujoco = load_module("mujoco")

        self.model = _fast(open_task(task).model)
        self.data = mujoco.MjData(self.model)
        make_current()
        self.context = mujoco.MjrContext(self.model, mujoco.mjtFontScale.mjFONTSCALE_100)
        self.scene = mujoco.MjvScene(self.model, _MOST_GEOMS)

    def shoot(
        self, trace: Trace, steps: Sequence[int], look: CameraView, edits: Sequence[Edit] = (), *, sheets: bool = False
    ) -> Frames:
        """Return the pictures of these steps, uint8 (T, H, W, 3); edits change the scene of every frame.

        With `sheets` many pictures are drawn side by side and read at once, for waiting for a graphics card costs more
        than drawing; then single pixels depend on the place in the sheet, so that a replay is not bit-exact.
        """
        mujoco = load_module("mujoco")

        make_current()
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self.context)
        self.model.body_pos[:] = trace.layout
        per_side = max(1, _LARGEST_SIDE // look.size) if sheets else 1
        film = np.empty((len(steps), look.size, look.size, 3), np.uint8)
        for start in range(0, len(steps), per_side**2):
            some = steps[start : start + per_side**2]
            film[start : start + len(some)] = self._sheet(trace, some, look, edits, per_side)
        return film

    def _sheet(
        self, trace: Trace, steps: Sequence[int], look: CameraView, edits: Sequence[Edit], per_side: int
    ) -> Frames:
        """Draw pictures side by side, so many to a row, and read them."""
        mujoco = load_module("mujoco")

        option, view, side = _option(), _view(self.model, look), look.size
        for place, step in enumerate(steps):
            self._pose(trace.qpos[step])
            mujoco.mjv_updateScene(
                self.model, self.data, option, None, view, mujoco.mjtCatBit.mjCAT_ALL.value, self.scene
            )
            if look.marker:
                add_ball(self.scene, trace.goal, (0.9, 0.1, 0.1, 1.0))
            for edit in edits:
                edit(Set(self.scene, self.model, trace, look))
            corner = mujoco.MjrRect(side * (place % per_side), side * (place // per_side), side, side)
            mujoco.mjr_render(corner, self.scene, self.context)
        rows = -(-len(steps) // per_side)
        sheet = np.empty((side * rows, side * per_side, 3), np.uint8)
        mujoco.mjr_readPixels(sheet, None, mujoco.MjrRect(0, 0, side * per_side, side * rows), self.context)
        tiles = sheet.reshape(rows, side, per_side, side, 3).swapaxes(1, 2).reshape(-1, side, side, 3)[: len(steps)]
        return tiles[:, :, ::-1] if CAMERAS[look.camera].fixed else tiles[:, ::-1]

    def outline(self, trace: Trace) -> tuple[Floats, Floats]:
        """Return the places (x, y) of everything on the table at the start and the end, and how far each reaches."""
        self.model.body_pos[:] = trace.layout
        solid = np.flatnonzero((self.model.geom_rbound > 0) & (self.model.geom_rbound < 0.3))
        places = []
        for qpos in (trace.qpos[0], trace.qpos[-1]):
            self._pose(qpos)
            places.append(self.data.geom_xpos[solid, :2].copy())
        return np.concatenate(places), np.tile(self.model.geom_rbound[solid], 2)

    def table_top(self) -> float:
        """Return the height of the table's surface, which is higher where the table has a hole."""
        table = self.model.body("tablelink").id
        boards = np.flatnonzero((self.model.geom_bodyid == table) & (self.model.geom_size[:, 2] < 0.06))
        return float((self.data.geom_xpos[boards, 2] + self.model.geom_size[boards, 2]).max())

    def texture(self, name: str) -> Frames:
        """Return a copy of a texture of this task, uint8 (H, W, 3)."""
        return self._pixels(name).copy()

    def upload(self, name: str, pixels: Frames) -> None:
        """Put other pixels on every surface that shows this texture."""
        mujoco = load_module("mujoco")

        self._pixels(name)[:] = pixels
        make_current()
        mujoco.mjr_uploadTexture(self.model, self.context, self.model.texture(name).id)

    def _pixels(self, name: str) -> Frames:
        facts = self.model.texture(name)
        height, width = int(facts.height.item()), int(facts.width.item())
        start = int(facts.adr.item())
        pixels: Frames = self.model.tex_data[start : start + height * width * 3]
        return pixels.reshape(height, width, 3)

    def _pose(self, qpos: Floats) -> None:
        mujoco = load_module("mujoco")

        self.data.qpos[:] = qpos
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)


def studio(task: str) -> Studio:
    """Return this process's studio for a task; a forked process builds its own."""
    return _studio(task, os.getpid())


@lru_cache(maxsize=4)
def _studio(task: str, process: int) -> Studio:
    return Studio(task)


def camera_view(camera: str, size: int, marker: bool) -> CameraView:
    """Return a look after checking that there is such a camera."""
    find(CAMERAS, camera, "camera")
    return replace(CameraView(), camera=camera, size=size, marker=marker)


def add_ball(scene: Any, place: Floats, rgba: tuple[float, float, float, float], radius: float = 0.02) -> None:
    """Add a ball that only the camera sees."""
    mujoco = load_module("mujoco")

    add_shape(scene, int(mujoco.mjtGeom.mjGEOM_SPHERE), place, np.full(3, radius), rgba)


def add_shape(scene: Any, shape: int, place: Floats, size: Floats, rgba: tuple[float, float, float, float]) -> None:
    """Add a shape that only the camera sees, upright at a place."""
    mujoco = load_module("mujoco")

    geom = scene.geoms[scene.ngeom]
    colour = np.array(rgba, np.float32)
    mujoco.mjv_initGeom(geom, shape, size, place, np.eye(3).ravel(), colour)
    scene.ngeom += 1


def _fast(model: Any) -> Any:
    """Return a copy of a model without shadows, multisampling and mirrors, which cost most of the time on a CPU."""
    from copy import copy

    fast = copy(model)
    fast.vis.quality.shadowsize = 0
    fast.vis.quality.offsamples = 0
    fast.mat_reflectance[:] = 0
    fast.vis.global_.offwidth = fast.vis.global_.offheight = _LARGEST_SIDE
    return fast


def _option() -> Any:
    """Return the drawing options that hide every site: the goals are drawn as sites."""
    mujoco = load_module("mujoco")

    option = mujoco.MjvOption()
    option.sitegroup[:] = 0
    return option


def _view(model: Any, look: CameraView) -> Any:
    mujoco = load_module("mujoco")

    camera, view = CAMERAS[look.camera], mujoco.MjvCamera()
    if camera.fixed:
        view.type = mujoco.mjtCamera.mjCAMERA_FIXED
        view.fixedcamid = model.camera(camera.fixed).id
        return view
    view.type = mujoco.mjtCamera.mjCAMERA_FREE
    view.lookat[:] = CENTRE
    view.azimuth, view.elevation, view.distance = camera.azimuth, camera.elevation, camera.distance
    return view
