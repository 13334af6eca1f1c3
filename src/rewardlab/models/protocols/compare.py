"""Which of two clips is better: a vision-language model sees clip A, then clip B, under one instruction."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rewardlab.core.episode import Episode
from rewardlab.core.trial import Failure
from rewardlab.models.contract import ComparisonProbs
from rewardlab.models.protocols.clips import ShownClips, arrange, view_videos
from rewardlab.models.vlm import UNREADABLE, AnswerFormat, Completion, Prompt, VisionLanguageModel, choice_probs

PREFERENCE = AnswerFormat("ANSWER: ", ("A", "B", "C"))
_QUESTION = """\
Clip A and clip B each show a robot that was given the task below. Judge how much of the task is done in the final \
state of each clip, without time limits. Answer in the format ANSWER: <letter>, with one of these letters:
A - the final state of clip A is closer to the completed task
B - the final state of clip B is closer to the completed task
C - both are equally close

Task: """
_LETTER = re.compile(r"\bANSWER\s*:\s*([ABC])\b", re.IGNORECASE)


@dataclass(frozen=True)
class ClipComparer:
    """Asks which of two clips, in the order in which they are shown, ends closer to the completed task."""

    vlm: VisionLanguageModel
    answer: str  # logits or generate
    tokens: int  # most that it may write
    views: str

    def compare(self, pairs: Sequence[tuple[Episode, Episode]]) -> list[ComparisonProbs | Failure]:
        """Return the probability of the first clip, of the second, and of a tie; 1 for what was written alone."""
        prompts = [comparison_prompt(self._clips(a, b), a.instruction) for a, b in pairs]
        if self.answer == "logits":
            found = self.vlm.answer_probs(prompts, PREFERENCE)
            return [each if isinstance(each, Failure) else (each[0], each[1], each[2]) for each in found]
        return [self._parse(completion) for completion in self.vlm.complete(prompts, self.tokens, PREFERENCE)]

    def _clips(self, a: Episode, b: Episode) -> ShownClips:
        return arrange([*view_videos(a, self.views, what="clip A"), *view_videos(b, self.views, what="clip B")])

    def _parse(self, completion: Completion | Failure) -> ComparisonProbs | Failure:
        if isinstance(completion, Failure):
            return completion
        known = choice_probs(completion.choice_logprobs or {}, PREFERENCE.choices)
        written = _LETTER.findall(completion.text)
        if len(written) != 1:
            return Failure(f"{UNREADABLE}: expected one 'ANSWER: ' with A, B or C", completion.text, completion.info)
        a, b, tie = known or (float(written[0].upper() == choice) for choice in PREFERENCE.choices)
        return a, b, tie


def comparison_prompt(shown: ShownClips, instruction: str) -> Prompt:
    """Return the question about two clips."""
    return Prompt((*shown.videos, shown.words + _QUESTION + instruction))
