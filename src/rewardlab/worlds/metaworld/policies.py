"""Policies of graded quality: from a scripted expert through typical failures to random motion."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator

from rewardlab.core.catalog import find
from rewardlab.core.episode import FailureEvent
from rewardlab.core.seeding import rng_for
from rewardlab.worlds.metaworld.physics import Floats, Policy, StepState, Trajectory, scripted_expert
from rewardlab.worlds.metaworld.task_progress import PROGRESS_SPECS
from rewardlab.worlds.metaworld.tasks import CHAINS, OPPOSITE_TASKS

Act = Callable[[Floats], Floats]

_LIFTED = 0.03  # metres above where it stood; what the gripper lets go there falls
_STILL = np.zeros(3)
_HELD, _RETREAT = 8, 25  # steps between two tasks of a chain: holding still, then letting go and drawing back
# Experts that do not look at the goal; another goal for them is an object that is not where they take it to be.
# fmt: off
_GOAL_BLIND = frozenset((
    "bin-picking", "button-press", "button-press-topdown", "button-press-topdown-wall", "button-press-wall",
    "coffee-button", "dial-turn", "door-lock", "door-open", "door-unlock", "drawer-close", "drawer-open",
    "faucet-close", "faucet-open", "handle-press", "handle-press-side", "handle-pull", "handle-pull-side",
    "lever-pull", "peg-unplug-side", "plate-slide-back", "plate-slide-back-side", "plate-slide-side",
    "window-close", "window-open",
))
# fmt: on
# Whose expert does something else with the same objects; a task that is not named gets the expert of `reach`.
SIBLING_TASKS = {
    **OPPOSITE_TASKS,
    **{"button-press": "button-press-topdown", "button-press-topdown": "button-press"},
    **{"coffee-button": "coffee-pull", "coffee-pull": "coffee-button", "coffee-push": "coffee-button"},
    **{
        "hand-insert": "sweep-into",
        "sweep-into": "hand-insert",
        "stick-pull": "stick-push",
        "stick-push": "stick-pull",
    },
    **{"pick-place": "push", "push": "push-back", "push-back": "push"},
    **{"pick-place-wall": "push-wall", "push-wall": "reach-wall"},
}


def make_policy(
    quality: str, task: str, seed: int, limit: float | None = None, left: list[int] | None = None
) -> Policy:
    """Return a policy of this quality; its randomness comes from the seed and the names.

    `limit` is the progress at which one that stops or lets go does so; it is drawn where it is not given. In a chain,
    one task that is drawn is done in this quality and the others by the expert. The steps from which on one that stops
    or lets go has left its task are added to `left`, but not those of a chain.
    """
    if task in CHAINS:
        return _one_after_the_other(quality, task, seed, limit)
    rng = rng_for(seed, "ladder", task, quality)
    pace = float(rng.uniform(0.8, 1.0))
    drawn = float(rng.uniform(0.02, 0.95))
    return find(POLICIES, quality, "quality")(
        ExpertScript(task, rng, pace, drawn if limit is None else limit, [] if left is None else left)
    )


def _one_after_the_other(quality: str, chain: str, seed: int, limit: float | None) -> Policy:
    """Do one task in this quality and the others by the expert; one that stops does so on the first, or before one."""
    tasks, rng = chain.split("+"), rng_for(seed, "ladder", chain, quality)
    drawn, turn, held = int(rng.integers(len(tasks))), 0, 0
    limit = 0.0 if drawn and quality == "stops_early" else limit
    policies = [
        make_policy(quality if place == drawn else "expert", task, seed, limit) for place, task in enumerate(tasks)
    ]

    def control(state: StepState) -> Floats:
        nonlocal turn, held
        held += state.stages[turn].success
        if held > _HELD + _RETREAT and turn + 1 < len(tasks):
            turn, held = turn + 1, 0
        if held > _HELD and turn + 1 < len(tasks):
            return np.array([0.0, -0.2, 0.6, -1.0])
        return policies[turn](state.stages[turn])

    return control


def noisy_expert(task: str, seed: int, sigma: float) -> Policy:
    """Return the expert at full pace with Gaussian noise of this size on the motion of the gripper."""
    return _noise(ExpertScript(task, rng_for(seed, "noise", task), 1.0, 1.0), sigma)


@dataclass
class ExpertScript:
    """What a policy is built from; its expert settles down when the task is done."""

    task: str
    rng: Generator
    pace: float
    limit: float
    left: list[int] = field(default_factory=list)  # steps at which the task was no longer gone on with
    _done: int = 0
    _lost: int = 0
    _brake: int = 0
    _recent: list[Floats] = field(default_factory=list)

    def __post_init__(self) -> None:
        # What is pressed goes on moving for longer than success lasts, so a press must be stopped at once.
        self._patience, self._braking = (0, 6) if PROGRESS_SPECS[self.task].family == "press" else (3, 4)

    def expert(self, act: Act | None = None) -> Policy:
        """Return the expert at this script's pace; it stops and holds still once success has lasted a moment."""
        act = act or scripted_expert(self.task)

        def control(state: StepState) -> Floats:
            self._track_success(state)
            if self._done > self._patience:
                return self.settle()
            action = act(state.observation)
            action[:3] *= self.pace
            self._recent.append(action)
            return action

        return control

    def _track_success(self, state: StepState) -> None:
        """Count how long success lasts; where it is lost again, go on and settle later the next time."""
        if state.success:
            self._done, self._lost = self._done + 1, 0
            if self._done == self._patience + 1:
                self._brake = self._braking
            return
        self._lost += 1
        if self._done <= self._patience:
            self._done = 0
        elif self._lost > 12 and state.progress < 0.9:
            self._done, self._patience = 0, 4 * self._patience + 4

    def stop(self) -> None:
        """Forget the task: from now on only `settle`."""
        self._brake = 6

    def settle(self) -> Floats:
        """Brake the gripper, which lags behind its commands, then hold still."""
        if not self._recent:
            return np.zeros(4)
        self._brake -= 1
        drift = -np.mean(self._recent[-3:], axis=0)[:3] if self._brake >= 0 else _STILL
        return np.append(drift, self._recent[-1][3])


