"""A Panda in place of the Sawyer: model, inverse kinematics, rendering.

Only the camera sees it: the physics ran with the Sawyer, so every label stays exact.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.errors import NotApplicable
from rewardlab.worlds.metaworld.distractors import body_names, compile_crowded, crowded_spec, scene_path
from rewardlab.worlds.metaworld.physics import Trajectory, load_module, open_task
from rewardlab.worlds.metaworld.render import TaskRenderer, fast_to_render
from rewardlab.worlds.offscreen import in_rendering_thread

Triple = tuple[float, float, float]

TIP_SITE = "tip"  # between the ends of the fingers
JOINTS, FINGERS = 7, 2
MOST_OPEN = 0.08  # metres between the fingers
_BASE = (0.0, 0.1, 0.15)  # metres: behind the table, where a search over places found most of the rollouts in reach
_FACING = (np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5))  # the x axis of the arm is the y axis of Meta-World
_TO_FLOOR = 0.53  # metres: half of the pillar that carries the base
_PAINTS = {"light": (0.93, 0.94, 0.95, 1.0), "dark": (0.22, 0.22, 0.23, 1.0)}
_SEEN = 1  # the group of geoms that are drawn


@dataclass(frozen=True)
class Link:
    """A link that turns about its z axis: where it sits in its parent, turned by quarters about x, and its limits."""

    name: str
    position: Triple
    quarter: int
    limits: tuple[float, float]  # radians


# From the Denavit-Hartenberg parameters and joint limits that Franka publishes.
# fmt: off
LINKS = (
    Link("link1", (0.0, 0.0, 0.333), 0, (-2.8973, 2.8973)),
    Link("link2", (0.0, 0.0, 0.0), -1, (-1.7628, 1.7628)),
    Link("link3", (0.0, -0.316, 0.0), 1, (-2.8973, 2.8973)),
    Link("link4", (0.0825, 0.0, 0.0), 1, (-3.0718, -0.0698)),
    Link("link5", (-0.0825, 0.384, 0.0), -1, (-2.8973, 2.8973)),
    Link("link6", (0.0, 0.0, 0.0), 1, (-0.0175, 3.7525)),
    Link("link7", (0.088, 0.0, 0.0), 1, (-2.8973, 2.8973)),
)
# fmt: on
_FLANGE, _TIP, _FINGER = (0.0, 0.0, 0.107), (0.0, 0.0, 0.11), (0.0, 0.0, 0.0584)


def panda_spec(*, seen: bool) -> Any:
    """Return the arm where it stands beside Meta-World's table; without what is seen of it, it is quick to compile."""
    mujoco = load_module("mujoco")
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    spec.compiler.boundmass = spec.compiler.boundinertia = 1e-6  # MuJoCo wants a mass, though nothing is simulated
    shapes = _meshes() if seen else {}
    for name, (vertices, triangles) in shapes.items():
        spec.add_mesh(name=name, uservert=vertices.ravel(), userface=triangles.ravel())
    body = spec.worldbody.add_body(name="link0", pos=_BASE, quat=_FACING)
    if seen:  # the pillar that carries the base
        cylinder, place, size = mujoco.mjtGeom.mjGEOM_CYLINDER, (-0.04, 0.0, -_TO_FLOOR), (0.12, _TO_FLOOR, 0.0)
        body.add_geom(type=cylinder, pos=place, size=size, rgba=_PAINTS["dark"], group=_SEEN, contype=0, conaffinity=0)
    for link in LINKS:
        _show(body, body.name, shapes)
        half = link.quarter * np.pi / 4
        body = body.add_body(name=link.name, pos=link.position, quat=(np.cos(half), np.sin(half), 0.0, 0.0))
        body.add_joint(name=f"{link.name}_joint", axis=(0, 0, 1), range=link.limits, limited=True)
    _show(body, body.name, shapes)
    eighth = np.pi / 8
    hand = body.add_body(name="hand", pos=_FLANGE, quat=(np.cos(eighth), 0.0, 0.0, -np.sin(eighth)))
    hand.add_site(name=TIP_SITE, pos=_TIP)
    _show(hand, "hand", shapes)
    slide = mujoco.mjtJoint.mjJNT_SLIDE
    for side, turned in (("left", (1.0, 0.0, 0.0, 0.0)), ("right", (0.0, 0.0, 0.0, 1.0))):
        finger = hand.add_body(name=f"{side}_finger", pos=_FINGER, quat=turned)
        finger.add_joint(name=f"{side}_slide", type=slide, axis=(0, 1, 0), range=(0, MOST_OPEN / 2), limited=True)
        _show(finger, "finger", shapes)
    return spec


