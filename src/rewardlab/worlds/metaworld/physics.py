"""Open, reset, step, replay; a rollout that somebody else drives."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.catalog import find
from rewardlab.core.errors import PlanError, SimulatorError
from rewardlab.worlds.metaworld.task_progress import PROGRESS_SPECS, ProgressMeter, ProgressReading

Floats = NDArray[np.float64]

STEPS_PER_SECOND = 80
MAX_STEPS = 500  # the simulator refuses to go on after that
TASKS = tuple(PROGRESS_SPECS)


@dataclass(frozen=True)
class StepState:
    """What a policy sees before it acts: the observation and the true progress."""

    observation: Floats
    progress: float
    success: bool
    step: int


Policy = Callable[[StepState], Floats]  # action (4,): gripper velocity x, y, z and effort, each in [-1, 1]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """One rollout, step by step; state 0 is the scene before the first action.

    `body_pos` is where this seed put the bodies that do not move; with a row of `qpos` it is all that rendering needs.
    """

    task: str
    seed: int
    actions: NDArray[np.float32]  # (T, 4)
    qpos: Floats  # (T + 1, positions of all joints)
    body_pos: Floats  # (bodies, 3)
    gripper_pos: Floats  # (T + 1, 3)
    object_pos: Floats  # (T + 1, 3): what must come to the goal
    readings: tuple[ProgressReading, ...]  # T + 1 of them
    goal: Floats  # (3,)

    @property
    def progress(self) -> Floats:
        """Return the true progress before each action and at the end, in [0, 1]."""
        return np.array([reading.progress for reading in self.readings])


def simulate(task: str, seed: int, steps: int, policy: Policy) -> Trajectory:
    """Reset the scene, let the policy act for so many steps, and return the trajectory."""
    if not 1 <= steps <= MAX_STEPS:
        raise PlanError(f"a rollout takes 1 to {MAX_STEPS} steps, got {steps}")
    with without_warnings():
        rollout = SteppedRollout(task, open_task(task))
        observation = rollout.begin(seed)
        for step in range(steps):
            last = rollout.reading
            observation = rollout.advance(policy(StepState(observation.copy(), last.progress, last.success, step)))
    return rollout.trajectory()


def replay_actions(task: str, seed: int, actions: NDArray[np.float32]) -> Trajectory:
    """Return the trajectory of recorded actions, taken again in the same scene."""
    return simulate(task, seed, len(actions), lambda state: actions[state.step].astype(np.float64))


@lru_cache(maxsize=6)  # a task holds some 30 MB of meshes and textures
def open_task(task: str) -> Any:
    """Return the simulator of a task; it is opened once per process and reset for every rollout."""
    return new_simulator(task)


def new_simulator(task: str) -> Any:
    """Return a simulator of a task that nobody shares, for rollouts that go on side by side."""
    name = f"{find({t: t for t in TASKS}, task, 'Meta-World task')}-v3"
    with without_warnings():
        env: Any = load_module("metaworld.env_dict").ALL_V3_ENVIRONMENTS[name]()
        env._freeze_rand_vec, env.seeded_rand_vec, env._set_task_called = False, True, True
        env._partially_observable = False  # the experts need to see the goal
        env.__dict__.pop("sawyer_observation_space", None)  # cached for the hidden goal
    return env


def scripted_expert(task: str) -> Callable[[Floats], Floats]:
    """Return the scripted expert of a task: observation in, action out, without a memory."""
    policy: Any = load_module("metaworld.policies").ENV_POLICY_MAP[f"{task}-v3"]()

    def act(observation: Floats) -> Floats:
        # Some experts write into the observation they are given.
        return np.asarray(np.clip(policy.get_action(observation.copy()), -1, 1), np.float64)

    return act


def simulator_versions() -> dict[str, str]:
    """Return the versions that the physics depends on."""
    try:
        return {package: version(package) for package in ("metaworld", "mujoco")}
    except PackageNotFoundError:
        for package in ("metaworld", "mujoco"):
            load_module(package)  # says what to install
        raise


def reset_scene(env: Any, seed: int) -> tuple[Floats, dict[str, Any]]:
    """Reset to the scene of a seed, whatever happened in this simulator before."""
    mujoco = load_module("mujoco")
    env.seed(seed)
    mujoco.mj_resetData(env.model, env.data)
    env.reset()
    mujoco.mj_forward(env.model, env.data)  # some tasks move a joint at reset and leave the positions stale
    observation = np.asarray(env._get_obs())
    observation[18:36] = observation[:18]
    _, info = env.evaluate_state(observation, np.zeros(4, np.float32))
    return observation, info


def load_module(name: str) -> Any:
    """Import a part of the simulator, or say which extra to install."""
    try:
        with without_warnings():
            return import_module(name)
    except ImportError as error:
        raise PlanError(f"Meta-World is not installed here ({error}); install rewardlab[sim]") from error


@contextmanager
def without_warnings() -> Iterator[None]:
    """Hide the warnings of the simulator, which come at almost every step of an expert."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# A rollout that somebody else drives, action by action, in a simulator of its own.


