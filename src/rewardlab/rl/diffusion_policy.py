"""A small diffusion policy on state: chunks of actions, DDPM training, DDIM inference in few steps."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rewardlab.core.errors import PlanError, RunError
from rewardlab.core.run import atomic_write
from rewardlab.core.seeding import rng_for
from rewardlab.rl.demonstrations import Demonstrations

Numbers = NDArray[np.float32]
_LEAST_STD = 1e-2  # of an observation; what hardly moves would be blown up by its own standard deviation
_TIME_SIZE = 16


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
        predicted: Tensor = self.net(torch.cat([noisy, observation, _level_embedding(level)], dim=-1))
        return predicted


class DiffusionPolicy:
    """Maps an observation and a noise to a chunk of actions; the same noise always gives the same chunk."""

    def __init__(self, observation: int, chunk: int, settings: DiffusionSettings) -> None:
        self.settings, self.chunk = settings, chunk
        self.network = NoisePredictor(observation, chunk, settings)
        self.mean, self.std = torch.zeros(observation), torch.ones(observation)
        self.kept = _noise_schedule(settings.train_denoising)  # share of the signal left at each noise level
        picked = np.linspace(settings.train_denoising - 1, 0, settings.denoising).round().astype(int)
        self._levels = [int(level) for level in picked]

    def normalised(self, observations: Numbers) -> Tensor:
        """Return observations as the network takes them."""
        return torch.clamp((torch.as_tensor(observations, dtype=torch.float32) - self.mean) / self.std, -5, 5)

    @torch.no_grad()
    def act(self, observations: Numbers, noise: Numbers) -> Numbers:
        """Return chunks in [-1, 1], (N, chunk), by deterministic DDIM from these noises."""
        seen, chunk = self.normalised(observations), torch.as_tensor(noise, dtype=torch.float32)
        for level, following in zip(self._levels, [*self._levels[1:], -1]):
            kept = self.kept[level]
            predicted = self.network(chunk, seen, torch.full((len(chunk),), level / len(self.kept)))
            clean = torch.clamp((chunk - (1 - kept).sqrt() * predicted) / kept.sqrt(), -1, 1)
            if following < 0:
                return np.asarray(clean.numpy(), np.float32)
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
    policy.mean, policy.std = seen.mean(0), torch.clamp(seen.std(0), min=_LEAST_STD)
    normalised = policy.normalised(demonstrations.observations)
    optimizer = torch.optim.AdamW(policy.network.parameters(), lr=settings.rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    for _ in range(settings.steps):
        rows = torch.randint(len(seen), (settings.batch,))
        loss = _denoising_loss(policy, normalised[rows], chunks[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return policy


def _denoising_loss(policy: DiffusionPolicy, observations: Tensor, chunks: Tensor) -> Tensor:
    levels = torch.randint(len(policy.kept), (len(chunks),))
    kept, noise = policy.kept[levels][:, None], torch.randn_like(chunks)
    noisy = kept.sqrt() * chunks + (1 - kept).sqrt() * noise
    predicted = policy.network(noisy, observations, levels / len(policy.kept))
    return nn.functional.mse_loss(predicted, noise)


def _noise_schedule(levels: int) -> Tensor:
    """Return the cosine schedule of Nichol and Dhariwal (2021): the share of the signal left at each level."""
    times = torch.linspace(0, 1, levels + 1)
    curve = torch.cos((times + 0.008) / 1.008 * torch.pi / 2) ** 2
    return torch.clamp(curve[1:] / curve[0], min=1e-3)


def _level_embedding(level: Tensor) -> Tensor:
    frequencies = torch.exp(torch.linspace(0, 5, _TIME_SIZE // 2))
    angles = level[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)
