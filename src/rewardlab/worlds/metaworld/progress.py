"""True progress: how much of the change that a task asks for is there in a state, from 0 to 1.

Progress looks at the state alone: at the distance between the thing that must move and where it must be, relative to
the start of the rollout, and at the simulator's own success. Time, effort and the shaped reward play no part.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import LEVEL_STARTS, level_of_progress

Floats = NDArray[np.float64]
Info = dict[str, Any]
Gauge = Callable[[Any, Floats, Info], float]  # (simulator, observation, its info) -> a distance that must shrink

_NEAR = 0.04  # metres between the fingers and a thing at which the hand has arrived
_ALMOST = 0.99  # the most a state can have that the simulator does not call a success
_TOOL_SHARE = 0.3  # share of the change that bringing the tool to its place makes


@dataclass(frozen=True)
class Yardstick:
    """How one task is measured: the distance that must shrink, and at which value the simulator is content."""

    family: str
    enough: float
    distance: Gauge
    tool: Gauge | None = None


@dataclass(frozen=True)
class Measure:
    """What a state is worth: progress in [0, 1], the simulator's own verdict, and the distance that is left."""

    progress: float
    success: bool
    left: float

    @property
    def level(self) -> int:
        """Return the rubric level of this state, were it the last."""
        return level_of_progress(self.progress)


# The share of the asked change at which levels 2, 3 and 4 begin; level 5 begins at the simulator's success.
# Below the first number nothing goal-relevant has changed: the hand may have come near, the thing has not moved.
FAMILIES = {
    "reach": (0.25, 0.5, 0.8),  # the hand itself must be somewhere; being a bit nearer by accident is no progress
    "carry": (0.1, 0.4, 0.75),  # a free thing is lifted and brought somewhere
    "slide": (0.1, 0.4, 0.75),  # a free thing is pushed over the table
    "swing": (0.1, 0.4, 0.8),  # a door, drawer, window, lever or tap moves on its joint
    "press": (0.15, 0.45, 0.8),  # a button or handle travels a few centimetres
    "tool": (0.1, 0.4, 0.75),  # a tool is fetched, then moves another thing
}


class Meter:
    """Measures the states of one rollout against how it began."""

    def __init__(self, task: str, env: Any, observation: Floats, info: Info) -> None:
        self.yardstick = YARDSTICKS[task]
        self.goal: Floats = np.array(env._target_pos, dtype=np.float64)
        self._env = env
        self._start = self.yardstick.distance(env, observation, info)
        self._hand_start = _hand_to_thing(env, observation)
        self._tool_start = self.yardstick.tool(env, observation, info) if self.yardstick.tool else 0.0

    def thing(self, observation: Floats) -> Floats:
        """Return where the thing is that must come to the goal: the hand, what a tool moves, or the object."""
        if self.yardstick.family == "reach":
            return np.array(self._env.tcp_center)
        return observation[11:14].copy() if self.yardstick.tool else observation[4:7].copy()

    def read(self, observation: Floats, info: Info) -> Measure:
        """Return the measure of the state that the simulator is in."""
        left = self.yardstick.distance(self._env, observation, info)
        success = bool(info["success"])
        if success:
            return Measure(1.0, True, left)
        change = shrunk(self._start, left, self.yardstick.enough)
        if self.yardstick.tool:
            ready = shrunk(self._tool_start, self.yardstick.tool(self._env, observation, info), _NEAR)
            change = _TOOL_SHARE * max(ready, change) + (1 - _TOOL_SHARE) * change
        near = 0.0
        if self.yardstick.family != "reach":
            near = shrunk(self._hand_start, _hand_to_thing(self._env, observation), _NEAR)
        return Measure(progress_of(self.yardstick.family, change, near), False, left)


def shrunk(start: float, now: float, enough: float) -> float:
    """Return how much of the way from `start` down to `enough` a distance has gone, in [0, 1]."""
    return float(np.clip((start - now) / max(start - enough, 1e-6), 0, 1))


def progress_of(family: str, change: float, near: float) -> float:
    """Return progress for the share of the asked change that is there; a hand come near stays below level 2."""
    starts = (0.0, *FAMILIES[family], 1.0)
    scale = (0.0, *LEVEL_STARTS)
    progress = float(np.interp(change, starts, scale))
    hand = 0.9 * scale[1] * near
    return min(_ALMOST, max(progress, hand + progress * (1 - hand / scale[1])))


def _hand_to_thing(env: Any, observation: Floats) -> float:
    return float(np.linalg.norm(env.tcp_center - observation[4:7]))


def _told(env: Any, observation: Floats, info: Info) -> float:
    return float(info["obj_to_target"])


