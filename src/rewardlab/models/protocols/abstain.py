"""A sixth answer: the level by the rubric, or that the clip does not show what is asked, so that it cannot be told.

Such an answer has no level: the trial is failed, with `info.abstained`, and lowers the coverage of every metric of
levels. Two metrics count it: recall where the end of the clip is hidden, and false abstentions where it is not.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np

from rewardlab.core.episode import LEVELS, Episode
from rewardlab.core.settings import Help
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models.contract import at_least_one
from rewardlab.models.protocols import PROGRESS_RUBRIC, VlmProtocol
from rewardlab.models.vlm import (
    UNREADABLE,
    AnswerFormat,
    Completion,
    Prompt,
    VisionLanguageModel,
    choice_probs,
    clip_video,
    map_frames,
)

ABSTAINED = "abstained: the model answered that the clip does not show what is asked"
_QUESTION = f"""\
Given the task, assign a discrete progress score reward (1,2,3,4,5) for the robot in the video, or 0 where the video \
does not show enough to tell, in the format: ANSWER: <score>
{PROGRESS_RUBRIC}
0 - Cannot be told: the final state is not visible in the video, so no score can be given. Do not guess.

Task: """
SIXFOLD = AnswerFormat("ANSWER: ", ("0", *(str(level) for level in LEVELS)))
_ANSWER = re.compile(r"\bANSWER\s*:\s*([0-5])(?![\w%/]|[.,-]\d)", re.IGNORECASE)
_ANY_ANSWER = re.compile(r"\bANSWER\s*:", re.IGNORECASE)


def abstention_prompt(instruction: str) -> str:
    """Return the rubric with its sixth answer."""
    return _QUESTION + instruction


@dataclass(frozen=True)
class AbstainingRubric:
    """Asks for the level of each episode, or whether it cannot be told."""

    vlm: VisionLanguageModel
    answer: Annotated[
        Literal["logits", "generate"],
        Help("logits: probabilities of the digits after ANSWER:; generate: the written answer"),
    ] = "generate"
    tokens: Annotated[int, Help("most tokens of an answer")] = 128

    def __post_init__(self) -> None:
        at_least_one("tokens", self.tokens)

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the level of each episode, or a Failure that says that the model abstained."""
        videos = map_frames(clip_video, episodes)
        prompts = [
            Prompt((video, abstention_prompt(episode.instruction)), prefix=(video, abstention_prompt("")))
            for video, episode in zip(videos, episodes, strict=True)
        ]
        if self.answer == "logits":
            return [
                probs if isinstance(probs, Failure) else _by_probabilities(probs)
                for probs in self.vlm.answer_probs(prompts, SIXFOLD)
            ]
        return [self._read(reply) for reply in self.vlm.complete(prompts, self.tokens, SIXFOLD)]

    def _read(self, reply: Completion | Failure) -> Answer:
        if isinstance(reply, Failure):
            return reply
        found = _ANSWER.findall(reply.text)
        if len(found) != 1 or len(_ANY_ANSWER.findall(reply.text)) != 1:
            cut = (
                f"; it was cut off at {self.tokens} tokens, allow more with ?tokens="
                if reply.finish == "length"
                else ""
            )
            return Failure(f"{UNREADABLE}: expected one 'ANSWER: n' with n from 0 to 5{cut}", reply.text, reply.info)
        probs = choice_probs(reply.choice_logprobs, SIXFOLD.choices) if reply.choice_logprobs else None
        abstained = found[0] == "0"
        info = replace(reply.info, abstained=abstained, abstention_probability=None if probs is None else probs[0])
        if abstained:
            return Failure(ABSTAINED, reply.text, info)
        return Score(float(found[0]), None if probs is None else _of_levels(probs), raw=reply.text, info=info)


def _by_probabilities(probs: tuple[float, ...]) -> Answer:
    """Return the expected level if there is one; a Failure where abstaining is the most probable answer."""
    levels, abstained = _of_levels(probs), int(np.argmax(probs)) == 0
    answer: Answer = Failure(ABSTAINED)
    if not abstained and levels is not None:
        answer = Score(float(np.array(levels) @ LEVELS), levels)
    return replace(answer, info=replace(answer.info, abstained=abstained, abstention_probability=probs[0]))


def _of_levels(probs: tuple[float, ...]) -> tuple[float, ...] | None:
    """Return the probabilities of the levels given that one is answered; None where none is possible."""
    left = sum(probs[1:])
    return tuple(prob / left for prob in probs[1:]) if left > 0 else None


ABSTAIN = VlmProtocol(
    "the RoboReward rubric with a sixth answer, that the clip does not show what is asked, over a vision-language "
    "model: abstain:hf:PATH or abstain:openai:MODEL@URL",
    prompt=abstention_prompt,
    model=AbstainingRubric,
    defaults=lambda backend: {"answer": "logits"} if backend.scores_answers else {},
    abstains=True,
)