class SteppedRollout:
    """One simulator of a task: reset it by seed, step it, and take the trajectory so far, as `simulate` returns it."""

    def __init__(self, task: str, env: Any = None) -> None:
        self.task = task
        self._env: Any = new_simulator(task) if env is None else env

    def reset(self, seed: int) -> Floats:
        """Begin a rollout in the scene of a seed and return its first observation."""
        with without_warnings():
            try:
                return self.begin(seed)
            except Exception as error:  # MuJoCo and Meta-World raise errors of many kinds
                raise SimulatorError(f"{self.task} does not reset to the scene of seed {seed}: {error}") from error

    def step(self, action: Floats) -> Floats:
        """Take one action, clipped to [-1, 1], and return the next observation."""
        if not np.isfinite(action).all():
            raise SimulatorError(f"{self.task} was given an action that is not finite: {np.asarray(action).tolist()}")
        if len(self._actions) >= MAX_STEPS:
            raise PlanError(f"a rollout takes at most {MAX_STEPS} steps; reset it")
        with without_warnings():
            return self.advance(action)

    def begin(self, seed: int) -> Floats:
        """Do as `reset` does, with the warnings and errors of the simulator."""
        observation, info = reset_scene(self._env, seed)
        self.meter = ProgressMeter(self.task, self._env, observation, info)
        self._seed, self._actions = seed, list[NDArray[np.float32]]()
        self._body_pos = self._env.model.body_pos.copy()
        self._states, self._readings = list[tuple[Floats, Floats, Floats]](), list[ProgressReading]()
        self._note(observation, info)
        return observation

    def advance(self, action: Floats) -> Floats:
        """Do as `step` does, with the warnings and errors of the simulator."""
        self._actions.append(np.clip(action, -1, 1).astype(np.float32))
        observation, _, _, _, info = self._env.step(self._actions[-1])
        self._note(observation, info)
        return np.asarray(observation)

    def _note(self, observation: Floats, info: dict[str, Any]) -> None:
        """Keep the positions of all joints, of the gripper and of what must come to the goal, and the progress."""
        self._states.append(
            (self._env.data.qpos.copy(), self._env.tcp_center.copy(), self.meter.object_pos(observation))
        )
        self._readings.append(self.meter.read(observation, info))

    @property
    def reading(self) -> ProgressReading:
        """Return the true progress and success of the state it is in."""
        return self._readings[-1]

    def trajectory(self) -> Trajectory:
        """Return the rollout so far."""
        qpos, gripper_pos, object_pos = (np.stack(part) for part in zip(*self._states, strict=True))
        actions = np.stack(self._actions)
        readings, goal = tuple(self._readings), self.meter.goal
        return Trajectory(self.task, self._seed, actions, qpos, self._body_pos, gripper_pos, object_pos, readings, goal)
