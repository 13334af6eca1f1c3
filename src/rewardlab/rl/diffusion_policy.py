"""A diffusion policy, cloned from demonstrations of mixed quality."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rewardlab.core.errors import PlanError, RunError
from rewardlab.core.seeding import pick, rng_for
from rewardlab.core.storage import atomic_write
from rewardlab.rl.rollouts import Control
from rewardlab.worlds.metaworld.physics import Floats, Policy, StepState, simulate
from rewardlab.worlds.metaworld.policies import POLICIES, make_policy

Numbers = NDArray[np.float32]
_MIN_STD = 1e-2  # of an observation; else a value that hardly changes would be scaled up to noise
_TIME_SIZE = 16


@dataclass(frozen=True)
class DemonstrationMix:
    """How many demonstrations are simulated, and of which qualities, as `name=weight`."""

    episodes: int = 80
    qualities: tuple[str, ...] = ("expert=4", "other_goal=1", "stops_early=1")

    def __post_init__(self) -> None:
        if self.episodes < 1 or not self.qualities:
            raise PlanError("a policy is cloned from 1 demonstration or more, and of 1 quality or more")
        self.weights()

    def weights(self) -> dict[str, int]:
        """Return the weight of each quality in the draw."""
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
        seen, policy = _recording(make_policy(quality, task, scene))
        trajectory = simulate(task, scene, control.steps, policy)
        observations.append(np.stack(seen)[:: control.hold])
        actions = trajectory.actions.astype(np.float64)
        held = actions.reshape(-1, control.hold, actions.shape[1]).mean(axis=1)
        # The chunk that begins with each held action; past the end the last action is repeated.
        later = np.minimum(np.arange(len(held))[:, None] + np.arange(control.chunk), len(held) - 1)
        chunks.append(held[later].reshape(len(held), -1))
        successes += trajectory.readings[-1].success
    stacked = [np.concatenate(part).astype(np.float32) for part in (observations, chunks)]
    return Demonstrations(stacked[0], stacked[1], successes, mix.episodes)


def _recording(policy: Policy) -> tuple[list[Floats], Policy]:
    """Return a list that collects the observations of a policy, and the policy that fills it."""
    seen: list[Floats] = []

    def act(state: StepState) -> Floats:
        seen.append(state.observation)
        return policy(state)

    return seen, act


@dataclass(frozen=True)
class DiffusionSettings:
    """The network and its training; DDPM trains on `train_denoising` noise levels, DDIM uses `denoising` of them."""

    hidden: int = 128
    layers: int = 3
    steps: int = 3000
    batch: int = 128
    rate: float = 1e-3
    train_denoising: int = 50
    denoising: int = 8

    def __post_init__(self) -> None:
        if min(self.hidden, self.layers, self.steps, self.batch) < 1 or self.rate <= 0:
            raise PlanError("hidden, layers, steps and batch of a diffusion policy must be at least 1, rate above 0")
        if not 1 <= self.denoising <= self.train_denoising:
            raise PlanError(
                f"denoising must be from 1 to train_denoising ({self.train_denoising}), got {self.denoising}"
            )


class NoisePredictor(nn.Module):
    """Predicts the noise in a noisy chunk, given the observation and the noise level."""

    def __init__(self, observation: int, chunk: int, settings: DiffusionSettings) -> None:
        super().__init__()
        sizes = [observation + chunk + _TIME_SIZE, *[settings.hidden] * settings.layers]
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.SiLU()]
        self.net = nn.Sequential(*layers, nn.Linear(settings.hidden, chunk))

    def forward(self, noisy: Tensor, observation: Tensor, level: Tensor) -> Tensor:
        """Return the predicted noise, (N, chunk)."""
        angles = level[:, None] * torch.exp(torch.linspace(0, 5, _TIME_SIZE // 2))
        predicted: Tensor = self.net(torch.cat([noisy, observation, angles.sin(), angles.cos()], dim=-1))
        return predicted


class DiffusionPolicy:
    """Maps an observation and a noise to a chunk of actions; the same noise always gives the same chunk."""

    def __init__(self, observation: int, chunk: int, settings: DiffusionSettings) -> None:
        self.settings, self.chunk = settings, chunk
        self.network = NoisePredictor(observation, chunk, settings)
        self.mean, self.std = torch.zeros(observation), torch.ones(observation)
        times = torch.linspace(0, 1, settings.train_denoising + 1)
        curve = torch.cos((times + 0.008) / 1.008 * torch.pi / 2) ** 2  # cosine schedule of Nichol and Dhariwal (2021)
        self.kept = torch.clamp(curve[1:] / curve[0], min=1e-3)  # share of the signal left at each noise level
        picked = np.linspace(settings.train_denoising - 1, 0, settings.denoising).round()
        self._levels = [int(level) for level in picked]

    def normalised(self, observations: Numbers) -> Tensor:
        """Return observations as the network takes them."""
        return torch.clamp((torch.as_tensor(observations, dtype=torch.float32) - self.mean) / self.std, -5, 5)

    def act(self, observations: Numbers, noise: Numbers) -> Numbers:
        """Return chunks in [-1, 1], (N, chunk), by deterministic DDIM from these noises."""
        chunks = self.denoise(self.normalised(observations), torch.as_tensor(noise, dtype=torch.float32))
        return np.asarray(chunks.numpy(), np.float32)

    @torch.no_grad()
    def denoise(self, seen: Tensor, chunk: Tensor) -> Tensor:
        """Return the chunks of normalised observations and noises, without a gradient."""
        for level, following in pairwise([*self._levels, -1]):
            kept = self.kept[level]
            predicted = self.network(chunk, seen, torch.full((len(chunk),), level / len(self.kept)))
            clean = torch.clamp((chunk - (1 - kept).sqrt() * predicted) / kept.sqrt(), -1, 1)
            if following < 0:
                return clean
            predicted = (chunk - kept.sqrt() * clean) / (1 - kept).sqrt()  # of the clamped chunk
            chunk = self.kept[following].sqrt() * clean + (1 - self.kept[following]).sqrt() * predicted
        raise AssertionError("a policy has at least one denoising step")

    def save(self, path: Path) -> None:
        """Write the weights and the scale of observations."""
        state = {"network": self.network.state_dict(), "mean": self.mean, "std": self.std}
        with atomic_write(path) as partial:
            torch.save(state, partial)

    def load(self, path: Path) -> None:
        """Take the weights of a file that `save` wrote for a policy of the same shape."""
        try:
            state = torch.load(path, weights_only=True)
            self.network.load_state_dict(state["network"])
            self.mean, self.std = state["mean"], state["std"]
        except Exception as error:  # torch has many errors for a file that is not what it was
            raise RunError(f"{path} holds no policy of this shape ({error}); remove it to clone it again") from error


def clone_policy(demonstrations: Demonstrations, settings: DiffusionSettings, seed: int) -> DiffusionPolicy:
    """Train a diffusion policy on demonstrations by DDPM; the same seed gives the same policy."""
    torch.manual_seed(int(rng_for(seed, "diffusion policy").integers(2**31)))
    seen, chunks = (torch.as_tensor(part) for part in (demonstrations.observations, demonstrations.chunks))
    policy = DiffusionPolicy(seen.shape[1], chunks.shape[1], settings)
    policy.mean, policy.std = seen.mean(0), torch.clamp(seen.std(0), min=_MIN_STD)
    normalised = policy.normalised(demonstrations.observations)
    optimizer = torch.optim.AdamW(policy.network.parameters(), lr=settings.rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    for _ in range(settings.steps):
        rows = torch.randint(len(seen), (settings.batch,))
        clean, levels = chunks[rows], torch.randint(len(policy.kept), (settings.batch,))
        kept, noise = policy.kept[levels][:, None], torch.randn_like(clean)
        noisy = kept.sqrt() * clean + (1 - kept).sqrt() * noise
        loss = nn.functional.mse_loss(policy.network(noisy, normalised[rows], levels / len(policy.kept)), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return policy
