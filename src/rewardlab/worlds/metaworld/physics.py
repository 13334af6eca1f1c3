"""Open, reset, step, replay; a rollout that somebody else drives."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.catalog import find
from rewardlab.core.errors import PlanError, SimulatorError
from rewardlab.worlds.metaworld.task_progress import PROGRESS_SPECS, ProgressMeter, ProgressReading, whole_reading
from rewardlab.worlds.metaworld.tasks import CHAINS, TASK_OBJECTS
from rewardlab.worlds.offscreen import load_triton

Floats = NDArray[np.float64]

STEPS_PER_SECOND = 80
MAX_STEPS = 500  # the simulator refuses to go on after that
TASKS = tuple(PROGRESS_SPECS)


@dataclass(frozen=True)
class StepState:
    """What a policy sees before it acts: the observation and the true progress; in a chain, that of every task."""

    observation: Floats
    progress: float
    success: bool
    step: int
    stages: tuple["StepState", ...] = ()


Policy = Callable[[StepState], Floats]  # action (4,): gripper velocity x, y, z and effort, each in [-1, 1]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """One rollout, step by step; state 0 is the scene before the first action.

    `body_pos` is where this seed put the bodies that do not move; with a row of `qpos` it is all that rendering needs.
    Of a chain, `task` is the first one, whose scene it is, `readings` are those of the whole, and `stages` has the
    trajectory of every task; a task whose object a later one moves on has success from its first success on.
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
    stages: tuple["Trajectory", ...] = ()

    @property
    def name(self) -> str:
        """Return its task, or the tasks of its chain."""
        return "+".join(stage.task for stage in self.stages) or self.task

    @property
    def turns(self) -> tuple[int, ...]:
        """Return the states between which objects go one way: the first, the last, and where a stage is done."""
        done = ([reading.success for reading in stage.readings] for stage in self.stages[:-1])
        return (0, *(found.index(True) for found in done if any(found)), -1)

    @property
    def progress(self) -> Floats:
        """Return the true progress before each action and at the end, in [0, 1]."""
        return np.array([reading.progress for reading in self.readings])


def simulate(task: str, seed: int, steps: int, policy: Policy) -> Trajectory:
    """Reset the scene of a task or a chain, let the policy act for so many steps, and return the trajectory."""
    if not 1 <= steps <= MAX_STEPS:
        raise PlanError(f"a rollout takes 1 to {MAX_STEPS} steps, got {steps}")
    with without_warnings():
        rollout = SteppedRollout(task, open_task)
        rollout.begin(seed)
        for _ in range(steps):
            rollout.advance(policy(rollout.state()))
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


def reset_scene(env: Any, seed: int, places: Floats | None = None) -> tuple[Floats, dict[str, Any]]:
    """Reset to the scene of a seed, whatever happened in this simulator before, or to one with these places."""
    mujoco = load_module("mujoco")
    env.seed(seed)
    mujoco.mj_resetData(env.model, env.data)
    env._freeze_rand_vec = places is not None
    if places is not None:
        env._last_rand_vec = places
    env.reset()
    mujoco.mj_forward(env.model, env.data)  # some tasks move a joint at reset and leave the positions stale
    observation = np.asarray(env._get_obs())
    observation[18:36] = observation[:18]
    _, info = env.evaluate_state(observation, np.zeros(4, np.float32))
    return observation, info


