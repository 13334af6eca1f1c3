"""Physics: open a task, lay out its scene by seed, take actions, and keep the state of every step."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.catalog import find
from rewardlab.core.errors import PlanError
from rewardlab.worlds.metaworld.progress import YARDSTICKS, Measure, Meter

Floats = NDArray[np.float64]
Action = NDArray[np.float32]  # (4,): hand velocity x, y, z and gripper effort, each in [-1, 1]

STEPS_PER_SECOND = 80
MOST_STEPS = 500  # the simulator refuses to go on after that
TASKS = tuple(YARDSTICKS)


@dataclass(frozen=True)
class Now:
    """What a controller sees before it acts: the observation and how far the task is done."""

    observation: Floats
    progress: float
    success: bool
    step: int


Controller = Callable[[Now], Floats]


@dataclass(frozen=True, eq=False)
class Trace:
    """One rollout, step by step; state 0 is the scene before the first action.

    `layout` is where this seed put the bodies that do not move; with a row of `qpos` it is all that a picture needs.
    """

    task: str
    seed: int
    actions: NDArray[np.float32]  # (T, 4)
    qpos: Floats  # (T + 1, positions of all joints)
    layout: Floats  # (bodies, 3)
    hand: Floats  # (T + 1, 3)
    thing: Floats  # (T + 1, 3): what must come to the goal
    measures: tuple[Measure, ...]  # T + 1 of them
    goal: Floats  # (3,)

    @property
    def progress(self) -> Floats:
        """Return the true progress before each action and at the end, in [0, 1]."""
        return np.array([measure.progress for measure in self.measures])


def simulate(task: str, seed: int, steps: int, controller: Controller) -> Trace:
    """Lay out the scene, let the controller act for so many steps, and return everything that happened."""
    if not 1 <= steps <= MOST_STEPS:
        raise PlanError(f"a rollout takes 1 to {MOST_STEPS} steps, got {steps}")
    with _quiet():
        env = open_task(task)
        observation, info = _begin(env, seed)
        meter = Meter(task, env, observation, info)
        layout = env.model.body_pos.copy()
        states, measures, actions = [_state(env, meter, observation)], [meter.read(observation, info)], []
        for step in range(steps):
            last = measures[-1]
            wanted = controller(Now(observation.copy(), last.progress, last.success, step))
            actions.append(np.clip(wanted, -1, 1).astype(np.float32))
            observation, _, _, _, info = env.step(actions[-1])
            states.append(_state(env, meter, observation))
            measures.append(meter.read(observation, info))
    qpos, hand, thing = (np.stack(part) for part in zip(*states))
    return Trace(task, seed, np.stack(actions), qpos, layout, hand, thing, tuple(measures), meter.goal)


def repeat(task: str, seed: int, actions: NDArray[np.float32]) -> Trace:
    """Take recorded actions in the same scene again."""
    return simulate(task, seed, len(actions), lambda now: actions[now.step].astype(np.float64))


@lru_cache(maxsize=6)  # a task holds some 30 MB of meshes and textures
def open_task(task: str) -> Any:
    """Return the simulator of a task; it is opened once per process and reset for every rollout."""
    name = f"{find({t: t for t in TASKS}, task, 'Meta-World task')}-v3"
    with _quiet():
        env: Any = load_module("metaworld.env_dict").ALL_V3_ENVIRONMENTS[name]()
        env._freeze_rand_vec, env.seeded_rand_vec, env._set_task_called = False, True, True
        env._partially_observable = False  # the experts need to see the goal
        env.__dict__.pop("sawyer_observation_space", None)  # cached for the hidden goal
    return env


def expert_of(task: str) -> Callable[[Floats], Floats]:
    """Return the scripted expert of a task: observation in, action out; it does not remember anything."""
    policy: Any = load_module("metaworld.policies").ENV_POLICY_MAP[f"{task}-v3"]()

    def act(observation: Floats) -> Floats:
        # Some experts write into the observation they are given.
        return np.asarray(np.clip(policy.get_action(observation.copy()), -1, 1), np.float64)

    return act


def versions() -> dict[str, str]:
    """Return the versions that the physics depends on."""
    return {name: version(name) for name in ("metaworld", "mujoco")}


def _begin(env: Any, seed: int) -> tuple[Floats, dict[str, Any]]:
    """Lay out the scene of a seed, whatever happened in this simulator before."""
    mujoco = load_module("mujoco")
    env.seed(seed)
    mujoco.mj_resetData(env.model, env.data)
    env.reset()
    mujoco.mj_forward(env.model, env.data)  # some tasks move a joint at reset and leave the positions stale
    observation = np.asarray(env._get_obs())
    observation[18:36] = observation[:18]
    _, info = env.evaluate_state(observation, np.zeros(4, np.float32))
    return observation, info


def _state(env: Any, meter: Meter, observation: Floats) -> tuple[Floats, Floats, Floats]:
    return env.data.qpos.copy(), env.tcp_center.copy(), meter.thing(observation)


def load_module(name: str) -> Any:
    """Import a part of the simulator, or say which extra to install."""
    try:
        with _quiet():
            return import_module(name)
    except ImportError as error:
        raise PlanError(f"Meta-World is not installed here ({error}); install rewardlab[sim]") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the warnings of the simulator, which come at almost every step of an expert."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
