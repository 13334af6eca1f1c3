"""Demonstrations of mixed quality, cut into what a policy is cloned from: an observation and the actions after it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import pick, rng_for
from rewardlab.rl.control import Control
from rewardlab.worlds.metaworld.physics import Floats, Policy, StepState, simulate
from rewardlab.worlds.metaworld.policies import POLICIES, make_policy


@dataclass(frozen=True)
class DemonstrationMix:
    """How many demonstrations are taken, and of which qualities, as `name=share`."""

    episodes: int = 80
    qualities: tuple[str, ...] = ("expert=4", "other_goal=1", "stops_early=1")

    def __post_init__(self) -> None:
        if self.episodes < 1 or not self.qualities:
            raise PlanError("a policy is cloned from 1 demonstration or more, and of 1 quality or more")
        self.weights()

    def weights(self) -> dict[str, int]:
        """Return how often each quality comes, relative to the others."""
        parts = [text.partition("=") for text in self.qualities]
        wrong = [name for name, _, share in parts if name not in POLICIES or not (share or "1").isdigit()]
        if wrong:
            known = ", ".join(POLICIES)
            raise PlanError(f"a quality is name=share with a whole share, got {wrong[0]!r}; there are {known}")
        return {name: int(share or "1") for name, _, share in parts}


@dataclass(frozen=True, eq=False)
class Demonstrations:
    """Pairs of an observation and the chunk of actions that followed, and how many demonstrations ended in success."""

    observations: NDArray[np.float32]  # (N, observation)
    chunks: NDArray[np.float32]  # (N, chunk * 4)
    successes: int
    episodes: int


def collect_demonstrations(task: str, mix: DemonstrationMix, control: Control, seed: int) -> Demonstrations:
    """Simulate the demonstrations of a task; the same seed gives the same ones."""
    names = [name for name, share in mix.weights().items() for _ in range(share)]
    observations, chunks, successes = list[Floats](), list[Floats](), 0
    for index in range(mix.episodes):
        rng = rng_for(seed, "demonstration", task, index)
        scene, quality = int(rng.integers(2**31)), pick(names, rng)
        seen, policy = _watching(make_policy(quality, task, scene))
        trajectory = simulate(task, scene, control.steps, policy)
        observations += [np.stack(seen)[:: control.hold]]
        chunks += [_chunks(trajectory.actions.astype(np.float64), control)]
        successes += trajectory.readings[-1].success
    stacked = [np.concatenate(part).astype(np.float32) for part in (observations, chunks)]
    return Demonstrations(stacked[0], stacked[1], successes, mix.episodes)


def _watching(policy: Policy) -> tuple[list[Floats], Policy]:
    """Return a list that fills with the observations of a policy, and the policy."""
    seen: list[Floats] = []

    def act(state: StepState) -> Floats:
        seen.append(state.observation)
        return policy(state)

    return seen, act


def _chunks(actions: Floats, control: Control) -> Floats:
    """Return for each held action the chunk that begins with it; past the end the last one goes on."""
    held = actions.reshape(-1, control.hold, actions.shape[1]).mean(axis=1)
    later = np.minimum(np.arange(len(held))[:, None] + np.arange(control.chunk), len(held) - 1)
    return np.asarray(held[later].reshape(len(held), -1))
