"""Failure causes: the level by the rubric, and a second question: why did the rollout fail, and in which frame?"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np

from rewardlab.core.episode import Episode
from rewardlab.core.settings import Help
from rewardlab.core.trial import FAILURE_ANSWERS, NO_FAILURE, Answer, Failure, ScoreInfo
from rewardlab.models.contract import at_least_one
from rewardlab.models.protocols import Rubric, VlmProtocol, roboreward_prompt
from rewardlab.models.vlm import AnswerFormat, Completion, Image, Part, Prompt, VisionLanguageModel, choice_probs

_MEANINGS = {
    "none": "No failure: the task is done in the last frame.",
    "missed_grasp": "Missed grasp: the gripper misses the object; it closes or passes beside it.",
    "wrong_object": "Wrong object: the robot handles another object than the one that it was asked to handle.",
    "dropped": "Dropped: the robot had the object and lost it on the way.",
    "target_not_reached": "Target not reached: the object or the part is moved, but not to where it should be.",
    "collision": "Collision: the robot hits something, and that is why the task is not done.",
    "early_end": "Early end: the robot stops, or leaves the task, before it is done.",
    "other": "Other: any other reason.",
}
_QUESTION = """\
Decide why the robot in the video fails at the task, if it fails, and from which frame on that can be seen.
{causes}
Answer in two lines, in the format:
FRAME: <number of the frame, 0 for no failure>
CAUSE: <0-{last}>

Task: {instruction}"""

CAUSE = AnswerFormat("CAUSE: ", tuple(str(number) for number in range(len(FAILURE_ANSWERS))))
_CAUSE = re.compile(r"\bCAUSE\s*:\s*([0-7])(?![\w%/]|[.,-]\d)", re.IGNORECASE)
_FRAME = re.compile(r"\bFRAME\s*:\s*(\d{1,6})(?![\w%/]|[.,-]\d)", re.IGNORECASE)


@dataclass(frozen=True)
class FailureCauses:
    """Asks for the level by the RoboReward rubric, then why the rollout failed, over numbered frames."""

    vlm: VisionLanguageModel
    answer: Annotated[
        Literal["logits", "generate"], Help("logits: probabilities of the levels and causes; generate: what it writes")
    ] = "generate"
    tokens: Annotated[int, Help("most tokens it may write to either question")] = 128

    def __post_init__(self) -> None:
        at_least_one("tokens", self.tokens)

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the level of each episode with cause and frame in its info; what cannot be read is missing there."""
        levels = Rubric(self.vlm, self.answer, tokens=self.tokens).score(episodes)
        prompts = [failure_prompt(episode) for episode in episodes]
        replies = self.vlm.complete(prompts, self.tokens, CAUSE) if prompts else []
        given = self.vlm.answer_probs(prompts, CAUSE) if prompts and self.answer == "logits" else [None] * len(prompts)
        return [
            _joined(level, reply, probs, len(episode.clip))
            for level, reply, probs, episode in zip(levels, replies, given, episodes, strict=True)
        ]


def failure_prompt(episode: Episode) -> Prompt:
    """Return the frames of an episode, each after its number from 1, and the question."""
    parts: list[Part] = []
    for number, frame in enumerate(episode.frames, 1):
        parts += [f"Frame {number}:", Image(frame)]
    return Prompt((*parts, failure_question(episode.instruction)))


def failure_question(instruction: str) -> str:
    """Return the text after the frames."""
    causes = "\n".join(f"{number} - {_MEANINGS[name]}" for number, name in enumerate(FAILURE_ANSWERS))
    return _QUESTION.format(causes=causes, last=len(FAILURE_ANSWERS) - 1, instruction=instruction)


def read_failure(text: str, frames: int) -> tuple[str | None, int | None]:
    """Return cause and number from 0 of the frame; each is None where it is not there exactly once, or not possible."""
    causes, shown = _CAUSE.findall(text), _FRAME.findall(text)
    cause = FAILURE_ANSWERS[int(causes[0])] if len(causes) == 1 else None
    number = int(shown[0]) if len(shown) == 1 else 0
    return cause, number - 1 if cause != NO_FAILURE and 1 <= number <= frames else None


def _joined(
    answer: Answer, reply: Completion | Failure, probs: tuple[float, ...] | Failure | None, frames: int
) -> Answer:
    """Return the answer with what is known of the failure; a question that got no reply at all fails the whole."""
    if isinstance(reply, Failure):
        return reply
    if isinstance(probs, Failure):
        return probs
    cause, frame = read_failure(reply.text, frames)
    if isinstance(probs, tuple):
        cause = FAILURE_ANSWERS[int(np.argmax(probs))]
    elif cause is not None and reply.choice_logprobs:
        probs = choice_probs(reply.choice_logprobs, CAUSE.choices)
    info = replace(
        _together(answer.info, reply.info),
        failure_cause=cause,
        failure_probabilities=dict(zip(FAILURE_ANSWERS, probs, strict=True)) if isinstance(probs, tuple) else {},
        failure_frame=None if cause == NO_FAILURE else frame,
        failure_text=reply.text,
    )
    return replace(answer, info=info)


def _together(one: ScoreInfo, other: ScoreInfo) -> ScoreInfo:
    """Return the info of the one with what both questions cost together."""

    def total(first: float | None, second: float | None) -> Any:
        return None if first is None and second is None else (first or 0) + (second or 0)

    return replace(
        one,
        input_tokens=total(one.input_tokens, other.input_tokens),
        output_tokens=total(one.output_tokens, other.output_tokens),
        cost=total(one.cost, other.cost),
    )


CAUSES = VlmProtocol(
    "the RoboReward rubric, and why and in which frame a rollout failed, over a vision-language model: causes:hf:PATH "
    "or causes:openai:MODEL@URL",
    prompt=lambda instruction: roboreward_prompt(instruction) + failure_question(instruction),
    model=FailureCauses,
    defaults=lambda backend: {"answer": "logits"} if backend.scores_answers else {},
)