def _measured_in(env: Any, moving: Any) -> tuple[Floats, dict[str, Any]]:
    """Return what a simulator of the same scene observes in the state of the one that moves."""
    mujoco = load_module("mujoco")
    state = np.empty(mujoco.mj_stateSize(env.model, mujoco.mjtState.mjSTATE_INTEGRATION))
    mujoco.mj_getState(moving.model, moving.data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_setState(env.model, env.data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_forward(env.model, env.data)
    observation = np.asarray(env._get_obs())
    _, info = env.evaluate_state(observation, np.zeros(4, np.float32))
    return observation, info


def load_module(name: str) -> Any:
    """Import a part of the simulator, or say which extra to install."""
    load_triton()
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


@dataclass(eq=False)
class _Stage:
    """One task of a rollout and the simulator that measures it, from the state on in which those before it were done.

    Where a later task moves the same object on, its success counts for good: undoing it is no mistake.
    """

    task: str
    env: Any
    meter: ProgressMeter
    moved_on: bool
    observation: Floats
    begun: bool = False
    done: bool = False  # now or before
    object_pos: list[Floats] = field(default_factory=list)
    readings: list[ProgressReading] = field(default_factory=list)

    def note(self, observation: Floats, info: dict[str, Any]) -> None:
        """Keep where that is which must come to the goal, and the progress since the stage began."""
        self.observation = observation
        self.object_pos.append(self.meter.object_pos(observation))
        reading = self.meter.read(observation, info) if self.begun else ProgressReading(0.0, False, float("nan"))
        if self.moved_on and self.done:
            reading = replace(reading, progress=1.0, success=True)
        self.done |= reading.success
        self.readings.append(reading)


class SteppedRollout:
    """One simulator of a task: reset it by seed, step it, and take the trajectory so far, as `simulate` returns it.

    A chain moves in the simulator of its first task; those of the others measure a copy of its state.
    """

    def __init__(self, task: str, opened: Callable[[str], Any] | None = None) -> None:
        self._places = CHAINS.get(task, ())
        self._tasks = tuple(task.split("+")) if self._places else (task,)
        self.task = self._tasks[0]
        self._envs: list[Any] = [(opened or new_simulator)(name) for name in self._tasks]
        self._env = self._envs[0]

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
        self._seed, self._actions = seed, list[NDArray[np.float32]]()
        self._states, self._readings = list[tuple[Floats, Floats]](), list[ProgressReading]()
        self._stages, moved = list[_Stage](), [TASK_OBJECTS[task] for task in self._tasks]
        for place, (task, env) in enumerate(zip(self._tasks, self._envs, strict=True)):
            drawn = self._places[place - 1](self._env._last_rand_vec) if place else None
            observation, info = reset_scene(env, seed, drawn)
            meter = ProgressMeter(task, env, observation, info)
            self._stages.append(_Stage(task, env, meter, moved[place] in moved[place + 1 :], observation, not place))
            if not place:
                first = observation, info
        self._body_pos = self._env.model.body_pos.copy()
        self._note(*first)
        return first[0]

    def advance(self, action: Floats) -> Floats:
        """Do as `step` does, with the warnings and errors of the simulator."""
        self._actions.append(np.clip(action, -1, 1).astype(np.float32))
        observation, _, _, _, info = self._env.step(self._actions[-1])
        self._note(np.asarray(observation), info)
        return np.asarray(observation)

    def _note(self, observation: Floats, info: dict[str, Any]) -> None:
        """Keep the positions of all joints and of the gripper, and the progress of every stage and of the whole."""
        self._states.append((self._env.data.qpos.copy(), self._env.tcp_center.copy()))
        self._stages[0].note(observation, info)
        for before, stage in pairwise(self._stages):
            observation, info = _measured_in(stage.env, self._env)
            if before.done and not stage.begun:
                stage.begun, stage.meter = True, ProgressMeter(stage.task, stage.env, observation, info)
            stage.note(observation, info)
        self._readings.append(whole_reading([stage.readings[-1] for stage in self._stages]))

    @property
    def reading(self) -> ProgressReading:
        """Return the true progress and success of the state it is in."""
        return self._readings[-1]

    def state(self) -> StepState:
        """Return what a policy sees before the next action."""
        step = len(self._actions)
        now = [(stage.observation.copy(), stage.readings[-1]) for stage in self._stages]
        stages = tuple(StepState(seen, reading.progress, reading.success, step) for seen, reading in now)
        if len(stages) == 1:
            return stages[0]
        return replace(stages[0], progress=self.reading.progress, success=self.reading.success, stages=stages)

    def trajectory(self) -> Trajectory:
        """Return the rollout so far."""
        qpos, gripper_pos = (np.stack(part) for part in zip(*self._states, strict=True))
        actions = np.stack(self._actions)
        stages = [
            Trajectory(stage.task, self._seed, actions, qpos, self._body_pos, gripper_pos,
                       np.stack(stage.object_pos), tuple(stage.readings), stage.meter.goal)
            for stage in self._stages
        ]  # fmt: skip
        if len(stages) == 1:
            return stages[0]
        return replace(stages[0], readings=tuple(self._readings), stages=tuple(stages))
