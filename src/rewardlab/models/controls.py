"""Controls: models that cannot judge, or judge by the truth; a real model is measured against them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rewardlab.core.episode import LEVELS, Episode
from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import digest, pick, rng_for
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models.contract import ModelEntry
from rewardlab.models.model_string import ModelString, without_options


@dataclass(frozen=True)
class Constant:
    """Says the same level whatever it sees."""

    level: int = 3

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the one level for every episode."""
        return [_certain(self.level)] * len(episodes)


@dataclass(frozen=True)
class Random:
    """Draws a level from the content of clip and instruction: the same question gets the same answer."""

    seed: int = 0

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return a uniformly drawn level per episode."""
        return [_certain(int(rng_for(self.seed, _content(episode)).integers(1, 6))) for episode in episodes]


@dataclass(frozen=True)
class Length:
    """Sees only the number of frames: the longer the recording, the further along it takes the robot to be."""

    full: int = 100  # number of frames at which the task counts as done

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return a level and per-frame progress that follow the frame count."""
        return [self._score(episode) for episode in episodes]

    def _score(self, episode: Episode) -> Score:
        progress = np.minimum(1.0, (episode.clip.positions + 1) / self.full)
        return Score(level=1 + 4 * float(progress[-1]), progress=tuple(progress.tolist()))


@dataclass(frozen=True)
class Oracle:
    """Knows the truth; with an error of E it is off by whole levels, by E on average."""

    error: float = 0.0
    seed: int = 0

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the true level, displaced as stated; a Failure where the truth is unknown."""
        return [self._score(episode) for episode in episodes]

    def _score(self, episode: Episode) -> Answer:
        truth = episode.label
        if truth.level is None:
            return Failure("the true level of this cell is unknown, and an oracle does not guess")
        if not self.error:
            return Score(float(truth.level), _certain(truth.level).probabilities, truth.progress)
        return _certain(self._displaced(truth.level, episode))

    def _displaced(self, level: int, episode: Episode) -> int:
        rng = rng_for(self.seed, "noisy oracle", _content(episode))
        step = int(np.ceil(self.error))
        if rng.random() >= self.error / step:
            return level
        inside = [level + move for move in (-step, step) if level + move in LEVELS]
        return pick(inside, rng)


def _certain(level: int) -> Score:
    return Score(float(level), tuple(float(level == k) for k in LEVELS))


def _content(episode: Episode) -> str:
    clip = episode.clip
    return digest(clip.source.digest, clip.order.tobytes(), episode.instruction)


def _number(text: str, default: float, low: float, high: float, what: str) -> float:
    try:
        value = float(text) if text else default
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise PlanError(f"{what} must be a number from {low:g} to {high:g}, got {text!r}")
    return value


def _level(string: ModelString) -> int:
    return int(_number(without_options(string), 3, 1, 5, "the level of constant"))


def _seed(string: ModelString) -> int:
    return int(_number(without_options(string), 0, 0, 2**31, "the seed of random"))


def _full_frames(string: ModelString) -> int:
    return int(_number(without_options(string), 100, 1, 1e6, "the frames of length"))


def _error_and_seed(string: ModelString) -> tuple[float, int]:
    error, _, seed = without_options(string).partition("@")
    seeded = int(_number(seed, 0, 0, 2**31, "the seed of noisy-oracle"))
    return _number(error, 0.5, 0, 2, "the error of noisy-oracle"), seeded


CONTROLS: dict[str, ModelEntry[Any]] = {
    "constant": ModelEntry("always the same level; constant:5 says 5", _level, lambda level, _: Constant(level)),
    "random": ModelEntry("a level drawn from 1 to 5; random:7 draws with seed 7", _seed, lambda seed, _: Random(seed)),
    "length": ModelEntry(
        "sees only the number of frames; length:200 takes 200 frames for done", _full_frames, lambda n, _: Length(n)
    ),
    "oracle": ModelEntry(
        "knows the truth; the ceiling of every metric", without_options, lambda _argument, _: Oracle(), sees_truth=True
    ),
    "noisy-oracle": ModelEntry(
        "the truth, off by E levels on average; noisy-oracle:0.8, or noisy-oracle:0.8@7 to err with seed 7",
        _error_and_seed,
        lambda error_and_seed, _: Oracle(*error_and_seed),
        sees_truth=True,
    ),
}
