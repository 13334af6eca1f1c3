"""A rollout that somebody else drives, action by action, in a simulator of its own."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.errors import PlanError, SimulatorError
from rewardlab.worlds.metaworld.physics import (
    MAX_STEPS,
    Floats,
    Trajectory,
    new_simulator,
    positions,
    reset_scene,
    without_warnings,
)
from rewardlab.worlds.metaworld.task_progress import ProgressMeter, ProgressReading


class SteppedRollout:
    """One simulator of a task: reset it by seed, step it, and take the trajectory so far, as `simulate` returns it."""

    def __init__(self, task: str) -> None:
        self.task = task
        self._env: Any = new_simulator(task)

    def reset(self, seed: int) -> Floats:
        """Begin a rollout in the scene of a seed and return its first observation."""
        with without_warnings():
            try:
                observation, info = reset_scene(self._env, seed)
            except Exception as error:  # MuJoCo and Meta-World raise errors of many kinds
                raise SimulatorError(f"{self.task} does not reset to the scene of seed {seed}: {error}") from error
            self.meter = ProgressMeter(self.task, self._env, observation, info)
            self._seed, self._actions = seed, list[NDArray[np.float32]]()
            self._body_pos = self._env.model.body_pos.copy()
            self._states = [positions(self._env, self.meter, observation)]
            self._readings = [self.meter.read(observation, info)]
        return observation

    def step(self, action: Floats) -> Floats:
        """Take one action, clipped to [-1, 1], and return the next observation."""
        if not np.isfinite(action).all():
            raise SimulatorError(f"{self.task} was given an action that is not finite: {np.asarray(action).tolist()}")
        if len(self._actions) >= MAX_STEPS:
            raise PlanError(f"a rollout takes at most {MAX_STEPS} steps; reset it")
        with without_warnings():
            self._actions.append(np.clip(action, -1, 1).astype(np.float32))
            observation, _, _, _, info = self._env.step(self._actions[-1])
            self._states.append(positions(self._env, self.meter, observation))
            self._readings.append(self.meter.read(observation, info))
        return np.asarray(observation)

    @property
    def reading(self) -> ProgressReading:
        """Return the true progress and success of the state it is in."""
        return self._readings[-1]

    def trajectory(self) -> Trajectory:
        """Return the rollout so far."""
        qpos, gripper_pos, object_pos = (np.stack(part) for part in zip(*self._states))
        actions = np.stack(self._actions)
        readings, goal = tuple(self._readings), self.meter.goal
        return Trajectory(self.task, self._seed, actions, qpos, self._body_pos, gripper_pos, object_pos, readings, goal)
