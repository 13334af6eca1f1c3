"""TOPReward: how likely a model finds it that the video so far completes the task."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rewardlab.core.episode import Episode, Frames, Indices
from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import digest
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models.contract import Budget, ModelEntry
from rewardlab.models.model_string import one_of
from rewardlab.models.protocols.gvl import shown_frames
from rewardlab.models.protocols.prompts import TOPREWARD_ANSWER, TOPREWARD_CLAIM, topreward_question
from rewardlab.models.protocols.talkers import identify_talker, open_talker, split_options
from rewardlab.models.vlm import Talker, Turn


@dataclass(frozen=True)
class TopRewardOptions:
    """Options of `topreward:`; any other goes to the model it talks with."""

    control: str = "none"  # static: the first frame in place of every frame, to see what the model makes of no change
    prefixes: int = 15  # beginnings of the video that are asked about; frames between them are interpolated

    def __post_init__(self) -> None:
        one_of("control", self.control, ("none", "static"))
        if self.prefixes < 1:
            raise PlanError(f"option prefixes must be at least 1, got {self.prefixes}")


@dataclass(frozen=True)
class TopReward:
    """Asks a talker for the log-probability of True after beginnings of the video of growing length."""

    talker: Talker
    options: TopRewardOptions

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return progress, the log-probabilities scaled to 0-1 within the video, and level 1 + 4 P(True) at its end."""
        lengths = [prefix_lengths(len(episode.clip), self.options.prefixes) for episode in episodes]
        turns = [turn for e, some in zip(episodes, lengths) for turn in self._turns(e, some)]
        told = iter(self.talker.likelihood(turns, TOPREWARD_ANSWER) if turns else [])
        return [_answer([next(told) for _ in some], some, len(e.clip)) for e, some in zip(episodes, lengths)]

    def _turns(self, episode: Episode, lengths: Indices) -> list[Turn]:
        frames, times = shown_frames(episode, self.options.control), episode.times
        seconds = float(times[-1] - times[0])
        fps = (len(times) - 1) / seconds if seconds > 0 else 1.0
        asked = TOPREWARD_CLAIM + topreward_question(episode.instruction)
        return [Turn((_video(frames[:length]), asked), fps) for length in lengths]


def _video(frames: Frames) -> Frames:
    """Return the frames; one alone twice, so that it is shown as a video."""
    return np.repeat(frames, 2, axis=0) if len(frames) == 1 else frames


def prefix_lengths(frames: int, most: int) -> Indices:
    """Return the lengths of the beginnings to ask about: evenly from one frame to all of them."""
    if frames <= 2 or most == 1:
        return np.array([frames])
    return np.unique(np.linspace(1, frames, min(most, frames)).astype(np.int64))


def _answer(told: Sequence[float | Failure], lengths: Indices, frames: int) -> Answer:
    failure = next((each for each in told if isinstance(each, Failure)), None)
    if failure is not None:
        return failure
    values = np.array(told, dtype=float)
    if not np.isfinite(values).all():
        return Failure(f"expected finite log-probabilities of {TOPREWARD_ANSWER.strip()}, got {values.min()}")
    low, high = values.min(), values.max()
    scaled = (values - low) / (high - low) if high > low else np.ones_like(values)  # all alike is 1, as published
    progress = np.interp(np.arange(1, frames + 1), lengths, scaled)
    last = float(values[-1])
    return Score(1 + 4 * math.exp(min(last, 0.0)), progress=tuple(progress.tolist()), raw=f"log P(True) = {last:.6g}")


def _identify(argument: str) -> str:
    backend, _ = split_options(argument, TopRewardOptions())
    return digest(identify_talker(backend), TOPREWARD_CLAIM, topreward_question(""))


def _build(argument: str, budget: Budget) -> TopReward:
    backend, options = split_options(argument, TopRewardOptions())
    return TopReward(open_talker(backend, budget), options)


TOPREWARD = {
    "topreward": ModelEntry(
        "TOPReward over a model it talks with: topreward:hf:PATH or topreward:openai:MODEL@URL; ?control=static",
        _build,
        identify=_identify,
        one_copy=True,
    ),
}