def _nut_to_peg(env: Any, observation: Floats, info: Info) -> float:
    off = env.data.site("RoundNut").xpos - env._target_pos
    return float(np.hypot(off[0], off[1]) + max(0.0, off[2]))


def _nut_below_top(env: Any, observation: Floats, info: Info) -> float:
    return max(0.0, float(env._target_pos[2] - observation[6]))


def _thing_to_goal(env: Any, observation: Floats, info: Info) -> float:
    return float(np.linalg.norm(observation[4:7] - env._target_pos))


def _along(axis: int, sign: int) -> Gauge:
    """Return what is left to go along one axis; past the goal nothing is left, though the simulator may mind."""

    def left(env: Any, observation: Floats, info: Info) -> float:
        return max(0.0, float(sign * (env._target_pos[axis] - observation[4 + axis])))

    return left


def _nail_out(env: Any, observation: Floats, info: Info) -> float:
    return max(0.0, 0.09 - float(env.data.joint("NailSlideJoint").qpos.item()))


def _hammer_to_nail(env: Any, observation: Floats, info: Info) -> float:
    head = observation[4:7] + np.array([0.16, 0.06, 0.0])
    return float(np.linalg.norm(head - env.data.site("nailHead").xpos))


def _lever_from_upright(env: Any, observation: Floats, info: Info) -> float:
    return float(abs(np.pi / 2 + env.data.joint("LeverAxis").qpos.item()))


def _thermos_to_goal(env: Any, observation: Floats, info: Info) -> float:
    return float(np.linalg.norm(observation[11:14] - env._target_pos))


def _stick_to_thermos(env: Any, observation: Floats, info: Info) -> float:
    return float(np.linalg.norm(env.data.site("stick_end").xpos - observation[11:14]))


def _told_all(family: str, **enough: float) -> dict[str, Yardstick]:
    return {name.replace("_", "-"): Yardstick(family, value, _told) for name, value in enough.items()}


_X, _Y, _Z = 0, 1, 2

# fmt: off
YARDSTICKS: dict[str, Yardstick] = dict(sorted({
    **_told_all("reach", reach=0.05, reach_wall=0.05),
    **_told_all("carry", basketball=0.08, bin_picking=0.05, hand_insert=0.05, peg_insert_side=0.07,
                peg_unplug_side=0.07, pick_out_of_hole=0.07, pick_place=0.07, pick_place_wall=0.07, shelf_place=0.07),
    **_told_all("slide", coffee_pull=0.07, coffee_push=0.07, plate_slide=0.07, plate_slide_back=0.07,
                plate_slide_back_side=0.07, plate_slide_side=0.07, push=0.05, push_back=0.07, push_wall=0.07,
                soccer=0.07, sweep=0.05, sweep_into=0.05),
    **_told_all("swing", dial_turn=0.07, door_close=0.08, drawer_close=0.065, drawer_open=0.03, faucet_close=0.07,
                faucet_open=0.07),
    **_told_all("press", handle_pull_side=0.08),
    "assembly": Yardstick("carry", 0.02, _nut_to_peg),
    "box-close": Yardstick("carry", 0.08, _thing_to_goal),
    "button-press": Yardstick("press", 0.02, _along(_Y, 1)),
    "button-press-topdown": Yardstick("press", 0.024, _along(_Z, -1)),
    "button-press-topdown-wall": Yardstick("press", 0.024, _along(_Z, -1)),
    "button-press-wall": Yardstick("press", 0.03, _along(_Y, 1)),
    "coffee-button": Yardstick("press", 0.02, _along(_Y, 1)),
    "disassemble": Yardstick("carry", 0.0, _nut_below_top),
    "door-lock": Yardstick("swing", 0.02, _along(_Z, -1)),
    "door-open": Yardstick("swing", 0.08, _along(_X, -1)),
    "door-unlock": Yardstick("swing", 0.02, _along(_X, 1)),
    "hammer": Yardstick("tool", 0.0, _nail_out, tool=_hammer_to_nail),
    "handle-press": Yardstick("press", 0.02, _along(_Z, -1)),
    "handle-press-side": Yardstick("press", 0.02, _along(_Z, -1)),
    "handle-pull": Yardstick("press", 0.05, _along(_Z, 1)),
    "lever-pull": Yardstick("swing", np.pi / 24, _lever_from_upright),
    "stick-pull": Yardstick("tool", 0.12, _thermos_to_goal, tool=_stick_to_thermos),
    "stick-push": Yardstick("tool", 0.12, _thermos_to_goal, tool=_stick_to_thermos),
    "window-close": Yardstick("swing", 0.05, _along(_X, -1)),
    "window-open": Yardstick("swing", 0.05, _along(_X, 1)),
}.items()))
# fmt: on
