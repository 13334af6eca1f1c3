"""`blank:MODEL`: the model sees grey frames in the place of the clip, so that it can only guess from the instruction.

There are as many as the clip has, at its times: a blank video. With `text_only=yes` there is one, so that not even the
length is told: the text-only control of a model that must be shown something.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from rewardlab.core.episode import Clip, Episode, in_memory
from rewardlab.core.settings import Help
from rewardlab.core.trial import Answer, Score
from rewardlab.models.composite import name_composite, read_wrapper, validated_answers
from rewardlab.models.contract import ModelString, NamedModel, RewardModel, identity

_GREY = 128


@dataclass(frozen=True)
class Blank:
    """A model that is shown grey frames."""

    model: RewardModel
    text_only: bool

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the model's answers to blank clips; a single frame has no progress over the clip."""
        answers = validated_answers(self.model, [self._blank(episode) for episode in episodes])
        if not self.text_only:
            return list(answers)
        return [replace(answer, progress=None) if isinstance(answer, Score) else answer for answer in answers]

    def _blank(self, episode: Episode) -> Episode:
        clip = episode.clip
        shown = 1 if self.text_only else len(clip)
        grey = in_memory(np.full((shown, *clip.source.read(clip.order[:1]).shape[1:]), _GREY, np.uint8))
        blank = Clip(grey, np.arange(shown), clip.positions[:shown], clip.fps)
        return replace(episode, clip=blank, views=dict.fromkeys(episode.views, grey))


def blank_settings(
    text_only: Annotated[bool, Help("show a single frame, which hides the length of the clip too")] = False,
) -> bool:
    """Return whether a single frame is shown."""
    return text_only


def name_blank(string: ModelString, name_model: Callable[[str], NamedModel]) -> NamedModel:
    """Name `blank:MODEL?text_only=...`; options other than its own are the model's."""
    needs = "the model that sees grey frames, such as blank:hf:FOLDER"
    given, model, name = read_wrapper(string, blank_settings, name_model, needs)
    text_only = blank_settings(**given)
    named = name_composite(
        name,
        identity("blank", {"version": 1, "text_only": text_only}),
        [model],
        lambda built, _budget: Blank(built[0], text_only),
    )
    return replace(named, prompt=model.prompt)