def _show(body: Any, link: str, shapes: dict[str, Any]) -> None:
    mesh = load_module("mujoco").mjtGeom.mjGEOM_MESH
    for shade, paint in _PAINTS.items():
        if (name := f"{link}/{shade}") in shapes:
            body.add_geom(type=mesh, meshname=name, rgba=paint, group=_SEEN, contype=0, conaffinity=0)


@cache
def _meshes() -> dict[str, tuple[NDArray[np.float32], NDArray[np.int32]]]:
    """Return vertices and triangles by link and shade."""
    with (files(__package__) / "panda" / "meshes.npz").open("rb") as file, np.load(file) as arrays:
        names = sorted({name.rpartition("/")[0] for name in arrays})
        return {name: (arrays[f"{name}/vertices"], arrays[f"{name}/triangles"].astype(np.int32)) for name in names}


# Inverse kinematics: the Panda whose hand follows the recorded hand of a rollout, state by state.

Floats = NDArray[np.float64]

_HOME = np.array([0.0, -0.3, 0.0, -2.2, 0.0, 1.9, -0.785])  # radians: elbow up, hand down, away from all limits
_PAD_THICKNESS = 0.006  # metres: both halves of the recorded pads lie between their middles
_CLOSE_ENOUGH = 5e-4  # metres and radians at which a state needs no further iteration
_FIRST_ITERATIONS, _ITERATIONS = 200, 10
_DAMPING = 1e-4  # squared, of the least squares
_TURN_WEIGHT = 0.3  # metres that an error of one radian counts as
_MOST_STEP = 0.3  # radians of a joint in one iteration
_HOMING = 0.05  # share of the way home that the free joint goes in one iteration


@dataclass(frozen=True, eq=False)
class HandPath:
    """The recorded hand, state by state: the point between the fingertips, its rotation, and how wide it is open."""

    position: Floats  # (T + 1, 3)
    rotation: Floats  # (T + 1, 3, 3): columns are across the opening, along it, and where the hand points
    opening: Floats  # (T + 1,): metres


@dataclass(frozen=True, eq=False)
class ArmMotion:
    """Joints of the arm and its fingers at every state, and how far its hand is from the recorded one."""

    qpos: Floats  # (T + 1, joints and fingers)
    distance: Floats  # (T + 1,): metres
    tilt: Floats  # (T + 1,): radians


@lru_cache(maxsize=8)  # a stress test asks for the same rollout at several severities
def solve_inverse_kinematics(trajectory: Trajectory) -> ArmMotion:
    """Return the motion of the arm; where it cannot follow, it comes as near as it can."""
    return follow_path(recorded_hand(trajectory))


def recorded_hand(trajectory: Trajectory) -> HandPath:
    """Return where the recorded hand was, from the joints of the rollout."""
    mujoco = load_module("mujoco")
    model = open_task(trajectory.task).model
    data, rotations, openings = mujoco.MjData(model), [], []
    for qpos in trajectory.qpos:
        data.qpos[:] = qpos
        mujoco.mj_kinematics(model, data)
        points, along, _ = data.body("hand").xmat.reshape(3, 3).T
        rotations.append(np.stack([np.cross(along, points), along, points], axis=1))
        openings.append(np.linalg.norm(data.body("rightpad").xpos - data.body("leftpad").xpos) - _PAD_THICKNESS)
    return HandPath(trajectory.gripper_pos, np.stack(rotations), np.array(openings))


def follow_path(path: HandPath) -> ArmMotion:
    """Return the motion that brings the hand along a path, each state solved from the one before."""
    arm, joints, rows = ArmSolver(), _HOME.copy(), []
    for number, (position, rotation) in enumerate(zip(path.position, path.rotation, strict=True)):
        joints = arm.reach(joints, position, rotation, _ITERATIONS if number else _FIRST_ITERATIONS)
        rows.append((joints, *arm.miss(joints, position, rotation)))
    solved, distance, tilt = (np.stack(part) for part in zip(*rows, strict=True))
    fingers = np.clip(path.opening, 0, MOST_OPEN) / 2
    return ArmMotion(np.column_stack([solved, *[fingers] * FINGERS]), distance, tilt)