def _noise(script: ExpertScript, sigma: float) -> Policy:
    expert = script.expert()

    def control(state: StepState) -> Floats:
        action = expert(state)
        action[:3] += script.pace * sigma * script.rng.normal(size=3)
        return action

    return control


def _stops_early(script: ExpertScript) -> Policy:
    """Do the task up to some point, then stand still for good."""
    expert, stopped = script.expert(), script.left

    def control(state: StepState) -> Floats:
        if not stopped and state.progress < script.limit:
            return expert(state)
        if not stopped:
            script.stop()
        stopped.append(state.step)
        return script.settle()

    return control


def _drops(script: ExpertScript) -> Policy:
    """Do the task up to some point, then let go and draw back."""
    expert = script.expert()
    away = np.append(script.rng.uniform((-0.3, -0.6, 0.5), (0.3, 0.0, 1.0)), -1.0)
    left = script.left

    def control(state: StepState) -> Floats:
        if not left and state.progress < script.limit:
            return expert(state)
        left.append(state.step)
        return away if len(left) <= 30 else np.append(_STILL, -1.0)

    return control


def _overshoots(script: ExpertScript) -> Policy:
    """Do the task, but do not stop where it is done: go on in the same direction."""
    act, steps = scripted_expert(script.task), int(script.rng.integers(12, 50))
    recent: list[Floats] = []
    past: list[int] = []

    def control(state: StepState) -> Floats:
        if not past and state.progress < 0.9:
            action = act(state.observation)
            action[:3] *= script.pace
            recent.append(action)
            return action
        past.append(state.step)
        onward = np.mean(recent[-6:], axis=0) if recent else np.zeros(4)
        return onward if len(past) <= steps else np.append(_STILL, onward[3])

    return control


def _hesitates(script: ExpertScript) -> Policy:
    """Do the task with long pauses, which may leave too little time."""
    expert = script.expert()
    pauses = script.rng.integers(10, 60, 40)
    until = np.cumsum(pauses)
    last = [0.0]

    def control(state: StepState) -> Floats:
        if int(np.searchsorted(until, state.step, side="right")) % 2:
            return np.append(_STILL, last[0])
        action = expert(state)
        last[0] = float(action[3])
        return action

    return control


def _retries(script: ExpertScript) -> Policy:
    """Do the task up to some point, let go, back off, and begin again, once or twice."""
    expert = script.expert()
    limits = sorted(script.rng.uniform(0.05, 0.8, int(script.rng.integers(1, 3))))
    backing = [0]

    def control(state: StepState) -> Floats:
        if limits and state.progress >= limits[0]:
            limits.pop(0)
            backing[0] = 35
        if backing[0] > 0:
            backing[0] -= 1
            return np.array([0.0, -0.3, 0.8, -1.0])
        return expert(state)

    return control


def _other_goal(script: ExpertScript) -> Policy:
    """Do the task as if its goal, or the object itself, were somewhere else."""
    act = scripted_expert(script.task)
    angle, far = script.rng.uniform(0, 2 * np.pi), script.rng.uniform(0.08, 0.22)
    shift = far * np.array([np.cos(angle), np.sin(angle), 0.0])
    place = slice(4, 7) if script.task in _GOAL_BLIND else slice(36, 39)

    def misled(observation: Floats) -> Floats:
        observation = observation.copy()
        observation[place] += shift
        return act(observation)

    return script.expert(misled)


def _random(script: ExpertScript) -> Policy:
    """Move at random, smoothly, and open and close the gripper now and then."""
    drift = [np.zeros(4)]

    def control(_state: StepState) -> Floats:
        drift[0] = 0.9 * drift[0] + 0.44 * script.rng.normal(size=4)
        return np.asarray(drift[0] * (script.pace, script.pace, script.pace, 1.0))

    return control


def failure_of(trajectory: Trajectory, quality: str, left: list[int]) -> FailureEvent | None:
    """Return why a rollout failed, where that is known exactly of how it was made; `other` where it is not.

    One that stopped or let go ended early; it dropped what it had lifted. What went wrong when an expert was disturbed
    or misled nobody notes.
    """
    if trajectory.readings[-1].success:
        return None
    if trajectory.stages or quality not in ("stops_early", "drops") or not left:
        return FailureEvent("other")
    carried = PROGRESS_SPECS[trajectory.task].family == "carry"
    lifted = carried and trajectory.object_pos[left[0], 2] - trajectory.object_pos[0, 2] > _LIFTED
    return FailureEvent("dropped" if quality == "drops" and lifted else "early_end", left[0])


POLICIES: dict[str, Callable[[ExpertScript], Policy]] = {
    "expert": ExpertScript.expert,
    "noise_low": lambda script: _noise(script, 0.5),
    "noise_mid": lambda script: _noise(script, 1.2),
    "noise_high": lambda script: _noise(script, 2.5),
    "stops_early": _stops_early,
    "drops": _drops,
    "overshoots": _overshoots,
    "hesitates": _hesitates,
    "retries": _retries,
    "other_goal": _other_goal,
    "other_task": lambda script: script.expert(scripted_expert(SIBLING_TASKS.get(script.task, "reach"))),
    "random": _random,
}
