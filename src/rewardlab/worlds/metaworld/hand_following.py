"""Inverse kinematics: the Panda whose hand follows the recorded hand of a rollout, state by state."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.worlds.metaworld.panda_arm import FINGERS, JOINTS, MOST_OPEN, TIP_SITE, panda_spec
from rewardlab.worlds.metaworld.physics import Trajectory, load_module, open_task

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
def follow_hand(trajectory: Trajectory) -> ArmMotion:
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
    for number, (position, rotation) in enumerate(zip(path.position, path.rotation)):
        joints = arm.reach(joints, position, rotation, _ITERATIONS if number else _FIRST_ITERATIONS)
        rows.append((joints, *arm.miss(joints, position, rotation)))
    solved, distance, tilt = (np.stack(part) for part in zip(*rows))
    fingers = np.clip(path.opening, 0, MOST_OPEN) / 2
    return ArmMotion(np.column_stack([solved, *[fingers] * FINGERS]), distance, tilt)


class ArmSolver:
    """Solves for the joints by damped least squares; holds the arm's own small model."""

    def __init__(self) -> None:
        mujoco = load_module("mujoco")

        self.model: Any = panda_spec(seen=False).compile()
        self.data: Any = mujoco.MjData(self.model)
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
        mujoco = load_module("mujoco")

        self.data.qpos[:JOINTS] = joints
        mujoco.mj_kinematics(self.model, self.data)
        turn, quaternion = np.empty(3), np.empty(4)
        mujoco.mju_mat2Quat(quaternion, (rotation @ self.data.site_xmat[self.tip].reshape(3, 3).T).ravel())
        mujoco.mju_quat2Vel(turn, quaternion, 1.0)
        return np.concatenate([position - self.data.site_xpos[self.tip], turn])

    def _step(self, joints: Floats, error: Floats) -> Floats:
        """Return the change of the joints: towards the place first, and home where that leaves them free."""
        mujoco = load_module("mujoco")

        mujoco.mj_comPos(self.model, self.data)
        move, turn = np.empty((2, 3, self.model.nv))
        mujoco.mj_jacSite(self.model, self.data, move, turn, self.tip)
        weight = np.repeat([1.0, _TURN_WEIGHT], 3)
        jacobian = np.vstack([move, turn])[:, :JOINTS] * weight[:, None]
        inverse = jacobian.T @ np.linalg.inv(jacobian @ jacobian.T + _DAMPING * np.eye(6))
        homing = _HOMING * (_HOME - joints)
        step = inverse @ (error * weight) + homing - inverse @ (jacobian @ homing)
        return np.asarray(step * min(1.0, _MOST_STEP / np.abs(step).max()))
