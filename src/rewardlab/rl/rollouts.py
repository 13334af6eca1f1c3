"""How a policy drives simulators: chunks of held actions, several side by side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.errors import PlanError
from rewardlab.worlds.metaworld.physics import MAX_STEPS, SteppedRollout, Trajectory

Numbers = NDArray[np.float32]

ACTION_SIZE = 4  # gripper velocity x, y, z and effort


@dataclass(frozen=True)
class Control:
    """An episode is `decisions` chunks of `chunk` actions, each held for `hold` steps of the simulator (80 a second).

    Every episode has the same length, so that its length says nothing about success.
    """

    hold: int = 5
    chunk: int = 4
    decisions: int = 6

    def __post_init__(self) -> None:
        if min(self.hold, self.chunk, self.decisions) < 1 or self.steps > MAX_STEPS:
            raise PlanError(
                f"hold, chunk and decisions must be at least 1 and their product at most {MAX_STEPS} steps, "
                f"got {self.hold} x {self.chunk} x {self.decisions}"
            )

    @property
    def steps(self) -> int:
        """Return the simulator steps of an episode."""
        return self.hold * self.chunk * self.decisions

    @property
    def chunk_size(self) -> int:
        """Return how many numbers one decision has."""
        return self.chunk * ACTION_SIZE


@dataclass(frozen=True)
class Decision:
    """The decision in every simulator: the choice that is learned from, and the chunk of actions made of it."""

    choices: Numbers  # (simulators, choice)
    chunks: Numbers  # (simulators, chunk * 4), in [-1, 1]


Decide = Callable[[Numbers, int], Decision]  # observations (simulators, observation) and the number of the decision


@dataclass(frozen=True, eq=False)
class PolicyEpisode:
    """One episode of a policy: observations and choices at each decision, and the resulting trajectory."""

    observations: Numbers  # (decisions + 1, observation)
    choices: Numbers  # (decisions, choice)
    trajectory: Trajectory

    @property
    def success(self) -> bool:
        """Tell whether the simulator calls the last state a success."""
        return self.trajectory.readings[-1].success


@lru_cache(maxsize=2)
def open_simulators(task: str, count: int) -> tuple[SteppedRollout, ...]:
    """Return so many simulators of a task; a process opens them once, since a reset clears all state."""
    return tuple(SteppedRollout(task) for _ in range(count))


def roll_out(
    simulators: Sequence[SteppedRollout], seeds: Sequence[int], decide: Decide, control: Control
) -> list[PolicyEpisode]:
    """Run one episode per seed in as many simulators as there are, and return them in the order of the seeds."""
    episodes: list[PolicyEpisode] = []
    for start in range(0, len(seeds), len(simulators)):
        some = seeds[start : start + len(simulators)]
        used = simulators[: len(some)]
        reset = [simulator.reset(seed) for simulator, seed in zip(used, some, strict=True)]
        seen, chosen = [np.stack(reset).astype(np.float32)], list[Numbers]()
        for number in range(control.decisions):
            decision = decide(seen[-1], number)
            chosen.append(decision.choices)
            after = [_play(simulator, chunk, control) for simulator, chunk in zip(used, decision.chunks, strict=True)]
            seen.append(np.stack(after).astype(np.float32))
        parts = zip(np.stack(seen, axis=1), np.stack(chosen, axis=1), used, strict=True)
        episodes += [PolicyEpisode(obs, choices, simulator.trajectory()) for obs, choices, simulator in parts]
    return episodes


def _play(simulator: SteppedRollout, chunk: Numbers, control: Control) -> NDArray[np.float64]:
    """Take the actions of a chunk, each held for its steps, and return the observation after the last."""
    for action in chunk.reshape(control.chunk, ACTION_SIZE):
        for _ in range(control.hold):
            observation = simulator.step(action.astype(np.float64))
    return observation
