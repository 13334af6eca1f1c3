"""`blank:MODEL`: the model sees grey frames in the place of the clip, so that it can only guess from the instruction.

There are as many as the clip has, at its times: a blank video. With `text_only=yes` there is one, so that not even the
length is told: the text-only control of a model that must be shown something.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from rewardlab.core.episode import Clip, Episode, in_memory
from rewardlab.core.errors import PlanError
from rewardlab.core.settings import Help
from rewardlab.core.trial import Answer, Score
from rewardlab.models.composite import name_composite, validated_answers
from rewardlab.models.contract import (
    ModelString,
    NamedModel,
    RewardModel,
    identity,
    options_of,
    read_arguments,
    shown_options,
    with_options,
)

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
    if any(key not in options_of(blank_settings) for key, _ in string.options):
        string = replace(string, argument=string.text.partition(":")[2], options=())
    if not string.argument:
        raise PlanError("blank needs the model that sees grey frames, such as blank:hf:FOLDER")
    given: dict[str, Any] = read_arguments(string.name, blank_settings, string.options)
    text_only, model = blank_settings(**given), name_model(string.argument)
    shown = shown_options(blank_settings, given)
    if "?" in model.name and not shown:  # else the options of the model would be read as those of the control
        shown = (("text_only", "no"),)
    named = name_composite(
        with_options(f"{string.name}:{model.name}", shown),
        identity("blank", {"version": 1, "text_only": text_only}),
        [model],
        lambda built, _budget: Blank(built[0], text_only),
    )
    return replace(named, prompt=model.prompt)
