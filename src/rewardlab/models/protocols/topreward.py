"""TOPReward: how probable a model finds it that the video so far completes the task."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np

from rewardlab.core.episode import Episode, Indices
from rewardlab.core.settings import Help
from rewardlab.core.trial import Answer, Failure, Score, ScoreInfo
from rewardlab.models.contract import at_least_one
from rewardlab.models.protocols import VlmProtocol
from rewardlab.models.protocols.clips import (
    Control,
    DemonstrationData,
    Demonstrations,
    Views,
    demonstrations,
    view_videos,
    with_demonstration,
)
from rewardlab.models.vlm import Prompt, Video, VisionLanguageModel


@dataclass(frozen=True)
class TopReward:
    """Asks for the log-probability of True after prefixes of the video of growing length."""

    vlm: VisionLanguageModel
    control: Control = "none"
    prefixes: Annotated[int, Help("prefixes of the video to score; frames between are interpolated")] = 15
    views: Views = "images"
    demonstration: DemonstrationData = ""

    def __post_init__(self) -> None:
        at_least_one("prefixes", self.prefixes)

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return progress, the log-probabilities scaled to 0-1 within the video, and level 1 + 4 P(True) at its end."""
        lengths = [prefix_lengths(len(episode.clip), self.prefixes) for episode in episodes]
        prompts = [prompt for e, some in zip(episodes, lengths, strict=True) for prompt in self._prompts(e, some)]
        logprobs = iter(self.vlm.continuation_logprob(prompts, TOPREWARD_ANSWER) if prompts else [])
        return [
            _answer([next(logprobs) for _ in some], some, len(e.clip))
            for e, some in zip(episodes, lengths, strict=True)
        ]

    def _prompts(self, episode: Episode, lengths: Indices) -> list[Prompt]:
        clips = view_videos(episode, self.views, self.control)
        text = TOPREWARD_CLAIM + topreward_question(episode.instruction)
        prompts = []
        for length in lengths:
            begun = [(what, _prefix(video, int(length))) for what, video in clips]
            shown = with_demonstration(begun, episode, self._pool)
            prompts.append(Prompt((*shown.videos, shown.words + text)))
        return prompts

    @cached_property
    def _pool(self) -> Demonstrations | None:
        return demonstrations(self.demonstration)


def _prefix(video: Video, length: int) -> Video:
    """Return the first frames of a video; one frame is shown twice, for a video has two at least."""
    shown = np.repeat(video.frames[:1], 2, axis=0) if length == 1 else video.frames[:length]
    return Video(shown, np.arange(len(shown)) / video.fps, video.fps)


def prefix_lengths(frames: int, most: int) -> Indices:
    """Return the lengths of the prefixes to ask about: evenly from one frame to all of them."""
    if frames <= 2 or most == 1:
        return np.array([frames])
    return np.unique(np.linspace(1, frames, min(most, frames)).astype(np.int64))


def _answer(logprobs: Sequence[float | Failure], lengths: Indices, frames: int) -> Answer:
    failure = next((each for each in logprobs if isinstance(each, Failure)), None)
    if failure is not None:
        return failure
    values = np.array(logprobs, dtype=float)
    if not np.isfinite(values).all():
        return Failure(f"expected finite log-probabilities of {TOPREWARD_ANSWER.strip()}, got {values.min()}")
    low, high = values.min(), values.max()
    scaled = (values - low) / (high - low) if high > low else np.ones_like(values)  # all alike is 1, as published
    progress = np.interp(np.arange(1, frames + 1), lengths, scaled)
    last = float(values[-1])
    level = 1 + 4 * math.exp(min(last, 0.0))
    return Score(level, progress=tuple(progress.tolist()), info=ScoreInfo(log_probability=last))


TOPREWARD = VlmProtocol(
    "TOPReward over a vision-language model: topreward:hf:PATH or topreward:openai:MODEL@URL; ?control=static",
    prompt=lambda instruction: TOPREWARD_CLAIM + topreward_question(instruction),
    model=TopReward,
)

# TOPReward (github.com/jcoleharrison/TOPReward, MIT). The video stands before TOPREWARD_CLAIM.
TOPREWARD_CLAIM = "The above video shows a robot manipulation trajectory that completes the following task: "
TOPREWARD_ANSWER = " True"  # its log-probability is the score


def topreward_question(instruction: str) -> str:
    """Return the text between TOPREWARD_CLAIM and TOPREWARD_ANSWER."""
    return f"{instruction} Decide whether the above statement is True or not. The answer is:"
