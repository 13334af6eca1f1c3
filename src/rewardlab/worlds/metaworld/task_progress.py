"""True progress: which fraction of the change that a task asks for is there in a state, from 0 to 1.

Progress looks at the state alone: at the distance between the object that must move and its goal, relative to
the start of the rollout, and at the simulator's own success. Time, effort and the shaped reward play no part.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import LEVEL_STARTS, level_of_progress

Floats = NDArray[np.float64]
Info = dict[str, Any]
DistanceFunction = Callable[[Any, Floats], float]  # (simulator, observation) -> a distance that must shrink

_CONTACT_DISTANCE = 0.04  # metres between the fingers and an object at which the gripper has arrived
_MAX_WITHOUT_SUCCESS = 0.99  # the most a state can have that the simulator does not call a success
_TOOL_SHARE = 0.3  # share of the change that bringing the tool to its place makes


@dataclass(frozen=True)
class ProgressSpec:
    """How one task is measured: the distance that must shrink, and the value at which the simulator reports success."""

    family: str
    success_distance: float
    distance: DistanceFunction | None = None  # None for the distance that the simulator itself reports
    tool: DistanceFunction | None = None


@dataclass(frozen=True)
class ProgressReading:
    """The progress of one state in [0, 1], the simulator's own success, and the remaining distance.

    `reward` is Meta-World's own dense reward, of at most 10; nan where it is not known, as for a chain of tasks.
    """

    progress: float
    success: bool
    distance: float
    reward: float = float("nan")

    @property
    def level(self) -> int:
        """Return the rubric level of this state, were it the last."""
        return level_of_progress(self.progress)


# The share of the asked change at which levels 2, 3 and 4 begin; level 5 begins at the simulator's success.
# Below the first number nothing goal-relevant has changed: the gripper may have come near, the object has not moved.
LEVEL_STARTS_BY_FAMILY = {
    "reach": (0.25, 0.5, 0.8),  # the gripper itself must be somewhere; being a bit nearer by accident is no progress
    "carry": (0.1, 0.4, 0.75),  # a free object is lifted and brought somewhere
    "slide": (0.1, 0.4, 0.75),  # a free object is pushed over the table
    "swing": (0.1, 0.4, 0.8),  # a door, drawer, window, lever or tap moves on its joint
    "press": (0.15, 0.45, 0.8),  # a button or handle travels a few centimetres
    "tool": (0.1, 0.4, 0.75),  # a tool is fetched, then moves another object
}


class ProgressMeter:
    """Measures the states of one rollout against how it began."""

    def __init__(self, task: str, env: Any, observation: Floats, info: Info) -> None:
        self.spec = PROGRESS_SPECS[task]
        self.goal: Floats = np.array(env._target_pos, dtype=np.float64)
        self._env = env
        self._start = self._distance(observation, info)
        self._approach_start = _gripper_to_object(env, observation)
        self._tool_start = self.spec.tool(env, observation) if self.spec.tool else 0.0

    def object_pos(self, observation: Floats) -> Floats:
        """Return where that is which must come to the goal: the gripper, what a tool moves, or the object."""
        if self.spec.family == "reach":
            return np.array(self._env.tcp_center)
        return observation[11:14].copy() if self.spec.tool else observation[4:7].copy()

    def read(self, observation: Floats, info: Info) -> ProgressReading:
        """Return the progress of the state that the simulator is in."""
        distance = self._distance(observation, info)
        success, reward = bool(info["success"]), float(info["unscaled_reward"])
        if success:
            return ProgressReading(1.0, True, distance, reward)
        change = fraction_covered(self._start, distance, self.spec.success_distance)
        if self.spec.tool:
            ready = fraction_covered(self._tool_start, self.spec.tool(self._env, observation), _CONTACT_DISTANCE)
            change = _TOOL_SHARE * max(ready, change) + (1 - _TOOL_SHARE) * change
        near = 0.0
        if self.spec.family != "reach" and self._approach_start > _CONTACT_DISTANCE:
            near = fraction_covered(self._approach_start, _gripper_to_object(self._env, observation), _CONTACT_DISTANCE)
        return ProgressReading(progress_of(self.spec.family, change, near), False, distance, reward)

    def _distance(self, observation: Floats, info: Info) -> float:
        return self.spec.distance(self._env, observation) if self.spec.distance else float(info["obj_to_target"])


def whole_reading(parts: Sequence[ProgressReading]) -> ProgressReading:
    """Return the reading of a chain from those of its tasks: the mean progress, and success where all succeed."""
    if len(parts) == 1:
        return parts[0]
    success = all(part.success for part in parts)
    mean = min(_MAX_WITHOUT_SUCCESS, float(np.mean([part.progress for part in parts])))
    return ProgressReading(1.0 if success else mean, success, float(np.sum([part.distance for part in parts])))


def fraction_covered(start: float, current: float, success_distance: float) -> float:
    """Return which fraction of the way from `start` down to `success_distance` a distance has gone, in [0, 1]."""
    return float(np.clip((start - current) / max(start - success_distance, 1e-6), 0, 1))


def progress_of(family: str, change: float, near: float) -> float:
    """Return progress for the fraction of the change that is there; a gripper come near stays below level 2."""
    starts = (0.0, *LEVEL_STARTS_BY_FAMILY[family], 1.0)
    scale = (0.0, *LEVEL_STARTS)
    progress = float(np.interp(change, starts, scale))
    approach = 0.9 * scale[1] * near
    return min(_MAX_WITHOUT_SUCCESS, max(progress, approach + progress * (1 - approach / scale[1])))


def _gripper_to_object(env: Any, observation: Floats) -> float:
    return float(np.linalg.norm(env.tcp_center - observation[4:7]))


def _nut_to_peg(env: Any, _observation: Floats) -> float:
    off = env.data.site("RoundNut").xpos - env._target_pos
    return float(np.hypot(off[0], off[1]) + max(0.0, off[2]))


def _along(axis: int, sign: int) -> DistanceFunction:
    """Return the remaining distance along one axis; past the goal it is 0, though the simulator may mind."""
    return lambda env, observation: max(0.0, float(sign * (env._target_pos[axis] - observation[4 + axis])))


def _to_goal(place: slice) -> DistanceFunction:
    """Return the distance of the object whose position is at this place of the observation."""
    return lambda env, observation: float(np.linalg.norm(observation[place] - env._target_pos))


def _nail_out(env: Any, _observation: Floats) -> float:
    return max(0.0, 0.09 - float(env.data.joint("NailSlideJoint").qpos.item()))


def _lever_from_upright(env: Any, _observation: Floats) -> float:
    return float(abs(np.pi / 2 + env.data.joint("LeverAxis").qpos.item()))


def _hammer_to_nail(env: Any, observation: Floats) -> float:
    head = observation[4:7] + np.array([0.16, 0.06, 0.0])
    return float(np.linalg.norm(head - env.data.site("nailHead").xpos))


def _stick_to_thermos(env: Any, observation: Floats) -> float:
    return float(np.linalg.norm(env.data.site("stick_end").xpos - observation[11:14]))


def _reported(family: str, **success_distance: float) -> dict[str, ProgressSpec]:
    return {name.replace("_", "-"): ProgressSpec(family, value) for name, value in success_distance.items()}


_X, _Y, _Z = 0, 1, 2

# fmt: off
PROGRESS_SPECS: dict[str, ProgressSpec] = dict(sorted({
    **_reported("reach", reach=0.05, reach_wall=0.05),
    **_reported("carry", basketball=0.08, bin_picking=0.05, hand_insert=0.05, peg_insert_side=0.07,
                peg_unplug_side=0.07, pick_out_of_hole=0.07, pick_place=0.07, pick_place_wall=0.07, shelf_place=0.07),
    **_reported("slide", coffee_pull=0.07, coffee_push=0.07, plate_slide=0.07, plate_slide_back=0.07,
                plate_slide_back_side=0.07, plate_slide_side=0.07, push=0.05, push_back=0.07, push_wall=0.07,
                soccer=0.07, sweep=0.05, sweep_into=0.05),
    **_reported("swing", dial_turn=0.07, door_close=0.08, drawer_close=0.065, drawer_open=0.03, faucet_close=0.07,
                faucet_open=0.07),
    **_reported("press", handle_pull_side=0.08),
    "assembly": ProgressSpec("carry", 0.02, _nut_to_peg),
    "box-close": ProgressSpec("carry", 0.08, _to_goal(slice(4, 7))),
    "button-press": ProgressSpec("press", 0.02, _along(_Y, 1)),
    "button-press-topdown": ProgressSpec("press", 0.024, _along(_Z, -1)),
    "button-press-topdown-wall": ProgressSpec("press", 0.024, _along(_Z, -1)),
    "button-press-wall": ProgressSpec("press", 0.03, _along(_Y, 1)),
    "coffee-button": ProgressSpec("press", 0.02, _along(_Y, 1)),
    "disassemble": ProgressSpec("carry", 0.0, _along(_Z, 1)),
    "door-lock": ProgressSpec("swing", 0.02, _along(_Z, -1)),
    "door-open": ProgressSpec("swing", 0.08, _along(_X, -1)),
    "door-unlock": ProgressSpec("swing", 0.02, _along(_X, 1)),
    "hammer": ProgressSpec("tool", 0.0, _nail_out, tool=_hammer_to_nail),
    "handle-press": ProgressSpec("press", 0.02, _along(_Z, -1)),
    "handle-press-side": ProgressSpec("press", 0.02, _along(_Z, -1)),
    "handle-pull": ProgressSpec("press", 0.05, _along(_Z, 1)),
    "lever-pull": ProgressSpec("swing", np.pi / 24, _lever_from_upright),
    "stick-pull": ProgressSpec("tool", 0.12, _to_goal(slice(11, 14)), tool=_stick_to_thermos),
    "stick-push": ProgressSpec("tool", 0.12, _to_goal(slice(11, 14)), tool=_stick_to_thermos),
    "window-close": ProgressSpec("swing", 0.05, _along(_X, -1)),
    "window-open": ProgressSpec("swing", 0.05, _along(_X, 1)),
}.items()))
# fmt: on