class ArmSolver:
    """Solves for the joints by damped least squares; holds the arm's own small model."""

    def __init__(self) -> None:
        self.mujoco = load_module("mujoco")
        self.model: Any = panda_spec(seen=False).compile()
        self.data: Any = self.mujoco.MjData(self.model)
        self.low, self.high = self.model.jnt_range[:JOINTS].T
        self.tip = self.model.site(TIP_SITE).id

    def reach(self, joints: Floats, position: Floats, rotation: Floats, iterations: int) -> Floats:
        """Return joints within their limits that bring the hand there, or as near as these iterations come."""
        for _ in range(iterations):
            error = self._error(joints, position, rotation)
            if np.abs(error).max() < _CLOSE_ENOUGH:
                break
            joints = np.clip(joints + self._step(joints, error), self.low, self.high)
        return joints

    def miss(self, joints: Floats, position: Floats, rotation: Floats) -> tuple[float, float]:
        """Return how far the hand is from there: metres and radians."""
        error = self._error(joints, position, rotation)
        return float(np.linalg.norm(error[:3])), float(np.linalg.norm(error[3:]))

    def _error(self, joints: Floats, position: Floats, rotation: Floats) -> Floats:
        """Return the way to the wanted place and the turn to the wanted rotation, (6,)."""
        self.data.qpos[:JOINTS] = joints
        self.mujoco.mj_kinematics(self.model, self.data)
        turn, quaternion = np.empty(3), np.empty(4)
        self.mujoco.mju_mat2Quat(quaternion, (rotation @ self.data.site_xmat[self.tip].reshape(3, 3).T).ravel())
        self.mujoco.mju_quat2Vel(turn, quaternion, 1.0)
        return np.concatenate([position - self.data.site_xpos[self.tip], turn])

    def _step(self, joints: Floats, error: Floats) -> Floats:
        """Return the change of the joints: towards the place first, and home where that leaves them free."""
        self.mujoco.mj_comPos(self.model, self.data)
        move, turn = np.empty((2, 3, self.model.nv))
        self.mujoco.mj_jacSite(self.model, self.data, move, turn, self.tip)
        weight = np.repeat([1.0, _TURN_WEIGHT], 3)
        jacobian = np.vstack([move, turn])[:, :JOINTS] * weight[:, None]
        inverse = jacobian.T @ np.linalg.inv(jacobian @ jacobian.T + _DAMPING * np.eye(6))
        homing = _HOMING * (_HOME - joints)
        step = inverse @ (error * weight) + homing - inverse @ (jacobian @ homing)
        return np.asarray(step * min(1.0, _MOST_STEP / np.abs(step).max()))


MOST_DISTANCE, MOST_TILT = 0.01, 0.15  # metres and radians between the recorded hand and one that follows it
_SAWYER, _PANDA = "base", "panda/link0"  # the bodies that all others of an arm hang on
_HIDDEN = 5  # a group of geoms that is not drawn
_MESH = 7  # MuJoCo's number for a geom that is a mesh


@in_rendering_thread
def other_arm_renderer(task: str, *, crowded: bool) -> TaskRenderer:
    """Return this process's renderer of a task in which a Panda stands where the Sawyer stood."""
    return _other_arm_renderer(task, crowded, os.getpid())


@lru_cache(maxsize=2)  # a scene holds some 30 MB of meshes and textures, a crowded one 60
def _other_arm_renderer(task: str, crowded: bool, _process: int) -> TaskRenderer:
    spec = crowded_spec(task) if crowded else load_module("mujoco").MjSpec.from_file(scene_path(task))
    spec.attach(panda_spec(seen=True), prefix="panda/", frame=spec.worldbody.add_frame())
    model = fast_to_render(compile_crowded(spec))
    model.geom_group[_geoms_of(model, _SAWYER)] = _HIDDEN
    return TaskRenderer(model)


def with_other_arm(trajectory: Trajectory, steps: Sequence[int]) -> Trajectory:
    """Return the rollout with the joints of the Panda behind its own; NotApplicable if these steps are out of reach."""
    motion, shown = solve_inverse_kinematics(trajectory), list(steps)
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
    meshes = _link_meshes(renderer.model) if factor != 1 else []
    before = [renderer.mesh(mesh) for mesh in meshes]
    for mesh, vertices in zip(meshes, before, strict=True):
        # Across its longest axis: MuJoCo keeps meshes in the frame of their principal axes.
        scale = np.full(3, factor)
        scale[np.ptp(vertices, axis=0).argmax()] = 1
        renderer.upload_mesh(mesh, np.asarray(vertices * scale, np.float32))
    try:
        yield
    finally:
        for mesh, vertices in zip(meshes, before, strict=True):
            renderer.upload_mesh(mesh, vertices)


def _link_meshes(model: Any) -> list[int]:
    """Return the meshes of the arm that is seen, without those of its fingers."""
    geoms = _geoms_of(model, _PANDA if _PANDA in body_names(model) else _SAWYER)
    links = [geom for geom in geoms if "finger" not in model.body(model.geom_bodyid[geom]).name]
    return [int(model.geom_dataid[geom]) for geom in links if model.geom_type[geom] == _MESH]


def _geoms_of(model: Any, root: str) -> NDArray[np.intp]:
    return np.flatnonzero(model.body_rootid[model.geom_bodyid] == model.body(root).id)
