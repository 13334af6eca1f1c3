"""What a reward model is: anything with `score(episodes)`; the catalog adds its name and what it may see."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar, runtime_checkable

from rewardlab.core.episode import Episode
from rewardlab.core.trial import Answer, Failure
from rewardlab.models.model_string import ModelString

Spec = TypeVar("Spec")


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
class ModelEntry(Generic[Spec]):
    """A line of the catalog: how a model string becomes a model.

    `parse` checks the string and loads nothing; what it returns is all that `identify` and `build` get.
    """

    summary: str
    parse: Callable[[ModelString], Spec]
    build: Callable[[Spec, Budget], RewardModel]
    identify: Callable[[Spec], str] = lambda spec: ""  # what identifies the weights, beside the string itself
    sees_truth: bool = False  # controls only: every other model gets the episode without truth and provenance
    one_copy: bool = False  # too big for a copy per worker, or it counts what it spends: one process holds it
    apart: Callable[[Spec], bool] = lambda spec: False  # whether its code is from outside: it gets its own process
    caveat: str = ""  # what a reader of its numbers must know first, one sentence
    trained_tasks: Callable[[Spec], tuple[str, ...]] = lambda spec: ()  # tasks it was trained on, where that is known
    prompt: Callable[[str], str] = lambda instruction: ""  # what it is asked in words, where it is
    options: tuple[object, ...] = ()  # dataclasses with the default of every option, for `rewardlab show`
    speed: Callable[[Spec], frozenset[str]] = lambda spec: frozenset()  # options that are no part of its identity
    server: Callable[[Spec], bool] = lambda spec: False  # whether another machine is asked, perhaps for money
    describe: Callable[[Spec, Budget], Describer] | None = None  # what makes it say what it sees, where it can


@dataclass(frozen=True)
class Composition:
    """What the string of a composite model says: its members, and how they become one model."""

    members: tuple[str, ...]
    identity: str  # what else, beside the members, its answers depend on
    combine: Callable[[Sequence[RewardModel]], RewardModel]


@dataclass(frozen=True)
class CompositeEntry:
    """A line of the catalog for a model made of other models."""

    summary: str
    parse: Callable[[ModelString], Composition]
    options: tuple[object, ...] = ()


@dataclass(frozen=True)
class NamedModel:
    """A model that can be built anywhere: its name, what identifies it, and how to make it.

    A composite has its `members`, and `combine` makes it from them, so that a process builds each member once.
    A model whose code is from outside is kept `apart`: in a run it is asked in a process of its own.
    """

    name: str
    fingerprint: str
    sees_truth: bool
    make: Callable[[Budget], RewardModel] | None
    one_copy: bool = False
    members: tuple["NamedModel", ...] = ()
    combine: Callable[[Sequence[RewardModel]], RewardModel] | None = None
    caveat: str = ""
    trained_tasks: tuple[str, ...] = ()
    apart: bool = False
    prompt: Callable[[str], str] = lambda instruction: ""
    written: str = ""  # as the user named it, where that says more than the name: options about speed and price
    server: bool = False  # another machine is asked, perhaps for money
    describe: Callable[[Budget], Describer] | None = None  # makes what says what it sees; None where it cannot

    @property
    def as_written(self) -> str:
        """Return the string by which the user named it."""
        return self.written or self.name

    def build(self, budget: Budget | None = None) -> RewardModel:
        """Return the model, ready to score; this may load weights."""
        if self.combine is not None:
            return self.combine([member.build(budget) for member in self.members])
        assert self.make is not None
        return self.make(budget or Budget())
