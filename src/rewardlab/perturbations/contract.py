"""What a perturbation is, the decorators that make one of a function, and what becomes of the label."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Required, TypedDict, Unpack

from numpy.random import Generator

from rewardlab.core.episode import (
    DeferredFrames,
    Episode,
    Frames,
    FrameSource,
    Indices,
    Label,
    level_of_progress,
    rearrange,
    view_episodes,
    with_frames,
)
from rewardlab.core.errors import DataError, NotApplicable, PlanError
from rewardlab.core.limits import CLIP_MB
from rewardlab.core.seeding import digest, pick, rng_for
from rewardlab.core.trial import SEVERITIES, Category, Expectation, Randomness, SeverityTable

Channel = str  # frames, order or instruction; several joined by + where a change needs them all
Stage = Literal["stream", "sampled"]  # the whole video stream, or the frames sampled from it for the model
# The true label stays, stays where a guard holds (else NotApplicable), changes by a stated rule, or is not known.
LabelEffect = Literal["keeps", "keeps_if", "changes", "unknown"]
Episodes = Sequence[Episode]


@dataclass(frozen=True)
class PerturbedEpisode:
    """A perturbed episode with its adjusted label, and what a sound model must do on it."""

    episode: Episode
    expect: Expectation


Apply = Callable[[Episode, Any, Generator, Episodes], PerturbedEpisode]


@dataclass(frozen=True)
class Perturbation:
    """A named change of the channels it declares, at severities 1 to 4; the decorators below make one of a function.

    `parameter` names the numbers of `table`, the value at each severity. Whoever changes what comes out for the same
    input raises `version`; tests/perturbations/golden.json holds what each version makes.
    """

    name: str
    summary: str
    category: Category
    channel: Channel
    parameter: str
    table: SeverityTable
    apply: Apply
    based_on: str = "rewardlab"
    randomness: Randomness = "none"
    label: LabelEffect = "keeps"
    expect: Expectation = "same"
    stage: Stage = "sampled"
    uses_dataset: bool = False
    uses_world: bool = False  # needs the record from which a simulator renders the episode again
    version: int = 1
    members: tuple["Perturbation", ...] = ()  # one of these is drawn for each episode
    content: str = ""  # digest of what no version covers: code from outside the package, the parts of a composition

    @property
    def fingerprint(self) -> str:
        """Identify name, severity table and behaviour, so that a changed perturbation makes new trials."""
        try:
            table = json.dumps(self.table, sort_keys=True, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise PlanError(f"the table of {self.name} must hold finite numbers, texts or tuples: {error}") from error
        members = (member.fingerprint for member in self.members)
        return digest(self.name, table, self.version, self.content, *members)

    def __call__(self, episode: Episode, severity: int, seed: int, dataset: Episodes = ()) -> PerturbedEpisode:
        """Return the perturbed episode; severity 0 returns the very same one. Raises NotApplicable where undefined."""
        if severity not in SEVERITIES:
            raise PlanError(f"severity must be 0, 1, 2, 3 or 4, got {severity!r}")
        if severity == 0:
            return PerturbedEpisode(episode, "same")
        if self.members:
            return self.member_for(episode, seed)(episode, severity, seed, dataset)
        if self._holds_too_much(episode):
            return self._refusal()(episode, severity, seed, dataset)
        if not episode.views:
            return self.apply(episode, self.table[severity - 1], self._rng(episode, seed), dataset)
        return self._with_views(episode, severity, seed, dataset)

    def _with_views(self, episode: Episode, severity: int, seed: int, dataset: Episodes) -> PerturbedEpisode:
        """Perturb the first view; the others change alike, with the same draws, when a model reads them."""
        parameter = self.table[severity - 1]
        first = self.apply(replace(episode, views={}), parameter, self._rng(episode, seed), dataset)
        views: dict[str, FrameSource] = dict(episode.views)  # what reorders frames picks from every view alike
        if "frames" in self.channel.split("+"):
            count, known = first.episode.clip.source.count, (self.fingerprint, severity, seed, episode.original_video)
            for name, view in view_episodes(episode).items():

                def make(name: str = name, view: Episode = view) -> FrameSource:
                    if self.uses_world:
                        raise DataError(f"view {name}: the simulator renders a changed scene for the first camera only")
                    try:
                        return self.apply(view, parameter, self._rng(episode, seed), dataset).episode.clip.source
                    except NotApplicable as error:
                        raise DataError(f"view {name}: {error}") from None

                views[name] = DeferredFrames(digest(*known, episode.views[name].digest), count, make)
        return replace(first, episode=replace(first.episode, views=views))

    def member_for(self, episode: Episode, seed: int) -> "Perturbation":
        """Return the member drawn for this episode; a perturbation without members is its own.

        One that needs the whole video in memory refuses a video that is too large, before any frame is decoded.
        """
        member = self
        if self.members:
            rng = self._rng(episode, seed)
            member = pick(self.members, rng)
            if episode.sim_state is None and member.uses_world:
                # A second draw, not one among fewer, so clips with and without a simulator share the other members.
                member = pick([other for other in self.members if not other.uses_world] or self.members, rng)
        return member._refusal() if member._holds_too_much(episode) else member

    def _holds_too_much(self, episode: Episode) -> bool:
        whole = self.stage == "stream" and "frames" in self.channel.split("+")
        return whole and len(episode.clip) * episode.clip.frame_bytes > CLIP_MB.in_bytes

    def _refusal(self) -> "Perturbation":
        def apply(_episode: Episode, _parameter: Any, _rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
            raise NotApplicable(f"{self.name} needs all frames in memory at once: {CLIP_MB.describe(' MB')}")

        return replace(self, stage="sampled", apply=apply)

    def _rng(self, episode: Episode, seed: int) -> Generator:
        # Severity is no part of the key: stronger changes extend the weaker ones instead of redrawing them.
        return rng_for(seed, self.name, episode.clip.source.digest, episode.instruction)


class Declared(TypedDict, total=False):
    """What the decorators take by keyword; Perturbation has the defaults."""

    parameter: Required[str]
    table: Required[SeverityTable]
    based_on: str
    randomness: Randomness
    label: LabelEffect
    expect: Expectation
    stage: Stage
    uses_dataset: bool
    uses_world: bool
    version: int


def on_frames(
    category: Category, **declared: Unpack[Declared]
) -> Callable[[Callable[[Frames, Any, Generator], Frames]], Perturbation]:
    """Turn `(frames, parameter, rng) -> frames` into a perturbation of the pixels; the input is never written to."""
    expect = declared.get("expect", "same")

    def wrap(function: Callable[[Frames, Any, Generator], Frames]) -> Perturbation:
        def apply(episode: Episode, parameter: Any, rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
            return PerturbedEpisode(with_frames(episode, function(episode.frames, parameter, rng)), expect)

        return _perturbation(function, category, "frames", apply, declared)

    return wrap


def on_order(
    category: Category, **declared: Unpack[Declared]
) -> Callable[[Callable[[int, Any, Generator], Indices]], Perturbation]:
    """Turn `(frame count, parameter, rng) -> indices` into a perturbation of the order of frames.

    With `expect="relabel"` the label becomes that of the frame now last where progress is known per frame,
    and is otherwise unknown: then the reward must only not rise.
    """
    expect = declared.get("expect", "same")

    def wrap(function: Callable[[int, Any, Generator], Indices]) -> Perturbation:
        def apply(episode: Episode, parameter: Any, rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
            after = rearrange(episode, function(len(episode.clip), parameter, rng))
            return relabel_by_last_frame(episode, after) if expect == "relabel" else PerturbedEpisode(after, expect)

        return _perturbation(function, category, "order", apply, declared)

    return wrap


def on_instruction(
    category: Category, **declared: Unpack[Declared]
) -> Callable[[Callable[[str, Any, Generator], str]], Perturbation]:
    """Turn `(text, parameter, rng) -> text` into a perturbation of the instruction."""
    expect = declared.get("expect", "same")

    def wrap(function: Callable[[str, Any, Generator], str]) -> Perturbation:
        def apply(episode: Episode, parameter: Any, rng: Generator, _dataset: Episodes) -> PerturbedEpisode:
            text = function(episode.instruction, parameter, rng)
            return PerturbedEpisode(replace(episode, instruction=text), expect)

        return _perturbation(function, category, "instruction", apply, declared)

    return wrap


def on_episode(
    category: Category, *, channel: Channel, **declared: Unpack[Declared]
) -> Callable[[Apply], Perturbation]:
    """Turn `(episode, parameter, rng, dataset) -> PerturbedEpisode` into a perturbation that sets the label itself."""
    return lambda apply: _perturbation(apply, category, channel, apply, declared)


def _perturbation(
    function: Callable[..., object], category: Category, channel: Channel, apply: Apply, declared: Declared
) -> Perturbation:
    if channel == "order":
        declared["stage"] = "stream"
    summary = " ".join((function.__doc__ or "").split())
    return Perturbation(function.__name__, summary, category, channel, apply=apply, **declared)


def relabel_by_last_frame(before: Episode, after: Episode) -> PerturbedEpisode:
    """Label a reordered episode by the frame now last.

    Without known progress, only a success must not be rewarded more; a failure may have undone what it had done.
    """
    if before.label.progress is None or after.label.progress is None:
        success = before.label.success is True or before.label.level == 5
        return with_unknown_label(after, "lower" if success else "undefined")
    if after.clip.order[-1] == before.clip.order[-1]:
        return PerturbedEpisode(after, "same")
    level = level_of_progress(after.label.progress[-1])
    return PerturbedEpisode(replace(after, label=replace(after.label, level=level, success=level == 5)), "relabel")


def with_unknown_label(episode: Episode, expect: Expectation) -> PerturbedEpisode:
    """Return the episode without its label: at most the direction of the reward is still known."""
    return PerturbedEpisode(replace(episode, label=Label()), expect)


def is_known_success(label: Label) -> bool:
    """Tell whether the video is known to show the whole instruction carried out."""
    return label.success is not False and (label.level == 5 or (label.level is None and label.success is True))


def require_known_success(episode: Episode) -> None:
    """Raise NotApplicable unless the rollout is a success: only then is another instruction known not to be done."""
    if not is_known_success(episode.label):
        raise NotApplicable("it needs a clip known to be a success: a failure may have done just what is asked for now")


def relabel_as_undone(episode: Episode, text: str) -> PerturbedEpisode:
    """Return the episode under an instruction of which nothing was done."""
    return PerturbedEpisode(replace(episode, instruction=text, label=Label(1, False)), "relabel")


def expect_lower(episode: Episode, text: str) -> PerturbedEpisode:
    """Return the episode under an instruction that was carried out less well, by an unknown amount."""
    return with_unknown_label(replace(episode, instruction=text), "lower")
