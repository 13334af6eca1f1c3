"""What a perturbation is: a named change at severity 0-4, and what a sound reward model must do about it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from numpy.random import Generator

from rewardlab.core.episode import Episode, Frames, Indices, Truth, level_of_progress, rearrange, with_frames
from rewardlab.core.errors import NotApplicable, PlanError
from rewardlab.core.seeding import digest, rng_for
from rewardlab.core.trial import Expectation
from rewardlab.core.version import __version__

Category = Literal["visual", "semantic", "temporal", "domain", "pair"]
Channel = str  # frames, order or instruction; several joined by + where a change needs them all
Stage = Literal["stream", "shown"]  # before frames are chosen for the model, or after
Mode = Literal["static", "iid", "ar1", "none"]  # one draw per clip, one per frame, drifting, or no chance at all
# P keeps the label, P* keeps it under a guard, C changes it by a stated rule, U leaves it undefined.
Label = str
Peers = Sequence[Episode]  # the other episodes of the dataset
Table = tuple[Any, Any, Any, Any]  # the parameter at severities 1, 2, 3 and 4

CATEGORIES: tuple[Category, ...] = ("visual", "semantic", "temporal", "domain", "pair")
SEVERITIES = (0, 1, 2, 3, 4)


@dataclass(frozen=True)
class Change:
    """A perturbed episode, its truth already adjusted, and what is expected of a sound model."""

    episode: Episode
    expect: Expectation


Apply = Callable[[Episode, Any, Generator, Peers], Change]


@dataclass(frozen=True)
class Perturbation:
    """A named change of exactly one channel; `table` holds its parameter at severities 1, 2, 3 and 4."""

    name: str
    summary: str
    category: Category
    channel: Channel
    stage: Stage
    expect: Expectation
    label: Label
    mode: Mode
    parameter: str
    table: Table
    follows: str
    uses_peers: bool
    apply: Apply
    choices: tuple["Perturbation", ...] = ()  # one of these is drawn for each episode
    code: str = __version__  # what identifies the code behind it

    @property
    def fingerprint(self) -> str:
        """Identify the definition, so that a changed table is a new trial."""
        return digest(self.name, repr(self.table), self.code, *(choice.fingerprint for choice in self.choices))

    def __call__(self, episode: Episode, severity: int, seed: int, peers: Peers = ()) -> Change:
        """Return the changed episode; severity 0 returns the very same one. Raises NotApplicable where undefined."""
        if severity not in SEVERITIES:
            raise PlanError(f"severity must be 0, 1, 2, 3 or 4, got {severity!r}")
        if severity == 0:
            return Change(episode, "same")
        if self.choices:
            return self.drawn(episode, seed)(episode, severity, seed, peers)
        return self.apply(episode, self.table[severity - 1], self._rng(episode, seed), peers)

    def drawn(self, episode: Episode, seed: int) -> "Perturbation":
        """Return the perturbation that is meant for this episode: itself, or the one drawn from its choices."""
        return self.choices[int(self._rng(episode, seed).integers(len(self.choices)))] if self.choices else self

    def _rng(self, episode: Episode, seed: int) -> Generator:
        # Severity is no part of the key: stronger changes extend the weaker ones instead of redrawing them.
        return rng_for(seed, self.name, episode.clip.source.digest, episode.instruction)


@dataclass(frozen=True)
class Definition:
    """The facts that a decorator needs beside the function; `parameter` names what the table's numbers mean."""

    category: Category
    parameter: str
    table: Table
    follows: str = "rewardlab"
    expect: Expectation = "same"
    label: Label = "P"
    mode: Mode = "none"
    stage: Stage = "shown"
    uses_peers: bool = False


def on_frames(definition: Definition) -> Callable[[Callable[[Frames, Any, Generator], Frames]], Perturbation]:
    """Turn `(frames, parameter, rng) -> frames` into a perturbation of the pixels; the input is never written to."""

    def wrap(change: Callable[[Frames, Any, Generator], Frames]) -> Perturbation:
        def apply(episode: Episode, parameter: Any, rng: Generator, peers: Peers) -> Change:
            return Change(with_frames(episode, change(episode.frames, parameter, rng)), definition.expect)

        return _named(change, definition, "frames", apply)

    return wrap


def on_order(definition: Definition) -> Callable[[Callable[[int, Any, Generator], Indices]], Perturbation]:
    """Turn `(frame count, parameter, rng) -> indices` into a perturbation of the order of frames.

    With `expect="relabel"` the truth becomes that of the frame now last where progress is known per frame,
    and is otherwise unknown: then the reward must only not rise.
    """

    def wrap(pick: Callable[[int, Any, Generator], Indices]) -> Perturbation:
        def apply(episode: Episode, parameter: Any, rng: Generator, peers: Peers) -> Change:
            moved = rearrange(episode, pick(len(episode.clip), parameter, rng))
            return relabelled(episode, moved) if definition.expect == "relabel" else Change(moved, definition.expect)

        return _named(pick, replace(definition, stage="stream"), "order", apply)

    return wrap


def on_instruction(definition: Definition) -> Callable[[Callable[[str, Any, Generator], str]], Perturbation]:
    """Turn `(text, parameter, rng) -> text` into a perturbation of the instruction."""

    def wrap(rewrite: Callable[[str, Any, Generator], str]) -> Perturbation:
        def apply(episode: Episode, parameter: Any, rng: Generator, peers: Peers) -> Change:
            text = rewrite(episode.instruction, parameter, rng)
            return Change(replace(episode, instruction=text), definition.expect)

        return _named(rewrite, definition, "instruction", apply)

    return wrap


def on_episode(channel: Channel, definition: Definition) -> Callable[[Apply], Perturbation]:
    """Turn `(episode, parameter, rng, peers) -> Change` into a perturbation; for changes that decide the truth."""
    return lambda apply: _named(apply, definition, channel, apply)


def relabelled(before: Episode, after: Episode) -> Change:
    """Label a reordered episode by the frame now last.

    Without known progress, only a success must not be rewarded more; a failure may have undone what it had done.
    """
    if before.truth.progress is None or after.truth.progress is None:
        return Change(replace(after, truth=Truth()), "lower" if _is_success(before.truth) else "undefined")
    if after.clip.order[-1] == before.clip.order[-1]:
        return Change(after, "same")
    level = level_of_progress(after.truth.progress[-1])
    return Change(replace(after, truth=replace(after.truth, level=level, success=level == 5)), "relabel")


def _is_success(truth: Truth) -> bool:
    return truth.success is True or truth.level == 5


def without_level(episode: Episode, expect: Expectation) -> Change:
    """Return the episode with its truth forgotten: only the direction of the reward is still known."""
    return Change(replace(episode, truth=Truth()), expect)


def drop(reason: str) -> NotApplicable:
    """Return the error that drops a cell; raise it where a guard fails or the change has no meaning."""
    return NotApplicable(reason)


def _named(function: Callable[..., object], facts: Definition, channel: Channel, apply: Apply) -> Perturbation:
    summary = " ".join((function.__doc__ or "").split())
    return Perturbation(
        name=function.__name__,
        summary=summary,
        category=facts.category,
        channel=channel,
        stage=facts.stage,
        expect=facts.expect,
        label=facts.label,
        mode=facts.mode,
        parameter=facts.parameter,
        table=facts.table,
        follows=facts.follows,
        uses_peers=facts.uses_peers,
        apply=apply,
    )
