"""Rendering: frames of the states of a rollout from several cameras, with nothing in them that is not in the scene."""

import os
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.catalog import find
from rewardlab.core.episode import Frames
from rewardlab.worlds.metaworld.physics import Trajectory, load_module, open_task
from rewardlab.worlds.offscreen import in_rendering_thread, make_current, seen_at

Floats = NDArray[np.float64]
WORKSPACE_CENTRE = np.array([0.0, 0.68, 0.1])  # the cameras look at it and turn around it
_MAX_GEOMS = 1000
_FOV = 45.0  # degrees from the top to the bottom of the picture, as MuJoCo has it
MAX_SIDE = 512  # pixels of the largest frame


@dataclass(frozen=True)
class Camera:
    """The pose of a camera: degrees around and above the centre of the workspace, and metres from it.

    A camera with a `fixed` name is one of Meta-World's own; those come out upside down and are turned.
    """

    azimuth: float = 0.0
    elevation: float = 0.0
    distance: float = 1.0
    fixed: str = ""

    def seen_at(self, points: Floats) -> Floats | None:
        """Return where points (..., 3) are in the picture (..., 2), from -1 to 1; None for Meta-World's own cameras."""
        pose = (self.azimuth, self.elevation, self.distance)
        return None if self.fixed else seen_at(points, WORKSPACE_CENTRE, pose, _FOV)


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
    """How a rollout is rendered: the camera, the side of the frame in pixels, and whether the goal is marked."""

    camera: str = "right"
    size: int = 128
    marker: bool = False


@dataclass(eq=False)
class FrameScene:
    """The scene of one frame before it is drawn, open to edits: MuJoCo's abstract scene, the model and the rollout."""

    scene: Any
    model: Any
    trajectory: Trajectory
    view: CameraView


Edit = Callable[[FrameScene], None]


