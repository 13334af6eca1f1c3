"""Progress of a model that gives levels alone: its levels of growing prefixes of the clip."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rewardlab.core.episode import Episode, Indices, show_only
from rewardlab.core.errors import PlanError
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models.composite import name_composite, spent_together, validated_answers
from rewardlab.models.contract import ModelString, NamedModel, RewardModel, identity
from rewardlab.models.protocols.topreward import prefix_lengths

PREFIXES = 8  # of a clip that are asked about; progress between them is interpolated


@dataclass(frozen=True)
class PrefixScores:
    """Asks a model about prefixes of growing length, the last of which is the whole clip."""

    model: RewardModel

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the model's answer to each whole clip, with progress from 0 for level 1 to 1 for level 5."""
        lengths = [prefix_lengths(len(episode.clip), PREFIXES) for episode in episodes]
        prefixes = [
            show_only(episode, np.arange(length))
            for episode, some in zip(episodes, lengths, strict=True)
            for length in some
        ]
        answers = iter(validated_answers(self.model, prefixes))
        return [
            _answer([next(answers) for _ in some], some, len(episode.clip))
            for episode, some in zip(episodes, lengths, strict=True)
        ]


def _answer(answers: Sequence[Answer], lengths: Indices, frames: int) -> Answer:
    scores = [answer for answer in answers if isinstance(answer, Score)]
    failed = next((answer for answer in answers if isinstance(answer, Failure)), None)
    if failed is not None:
        return failed
    shares = [(score.level - 1) / 4 for score in scores]
    progress = np.interp(np.arange(1, frames + 1), lengths, shares)
    info = replace(scores[-1].info, **spent_together([score.info for score in scores]))
    return replace(scores[-1], progress=tuple(progress.tolist()), info=info)


def name_prefixes(string: ModelString, name_model: Callable[[str], NamedModel]) -> NamedModel:
    """Name `prefixes:MODEL`; the options are those of the model."""
    text = string.text.partition(":")[2]
    if not text:
        raise PlanError("prefixes: needs a model, such as prefixes:motion")
    member = name_model(text)
    return name_composite(
        f"{string.name}:{member.name}",
        identity("prefixes", {"count": PREFIXES}),
        [member],
        lambda built, _budget: PrefixScores(built[0]),
    )
