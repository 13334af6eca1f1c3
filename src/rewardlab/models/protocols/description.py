"""Asking a vision-language model what it sees, beside its score: a false reward often comes of what was not there.

The question is that of appendix B.3 of "RoboReward: General-Purpose Vision-Language Reward Models for Robotics".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rewardlab.core.episode import Episode
from rewardlab.core.trial import Failure
from rewardlab.models.vlm import Prompt, Video, VisionLanguageModel, frame_rate

QUESTION = "Describe the video in great detail."
_TOKENS = 1024


@dataclass(frozen=True)
class ClipDescriber:
    """Asks for a description of clips; the instruction is not told, so that nothing suggests what should be there."""

    vlm: VisionLanguageModel

    def describe(self, episodes: Sequence[Episode]) -> list[str | Failure]:
        """Return what the model says it sees in each clip."""
        videos = [Video(episode.frames, episode.times, frame_rate(episode.times)) for episode in episodes]
        replies = self.vlm.complete([Prompt((video, QUESTION)) for video in videos], _TOKENS)
        return [reply if isinstance(reply, Failure) else reply.text for reply in replies]