class TaskRenderer:
    """Renders one scene: holds the graphics memory with its meshes and textures.

    A model may hold more than the scene of the rollout, behind its bodies and joints.
    """

    def __init__(self, model: Any) -> None:
        self.mujoco = mujoco = load_module("mujoco")
        self.model = model
        self.data = mujoco.MjData(self.model)
        make_current()
        self.context = mujoco.MjrContext(self.model, mujoco.mjtFontScale.mjFONTSCALE_100)
        self.scene = mujoco.MjvScene(self.model, _MAX_GEOMS)

    @in_rendering_thread
    def render(
        self,
        trajectory: Trajectory,
        steps: Sequence[int],
        view: CameraView,
        edits: Sequence[Edit] = (),
        *,
        tiled: bool = False,
    ) -> Frames:
        """Return the frames of these steps, uint8 (T, H, W, 3); edits change the scene of every frame.

        With `tiled` many frames are drawn side by side and read at once, for waiting for a graphics card costs more
        than drawing; then single pixels depend on the place of the tile, so that a replay is not bit-exact.
        """
        make_current()
        self.mujoco.mjr_setBuffer(self.mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self.context)
        self._settle(trajectory)
        per_side = max(1, MAX_SIDE // view.size) if tiled else 1
        frames = np.empty((len(steps), view.size, view.size, 3), np.uint8)
        for start in range(0, len(steps), per_side**2):
            some = steps[start : start + per_side**2]
            frames[start : start + len(some)] = self._render_tiles(trajectory, some, view, edits, per_side)
        return frames

    def _render_tiles(
        self, trajectory: Trajectory, steps: Sequence[int], view: CameraView, edits: Sequence[Edit], per_side: int
    ) -> Frames:
        """Draw frames side by side, `per_side` to a row, and read them."""
        mujoco = self.mujoco
        option, mj_camera, side = mujoco.MjvOption(), _mujoco_camera(self.model, view), view.size
        option.sitegroup[:] = 0  # hides every site: the goals are drawn as sites
        for position, step in enumerate(steps):
            self._pose(trajectory.qpos[step])
            mujoco.mjv_updateScene(
                self.model, self.data, option, None, mj_camera, mujoco.mjtCatBit.mjCAT_ALL.value, self.scene
            )
            if view.marker:
                add_goal_marker(self.scene, trajectory.goal)
            for edit in edits:
                edit(FrameScene(self.scene, self.model, trajectory, view))
            corner = mujoco.MjrRect(side * (position % per_side), side * (position // per_side), side, side)
            mujoco.mjr_render(corner, self.scene, self.context)
        rows = -(-len(steps) // per_side)
        pixels = np.empty((side * rows, side * per_side, 3), np.uint8)
        mujoco.mjr_readPixels(pixels, None, mujoco.MjrRect(0, 0, side * per_side, side * rows), self.context)
        tiles = pixels.reshape(rows, side, per_side, side, 3).swapaxes(1, 2).reshape(-1, side, side, 3)[: len(steps)]
        return tiles[:, :, ::-1] if CAMERAS[view.camera].fixed else tiles[:, ::-1]

    def footprints(self, trajectory: Trajectory) -> tuple[Floats, Floats]:
        """Return the positions (x, y) of everything on the table at each turn, and the radius of each."""
        self._settle(trajectory)
        solid = np.flatnonzero((self.model.geom_rbound > 0) & (self.model.geom_rbound < 0.3))
        positions = []
        for step in trajectory.turns:
            self._pose(trajectory.qpos[step])
            positions.append(self.data.geom_xpos[solid, :2].copy())
        return np.concatenate(positions), np.tile(self.model.geom_rbound[solid], len(positions))

    def table_top(self) -> float:
        """Return the height of the table's surface, which is higher where the table has a hole."""
        table = self.model.body("tablelink").id
        boards = np.flatnonzero((self.model.geom_bodyid == table) & (self.model.geom_size[:, 2] < 0.06))
        return float((self.data.geom_xpos[boards, 2] + self.model.geom_size[boards, 2]).max())

    def texture(self, name: str) -> Frames:
        """Return a copy of a texture of this task, uint8 (H, W, 3)."""
        return self._pixels(name).copy()

    @in_rendering_thread
    def upload_texture(self, name: str, pixels: Frames) -> None:
        """Replace the pixels of a texture on every surface that shows it."""
        self._pixels(name)[:] = pixels
        make_current()
        self.mujoco.mjr_uploadTexture(self.model, self.context, self.model.texture(name).id)

    def mesh(self, mesh: int) -> NDArray[np.float32]:
        """Return a copy of the vertices of a mesh, (vertices, 3)."""
        return self._vertices(mesh).copy()

    @in_rendering_thread
    def upload_mesh(self, mesh: int, vertices: NDArray[np.float32]) -> None:
        """Replace the vertices of a mesh wherever it is drawn."""
        self._vertices(mesh)[:] = vertices
        make_current()
        self.mujoco.mjr_uploadMesh(self.model, self.context, mesh)

    def _vertices(self, mesh: int) -> NDArray[np.float32]:
        start, count = self.model.mesh_vertadr[mesh], self.model.mesh_vertnum[mesh]
        vertices: NDArray[np.float32] = self.model.mesh_vert[start : start + count]
        return vertices

    def _pixels(self, name: str) -> Frames:
        facts = self.model.texture(name)
        height, width, start = int(facts.height.item()), int(facts.width.item()), int(facts.adr.item())
        pixels: Frames = self.model.tex_data[start : start + height * width * 3]
        return pixels.reshape(height, width, 3)

    def _settle(self, trajectory: Trajectory) -> None:
        self.model.body_pos[: len(trajectory.body_pos)] = trajectory.body_pos

    def _pose(self, qpos: Floats) -> None:
        self.data.qpos[: len(qpos)] = qpos
        self.mujoco.mj_kinematics(self.model, self.data)
        self.mujoco.mj_comPos(self.model, self.data)
        self.mujoco.mj_camlight(self.model, self.data)


@in_rendering_thread
def task_renderer(task: str) -> TaskRenderer:
    """Return this process's renderer of a task; a forked process builds its own."""
    return _task_renderer(task, os.getpid())


@lru_cache(maxsize=4)
def _task_renderer(task: str, _process: int) -> TaskRenderer:
    return TaskRenderer(fast_to_render(open_task(task).model))


def camera_view(camera: str, size: int, marker: bool) -> CameraView:
    """Return a view after checking that there is such a camera."""
    find(CAMERAS, camera, "camera")
    return CameraView(camera, size, marker)


def add_goal_marker(scene: Any, position: Floats) -> None:
    """Add a red ball that only the camera sees."""
    sphere = int(load_module("mujoco").mjtGeom.mjGEOM_SPHERE)
    add_shape(scene, sphere, position, np.full(3, 0.02), (0.9, 0.1, 0.1, 1.0))


def add_shape(scene: Any, shape: int, position: Floats, size: Floats, rgba: tuple[float, float, float, float]) -> None:
    """Add a shape that only the camera sees, upright at a place."""
    colour = np.array(rgba, np.float32)
    load_module("mujoco").mjv_initGeom(scene.geoms[scene.ngeom], shape, size, position, np.eye(3).ravel(), colour)
    scene.ngeom += 1


def fast_to_render(model: Any) -> Any:
    """Return a copy of a model without shadows, multisampling and reflections, which cost most of the time on a CPU."""
    fast = copy(model)
    fast.vis.quality.shadowsize = 0
    fast.vis.quality.offsamples = 0
    fast.mat_reflectance[:] = 0
    fast.vis.global_.offwidth = fast.vis.global_.offheight = MAX_SIDE
    return fast


def _mujoco_camera(model: Any, view: CameraView) -> Any:
    mujoco = load_module("mujoco")
    camera, mj_camera = CAMERAS[view.camera], mujoco.MjvCamera()
    if camera.fixed:
        mj_camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        mj_camera.fixedcamid = model.camera(camera.fixed).id
        return mj_camera
    mj_camera.type = mujoco.mjtCamera.mjCAMERA_FREE
    mj_camera.lookat[:] = WORKSPACE_CENTRE
    mj_camera.azimuth, mj_camera.elevation, mj_camera.distance = camera.azimuth, camera.elevation, camera.distance
    return mj_camera
