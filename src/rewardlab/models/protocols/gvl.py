"""Generative Value Learning: the model predicts the task completion of frames that are shown in random order.

Ma et al., Vision Language Models are In-Context Value Learners.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np

from rewardlab.core.episode import Episode, Indices, fingerprint_frames, level_of_progress
from rewardlab.core.records import parse_json
from rewardlab.core.seeding import rng_for
from rewardlab.core.settings import Help
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models.contract import at_least_one
from rewardlab.models.protocols import VlmProtocol
from rewardlab.models.protocols.clips import (
    ROLLOUT,
    Control,
    DemonstrationData,
    Demonstrations,
    NamedClip,
    Views,
    demonstrations,
    view_videos,
)
from rewardlab.models.vlm import UNREADABLE, Completion, Image, Part, Prompt, VisionLanguageModel

# bounded repeats, so that a reply made to be slow to search is searched in time proportional to its length
_NUMBER, _VALUE = r'"frame_number"\s*:\s*"?(\d{1,9})"?', r'"task_completion_percentage"\s*:\s*"?(-?\d{1,40}(?:\.\d+)?)'
_PAIR = re.compile(_NUMBER + r"[^{}]{0,2000}?" + _VALUE)


@dataclass(frozen=True)
class Gvl:
    """Asks for the completion of every shown frame at once; the last frame decides the level."""

    vlm: VisionLanguageModel
    control: Control = "none"
    seed: Annotated[int, Help("seed of the order in which frames are shown")] = 0
    tokens: Annotated[int, Help("most tokens of a reply")] = 4096
    views: Views = "images"
    demonstration: DemonstrationData = ""

    def __post_init__(self) -> None:
        at_least_one("tokens", self.tokens)

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the completion of each frame as progress, and the rubric level of the last one's."""
        shown = [view_videos(episode, self.views, self.control) for episode in episodes]
        first = [clips[0][1].frames for clips in shown]  # the same frames are shown in the same order
        orders = [rng_for(self.seed, "gvl", fingerprint_frames(each)).permutation(len(each)) for each in first]
        prompts = [self._prompt(e, clips, order) for e, clips, order in zip(episodes, shown, orders, strict=True)]
        replies = self.vlm.complete(prompts, self.tokens) if prompts else []
        return [_parse(completion, order) for completion, order in zip(replies, orders, strict=True)]

    @cached_property
    def _pool(self) -> Demonstrations | None:
        return demonstrations(self.demonstration)

    def _prompt(self, episode: Episode, clips: Sequence[NamedClip], order: Indices) -> Prompt:
        """Return the frames in this order, each in all of its views, behind the demonstration if there is one."""
        parts: list[Part] = []
        if self._pool is not None:
            told, video = self._pool.beside(episode)
            parts += [video, f"These {len(video.frames)} frames show {told}.\n\n"]
        if len(clips) > 1:
            parts.append(f"Each frame is {len(clips)} pictures: {', then '.join(what for what, _ in clips)}.\n\n")
        elif clips[0][0] != ROLLOUT:
            parts.append(f"The frames show {clips[0][0]}.\n\n")
        views = [video.frames for _, video in clips]
        parts += [gvl_opening(episode.instruction), *(Image(frames[0]) for frames in views)]
        parts.append(gvl_question(episode.instruction))
        for number, frame in enumerate(order, 1):
            parts += [gvl_frame(number), *(Image(frames[frame]) for frames in views)]
        return Prompt(tuple(parts))


def _parse(completion: Completion | Failure, order: Indices) -> Answer:
    if isinstance(completion, Failure):
        return completion
    text, count = completion.text, len(order)
    percentages = completion_percentages(text)
    wrong = sorted(number for number, value in percentages.items() if not 0 <= value <= 100)
    if sorted(percentages) != list(range(1, count + 1)) or wrong:
        expected = f"a percentage from 0 to 100 for each of {count} frames"
        return Failure(f"{UNREADABLE}: expected {expected}, got {len(percentages) - len(wrong)}", text, completion.info)
    progress = np.empty(count)
    progress[order] = [percentages[number] / 100 for number in range(1, count + 1)]
    level = float(level_of_progress(progress[-1]))
    return Score(level, progress=tuple(progress.tolist()), raw=text, info=completion.info)


def completion_percentages(text: str) -> dict[int, float]:
    """Return the percentage of each frame number; a number that comes twice is left out."""
    start, end = text.find("["), text.rfind("]")
    try:
        rows = parse_json(text[start : end + 1], allow_nonfinite=True)
        pairs = [(int(row["frame_number"]), float(row["task_completion_percentage"])) for row in rows]
    except (ValueError, KeyError, TypeError, OverflowError):
        pairs = []
    pairs = pairs or [(int(number), float(value)) for number, value in _PAIR.findall(text)]
    numbers = [number for number, _ in pairs]
    return {number: value for number, value in pairs if numbers.count(number) == 1 and math.isfinite(value)}


GVL = VlmProtocol(
    "Generative Value Learning over a vision-language model: gvl:hf:PATH or gvl:openai:MODEL@URL; ?control=static",
    prompt=lambda instruction: gvl_opening(instruction) + gvl_question(instruction),
    model=Gvl,
)

# Generative Value Learning, `index.html` of generative-value-learning.github.io (the site states no licence; quoted
# as the protocol that its published numbers were made with).
_GVL_OPENING = """\
You are an expert roboticist tasked to predict task completion percentages for frames of a robot for the task of {}. \
The task completion percentages are between 0 and 100, where 100 corresponds to full task completion. \
We provide several examples of the robot performing the task at various stages and their corresponding task \
completion percentages. Note that these frames are in random order, so please pay attention to the individual frames \
when reasoning about task completion percentage.
Initial robot scene:
This frame:"""
_GVL_QUESTION = """\
 shows the initial robot scene, where the task completion percentage is 0.

Now, for the task of *{}*, output the task completion percentage for the following frames that are presented in \
random order. Format your response as follow in json format, make sure to include all frames:

[
{{"frame_number": i, "frame_description": "...", "task_completion_percentage": (0-100)}}
]"""


def gvl_opening(instruction: str) -> str:
    """Return the text before the first true frame."""
    return _GVL_OPENING.format(instruction)


def gvl_question(instruction: str) -> str:
    """Return the text after the first true frame; the shuffled frames follow, each after `gvl_frame`."""
    return _GVL_QUESTION.format(instruction)


def gvl_frame(number: int) -> str:
    """Return the text before a shuffled frame, counted from 1."""
    return f"Frame {number}:"
