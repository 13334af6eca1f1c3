"""Gymnasium wrappers that replace the reward of an environment with that of any model; extra `rl`."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Frames
from rewardlab.core.errors import PlanError
from rewardlab.core.trial import Answer, Failure
from rewardlab.models import name_model
from rewardlab.models.composite import CachedModel, validated_answers
from rewardlab.models.contract import RewardModel
from rewardlab.rl.reward_stream import RewardSettings, RewardStream

INFO = "reward_model"  # where the wrappers put what they know into the info of a step


@dataclass(eq=False)
class TimedModel:
    """A model that is asked about the same clip once, and whose time is counted."""

    model: RewardModel
    seconds: float = 0.0
    asked: int = 0
    failed: int = 0
    _cached: CachedModel = field(init=False)

    def __post_init__(self) -> None:
        self._cached = CachedModel(self.model)

    def answers(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return one answer per episode."""
        started = time.perf_counter()
        found = validated_answers(self._cached, episodes)
        self.seconds += time.perf_counter() - started
        self.asked += len(found)
        self.failed += sum(isinstance(answer, Failure) for answer in found)
        return found

    def counts(self) -> dict[str, float]:
        """Return the seconds of the model, how often it was asked, and how often it gave no answer."""
        return {"seconds": self.seconds, "asked": self.asked, "failed": self.failed}


def open_timed_model(model: str | RewardModel) -> TimedModel:
    """Return a model by its name, or one that is given; a model that needs the truth rewards nothing here."""
    named = name_model(model)
    if named.sees_truth:
        raise PlanError(f"{named.name} answers from the truth, which an environment does not show; take another model")
    return TimedModel(named.build())


class ModelReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose reward is what a model makes of its frames; `info` keeps the environment's own.

    `timed.counts()` says how long the model took and how often it was asked.
    """

    def __init__(self, env: "gymnasium.Env[Any, Any]", model: str | RewardModel, settings: RewardSettings) -> None:
        super().__init__(env)
        _require_frames(env.render_mode, settings)
        self.settings = settings
        self.timed = open_timed_model(model)
        self.stream = RewardStream(settings)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; progress is counted from 0."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.stream = RewardStream(self.settings)
        self.stream.add(self._frame(observation))
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act, show the model the clip so far where a question is due, and return its reward."""
        observation, own, terminated, truncated, info = self.env.step(action)
        ended = bool(terminated or truncated)
        self.stream.add(self._frame(observation))
        if self.stream.is_due(ended=ended):
            self.stream.take(self.timed.answers([self.stream.episode()])[0])
        reward = self.stream.pay(ended=ended)
        noted = {"env_reward": float(own), **_notes(self.stream)}
        return observation, reward, terminated, truncated, {**info, INFO: noted}

    def _frame(self, observation: Any) -> Frames:
        shown = observation[self.settings.image_key] if self.settings.image_key else self.env.render()
        return np.array(shown)


class VectorModelReward(gymnasium.vector.VectorWrapper):
    """The same for several environments: whatever is due at a step is asked in one batch."""

    def __init__(self, env: "gymnasium.vector.VectorEnv", model: str | RewardModel, settings: RewardSettings) -> None:
        super().__init__(env)
        _require_frames(env.render_mode, settings)
        self.settings = settings
        self.timed = open_timed_model(model)
        self.streams = [RewardStream(settings) for _ in range(env.num_envs)]
        self._ended = np.zeros(env.num_envs, bool)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode everywhere."""
        observations, infos = self.env.reset(seed=seed, options=options)
        frames = self._frames(observations)
        for index in range(self.num_envs):
            self._begin(index, frames[index])
        self._ended[:] = False
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, NDArray[np.float64], Any, Any, dict[str, Any]]:
        """Act everywhere; a step that begins a new episode, as vector environments do by themselves, pays nothing."""
        observations, own, terminated, truncated, infos = self.env.step(actions)
        ended, frames = np.logical_or(terminated, truncated), self._frames(observations)
        going_on = [index for index in range(self.num_envs) if not self._ended[index]]
        for index in range(self.num_envs):
            if self._ended[index]:
                self._begin(index, frames[index])
            else:
                self.streams[index].add(frames[index])
        self._ask([index for index in going_on if self.streams[index].is_due(ended=bool(ended[index]))])
        rewards = np.zeros(self.num_envs)
        for index in going_on:
            rewards[index] = self.streams[index].pay(ended=bool(ended[index]))
        self._ended = ended
        noted = {"env_reward": np.asarray(own), "success": np.array([each.succeeded for each in self.streams])}
        return observations, rewards, terminated, truncated, {**infos, INFO: noted}

    def _begin(self, index: int, frame: Frames) -> None:
        self.streams[index] = RewardStream(self.settings)
        self.streams[index].add(frame)

    def _ask(self, due: Sequence[int]) -> None:
        if due:
            for index, answer in zip(due, self.timed.answers([self.streams[index].episode() for index in due])):
                self.streams[index].take(answer)

    def _frames(self, observations: Any) -> list[Frames]:
        shown = observations[self.settings.image_key] if self.settings.image_key else self.env.render()
        return [np.array(frame) for frame in shown]


def _notes(stream: RewardStream) -> dict[str, Any]:
    return {
        "level": stream.level,
        "progress": stream.progress,
        "success": stream.succeeded,
        "abstained": stream.abstained,
    }


def _require_frames(render_mode: str | None, settings: RewardSettings) -> None:
    if not settings.image_key and render_mode != "rgb_array":
        raise PlanError(
            f"the environment must be made with render_mode='rgb_array', got {render_mode!r}; or name the image among "
            "its observations in image_key"
        )
