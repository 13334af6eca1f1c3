"""What a reward model is: anything with `score(episodes)`; the catalog adds its name and what it may see."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from rewardlab.core.episode import Episode
from rewardlab.core.trial import Answer


@runtime_checkable
class RewardModel(Protocol):
    """Judges episodes; it sees instruction, frames and times, and answers once per episode, in order."""

    def score(self, episodes: Sequence[Episode]) -> Sequence[Answer]:
        """Return one Score or Failure per episode."""


@dataclass(frozen=True)
class Budget:
    """What a run may spend on models that cost money, and the folder where they write down what was paid for."""

    max_requests: int | None = None
    max_cost: float | None = None  # in the currency of the model's prices
    folder: Path | None = None


@dataclass(frozen=True)
class ModelEntry:
    """A line of the catalog: how to build the model from the text after its colon.

    A model that loads weights or opens connections says with `identify` how to check that text without loading, and
    what identifies the weights; any other model is built at once to see whether its text is right.
    """

    summary: str
    build: Callable[[str, Budget], RewardModel]
    sees_truth: bool = False  # controls only: every other model gets the episode without truth and provenance
    identify: Callable[[str], str] | None = None
    one_copy: bool = False  # too big for a copy per worker, or it counts what it spends: one process holds it
    caveat: str = ""  # what a reader of its numbers must know first, one sentence


@dataclass(frozen=True)
class Recipe:
    """What the text after the colon says of a model that asks others: who they are, and how they become one."""

    members: tuple[str, ...]
    identity: str  # what else, beside the members, its answers depend on
    join: Callable[[Sequence[RewardModel]], RewardModel]


@dataclass(frozen=True)
class CompoundEntry:
    """A line of the catalog for a model that asks others."""

    summary: str
    read: Callable[[str], Recipe]


@dataclass(frozen=True)
class NamedModel:
    """A model that can be built anywhere: its name, what identifies it, and how to make it.

    One that asks others has them as `members`, and `join` makes it from them, so that a process builds each once.
    """

    name: str
    fingerprint: str
    sees_truth: bool
    make: Callable[[Budget], RewardModel]
    one_copy: bool = False
    members: tuple["NamedModel", ...] = ()
    join: Callable[[Sequence[RewardModel]], RewardModel] | None = None
    caveat: str = ""

    def build(self, budget: Budget | None = None) -> RewardModel:
        """Return the model, ready to score; this may load weights."""
        return self.make(budget or Budget())
