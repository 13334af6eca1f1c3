"""The RoboReward rubric: a vision-language model is asked for the level, 1 to 5, that the final state deserves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rewardlab.core.episode import LEVELS, Episode
from rewardlab.core.seeding import digest
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models.frame_threads import map_frames
from rewardlab.models.model_string import at_least_one, one_of, option
from rewardlab.models.protocols.answer_parsers import PARSERS
from rewardlab.models.protocols.prompts import roboreward_prompt
from rewardlab.models.protocols.protocol_registration import VlmProtocol
from rewardlab.models.vlm import (
    AnswerFormat,
    Completion,
    Prompt,
    Video,
    VisionLanguageModel,
    choice_probs,
    frame_rate,
)

ANSWER = AnswerFormat("ANSWER: ", tuple(str(level) for level in LEVELS))


@dataclass(frozen=True)
class RubricOptions:
    """Options of the rubric, over any backend."""

    answer: str = option("generate", "logits: probabilities of the digits after ANSWER:; generate: what it writes")
    parser: str = option("strict", "how what it wrote is read: strict, helm or robometer")
    order: str = option("video_first", "what stands first in the prompt: video_first or text_first")
    tokens: int = option(128, "most tokens it may write")

    def __post_init__(self) -> None:
        one_of("answer", self.answer, ("logits", "generate"))
        one_of("parser", self.parser, tuple(PARSERS))
        one_of("order", self.order, ("video_first", "text_first", "video", "text"))
        at_least_one("tokens", self.tokens)

    @property
    def video_first(self) -> bool:
        """Tell whether the video stands before the text."""
        return self.order in ("video_first", "video")


@dataclass(frozen=True)
class Rubric:
    """Asks a vision-language model for the level of each episode."""

    vlm: VisionLanguageModel
    options: RubricOptions

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the expected level under the probabilities of the five, or the level that the model writes."""
        prompts = self._prompts(episodes)
        if self.options.answer == "logits":
            return [_expected_level(probs) for probs in self.vlm.answer_probs(prompts, ANSWER)]
        completions = self.vlm.complete(prompts, self.options.tokens, ANSWER)
        return [self._parse(completion) for completion in completions]

    def _prompts(self, episodes: Sequence[Episode]) -> list[Prompt]:
        """Return one prompt per episode; episodes that show the same clip share its Video."""
        keys = map_frames(_clip_key, episodes)
        clips = dict(zip(keys, episodes))
        videos = dict(zip(clips, map_frames(_video, clips.values())))
        return [rubric_prompt(videos[key], episode.instruction, self.options) for key, episode in zip(keys, episodes)]

    def _parse(self, completion: Completion | Failure) -> Answer:
        if isinstance(completion, Failure):
            return completion
        answer = PARSERS[self.options.parser](completion.text)
        if isinstance(answer, Score):
            known = completion.choice_logprobs if answer.level.is_integer() else None
            return replace(answer, probabilities=choice_probs(known, ANSWER.choices) if known else None)
        if completion.finish == "length":
            cut = f"; the answer was cut off at {self.options.tokens} tokens, allow more with ?tokens="
            return Failure(answer.reason + cut, answer.raw)
        return answer


def rubric_prompt(video: Video, instruction: str, options: RubricOptions) -> Prompt:
    """Return what is asked about a clip, when it is scored and when a model is trained to answer."""
    text = roboreward_prompt(instruction)
    if options.video_first:
        return Prompt((video, text), prefix=(video, roboreward_prompt("")))
    return Prompt((text, video))


def _video(episode: Episode) -> Video:
    return Video(episode.frames, episode.times, frame_rate(episode.times))


def _clip_key(episode: Episode) -> str:
    """Identify the shown frames and their times without reading them."""
    clip = episode.clip
    return digest(clip.source.digest, clip.order.tobytes(), clip.positions.tobytes(), clip.fps)


def _expected_level(probs: tuple[float, ...] | Failure) -> Answer:
    if isinstance(probs, Failure):
        return probs
    return Score(float(np.array(probs) @ LEVELS), probs)


RUBRIC = VlmProtocol(
    "the RoboReward rubric, levels 1 to 5, over a vision-language model: rubric:hf:PATH, the same as hf:PATH; "
    "rubric:package.module:name for a backend of your own",
    prompt=roboreward_prompt,
    build=Rubric,
    default_options=lambda backend: RubricOptions("logits" if backend.scores_answers else "generate"),
    options=RubricOptions(),
    aliases={"max_tokens": "tokens", "first": "order"},
)
