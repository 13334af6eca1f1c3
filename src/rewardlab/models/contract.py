"""What a reward model is: anything with `score(episodes)`; the catalog adds its name and what it may see."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rewardlab.core.episode import Episode
from rewardlab.core.trial import Answer


@runtime_checkable
class RewardModel(Protocol):
    """Judges episodes; it sees instruction, frames and times, and answers once per episode, in order."""

    def score(self, episodes: Sequence[Episode]) -> Sequence[Answer]:
        """Return one Score or Failure per episode."""


@dataclass(frozen=True)
class ModelEntry:
    """A line of the catalog: how to build the model from the text after its colon."""

    summary: str
    build: Callable[[str], RewardModel]
    sees_truth: bool = False  # controls only: every other model gets the episode without truth and provenance


@dataclass(frozen=True)
class NamedModel:
    """A model that can be built anywhere: its name, what identifies it, and how to make it."""

    name: str
    fingerprint: str
    sees_truth: bool
    build: Callable[[], RewardModel]
