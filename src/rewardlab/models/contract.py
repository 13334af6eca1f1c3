"""What a reward model is: anything with `score(episodes)`; the catalog adds its name and what it may see."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from rewardlab.core.episode import Episode
from rewardlab.core.trial import Answer, Failure
from rewardlab.models.model_string import ModelString


@runtime_checkable
class RewardModel(Protocol):
    """Judges episodes; it sees instruction, frames and times, and answers once per episode, in order."""

    def score(self, episodes: Sequence[Episode]) -> Sequence[Answer]:
        """Return one Score or Failure per episode."""


class Describer(Protocol):
    """Says what it sees in clips, without being told what to look for."""

    def describe(self, episodes: Sequence[Episode]) -> Sequence[str | Failure]:
        """Return one description or Failure per episode."""


@dataclass(frozen=True)
class Budget:
    """What a run may spend on models that cost money, and the folder where they write down what was paid for."""

    max_requests: int | None = None
    max_cost: float | None = None  # in the currency of the model's prices
    folder: Path | None = None


@dataclass(frozen=True)
class NamedModel:
    """A model that can be built anywhere: its name, what identifies it, and how to make it.

    A composite has its `members`, and `combine` makes it from them, so that a process builds each member once.
    A model whose code is from outside is `isolated`: in a run it is asked in a process of its own.
    """

    name: str  # in one spelling, without what is about speed and price
    fingerprint: str  # its settings, the content of its weights or code, and the version of its behaviour
    sees_truth: bool  # controls only: every other model gets the episode without truth and provenance
    make: Callable[[Budget], RewardModel] | None
    exclusive: bool = False  # too big for a copy per worker, or it counts what it spends: one process holds it
    members: tuple["NamedModel", ...] = ()
    combine: Callable[[Sequence[RewardModel]], RewardModel] | None = None
    caveat: str = ""  # what a reader of its numbers must know first, one sentence
    trained_tasks: tuple[str, ...] = ()  # tasks it was trained on, where that is known
    isolated: bool = False
    prompt: Callable[[str], str] = lambda instruction: ""  # what it is asked in words, where it is
    spec: str = ""  # the string by which the user named it; the name where there was none
    server: bool = False  # another machine is asked, perhaps for money
    describe: Callable[[Budget], Describer] | None = None  # makes what says what it sees; None where it cannot

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", self.spec or self.name)

    def build(self, budget: Budget | None = None) -> RewardModel:
        """Return the model, ready to score; this may load weights."""
        if self.combine is not None:
            return self.combine([member.build(budget) for member in self.members])
        assert self.make is not None
        return self.make(budget or Budget())


@dataclass(frozen=True)
class ModelEntry:
    """A line of the catalog: what a model is, and how its string names one.

    `version` is the version of its behaviour: raise it by one whenever the same settings and weights give other
    answers. Runs of the old behaviour are then runs of another model; tests/models/test_identity.py holds the answers.
    """

    summary: str
    name: Callable[[ModelString], NamedModel]  # checks the string and loads nothing
    options: tuple[Callable[..., object], ...] = ()  # the signatures with its options, for `rewardlab show`
    sees_truth: bool = False
    version: int = 1
