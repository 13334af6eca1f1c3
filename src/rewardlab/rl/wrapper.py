"""Gymnasium wrappers that replace the reward of an environment with that of any model; extra `rl`.

env = ModelReward(env, "pocket", RewardStream("open the drawer", every=5))
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from rewardlab.core.episode import Episode, Frames
from rewardlab.core.errors import PlanError
from rewardlab.core.trial import Answer, Failure
from rewardlab.models import name_model
from rewardlab.models.composite import CachedModel, validated_answers
from rewardlab.models.contract import AnyModel, RewardModel
from rewardlab.rl.reward_stream import RewardStream

INFO = "reward_model"  # the key of what the wrappers add to the info of a step


@dataclass(eq=False)
class TimedModel:
    """A model that scores the same clip once, with its time and its calls counted."""

    model: RewardModel
    seconds: float = 0.0
    clips: int = 0
    failed: int = 0
    _cached: CachedModel = field(init=False)

    def __post_init__(self) -> None:
        self._cached = CachedModel(self.model)

    def answers(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return one answer per episode."""
        started = time.perf_counter()
        found = validated_answers(self._cached, episodes)
        self.seconds += time.perf_counter() - started
        self.clips += len(found)
        self.failed += sum(isinstance(answer, Failure) for answer in found)
        return found

    def counts(self) -> dict[str, float]:
        """Return the seconds of the model, how many clips it was given, and how many of them it did not score."""
        return {"seconds": self.seconds, "clips": self.clips, "failed": self.failed}


def open_timed_model(model: AnyModel) -> TimedModel:
    """Return the model of a name, or a given one; models that need the truth are rejected."""
    named = name_model(model)
    named.refuse_truth("an environment")
    return TimedModel(named.build())


class ModelReward(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """An environment whose reward comes from a model's scores of its frames; `info` keeps the environment's own reward.

    The frame is the image `image_key` of a dict of observations; without a key the environment renders it.
    `timed.counts()` returns the time and the number of calls of the model.
    """

    def __init__(
        self, env: "gymnasium.Env[Any, Any]", model: AnyModel, stream: RewardStream, *, image_key: str = ""
    ) -> None:
        # no copies: a model may be large, and the stream is not changed
        RecordConstructorArgs.__init__(self, _disable_deepcopy=True, model=model, stream=stream, image_key=image_key)
        gymnasium.Wrapper.__init__(self, env)
        _require_frames(env.render_mode, image_key)
        self.image_key = image_key
        self.timed = open_timed_model(model)
        self.stream = replace(stream)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; progress starts at 0."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.stream = replace(self.stream)
        self.stream.add(self._frame(observation))
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act, score the clip so far where that is due, and return the reward of the model."""
        observation, own, terminated, truncated, info = self.env.step(action)
        ended = bool(terminated or truncated)
        self.stream.add(self._frame(observation))
        if self.stream.is_due(ended=ended):
            self.stream.update(self.timed.answers([self.stream.episode()])[0])
        reward = self.stream.reward(ended=ended)
        noted: dict[str, Any] = {
            "level": self.stream.level,
            "progress": self.stream.progress,
            "success": self.stream.succeeded,
            "abstained": self.stream.abstained,
            "env_reward": float(own),
            "unfamiliar": self.stream.unfamiliar,
            "familiarity": self.stream.familiarity,
        }
        return observation, reward, terminated, truncated, {**info, INFO: noted}

    def _frame(self, observation: Any) -> Frames:
        shown = observation[self.image_key] if self.image_key else self.env.render()
        return np.array(shown)


class VectorModelReward(gymnasium.vector.VectorWrapper):
    """The same for several environments, in any autoreset mode: all clips due at a step are scored in one batch.

    The stream is for all environments, or one for each where they have instructions of their own.
    """

    def __init__(
        self,
        env: "gymnasium.vector.VectorEnv",
        model: AnyModel,
        stream: RewardStream | Sequence[RewardStream],
        *,
        image_key: str = "",
    ) -> None:
        super().__init__(env)
        streams = [stream] * env.num_envs if isinstance(stream, RewardStream) else list(stream)
        if len(streams) != env.num_envs or not all(isinstance(each, RewardStream) for each in streams):
            got = ", ".join(type(each).__name__ for each in streams) or "nothing"
            raise PlanError(f"expected a RewardStream, or one for each of the {env.num_envs} environments, got {got}")
        _require_frames(env.render_mode, image_key)
        self.image_key = image_key
        self._autoreset = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if self._autoreset is AutoresetMode.SAME_STEP and not image_key:
            raise PlanError(
                "an environment that resets in the step that ends an episode cannot render the final frame; make it "
                "with another autoreset_mode, or name the image among its observations in image_key"
            )
        self.timed = open_timed_model(model)
        self.streams = [replace(each) for each in streams]
        self._resetting = np.zeros(env.num_envs, bool)  # those whose next step is a reset

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every environment, or in those of `reset_mask`."""
        restarted = np.array((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        observations, infos = self.env.reset(seed=seed, options=options)
        self._start(restarted, self._frames(observations))
        self._resetting &= ~restarted
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, NDArray[np.float64], Any, Any, dict[str, Any]]:
        """Act in every environment; a step in which an environment only resets itself has the reward 0."""
        observations, own, terminated, truncated, infos = self.env.step(actions)
        ended, frames = np.logical_or(terminated, truncated), self._frames(observations)
        same_step = self._autoreset is AutoresetMode.SAME_STEP
        self._start(self._resetting, frames)
        going_on = np.flatnonzero(~self._resetting).tolist()
        for index in going_on:
            final = same_step and ended[index]
            frame = np.array(infos["final_obs"][index][self.image_key]) if final else frames[index]
            self.streams[index].add(frame)
        due = [self.streams[index] for index in going_on if self.streams[index].is_due(ended=bool(ended[index]))]
        answers = self.timed.answers([stream.episode() for stream in due]) if due else []
        for stream, answer in zip(due, answers, strict=True):
            stream.update(answer)
        rewards = np.zeros(self.num_envs)
        for index in going_on:
            rewards[index] = self.streams[index].reward(ended=bool(ended[index]))
        noted = {"env_reward": np.asarray(own), "success": np.array([each.succeeded for each in self.streams])}
        noted |= {"unfamiliar": np.array([each.unfamiliar for each in self.streams])}
        noted |= {"familiarity": np.array([each.familiarity for each in self.streams], dtype=object)}
        if same_step:
            self._start(ended, frames)
        self._resetting = ended & (self._autoreset is AutoresetMode.NEXT_STEP)
        return observations, rewards, terminated, truncated, {**infos, INFO: noted}

    def _start(self, which: NDArray[np.bool_], frames: Sequence[Frames]) -> None:
        for index in np.flatnonzero(which).tolist():
            self.streams[index] = replace(self.streams[index])
            self.streams[index].add(frames[index])

    def _frames(self, observations: Any) -> list[Frames]:
        shown: Any = observations[self.image_key] if self.image_key else self.env.render()
        return [np.array(frame) for frame in shown]


def _require_frames(render_mode: str | None, image_key: str) -> None:
    if not image_key and render_mode != "rgb_array":
        raise PlanError(
            f"the environment must be made with render_mode='rgb_array', got {render_mode!r}; or name the image among "
            "its observations in image_key"
        )
