"""What a perturbation is, the decorators, what becomes of the label."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from numpy.random import Generator

from rewardlab.core import __version__
from rewardlab.core.episode import Episode, Frames, Indices, Label, level_of_progress, rearrange, with_frames
from rewardlab.core.errors import NotApplicable, PlanError
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
    """A perturbed episode, its truth already adjusted, and the expectation that a sound model meets on it."""

    episode: Episode
    expect: Expectation


Apply = Callable[[Episode, Any, Generator, Episodes], PerturbedEpisode]


@dataclass(frozen=True)
class Spec:
    """What a decorator needs beside the function; `parameter` names the numbers of the severity table."""

    category: Category
    parameter: str
    table: SeverityTable
    based_on: str = "rewardlab"
    randomness: Randomness = "none"
    label: LabelEffect = "keeps"
    expect: Expectation = "same"
    stage: Stage = "sampled"
    uses_dataset: bool = False
    uses_world: bool = False


@dataclass(frozen=True)
class Perturbation:
    """A named change of the channels it declares, at severities 1 to 4."""

    name: str
    summary: str
    category: Category
    channel: Channel
    stage: Stage
    expect: Expectation
    label: LabelEffect
    randomness: Randomness
    parameter: str
    table: SeverityTable
    based_on: str
    uses_dataset: bool
    apply: Apply
    uses_world: bool = False  # needs the record from which a simulator renders the episode again
    members: tuple["Perturbation", ...] = ()  # one of these is drawn for each episode
    code_version: str = __version__

    @property
    def fingerprint(self) -> str:
        """Identify name, severity table and code, so that a changed table is a new trial."""
        members = (member.fingerprint for member in self.members)
        return digest(self.name, repr(self.table), self.code_version, *members)

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
        return self.apply(episode, self.table[severity - 1], self._rng(episode, seed), dataset)

    def member_for(self, episode: Episode, seed: int) -> "Perturbation":
        """Return the member drawn for this episode; a perturbation without members is its own.

        One that needs the whole video in memory refuses a video that is too large, before any frame is decoded.
        """
        member = self._draw(episode, seed) if self.members else self
        return member._refusal() if member._holds_too_much(episode) else member

    def _draw(self, episode: Episode, seed: int) -> "Perturbation":
        """Return a member; where no simulator recorded the episode, one that needs none."""
        rng = self._rng(episode, seed)
        member = pick(self.members, rng)
        if episode.sim_state is not None or not member.uses_world:
            return member
        # A second draw, not one among fewer, so that clips with and without a simulator share every other member.
        return pick([other for other in self.members if not other.uses_world] or self.members, rng)

    def _holds_too_much(self, episode: Episode) -> bool:
        whole = self.stage == "stream" and "frames" in self.channel.split("+")
        return whole and len(episode.clip) * episode.clip.frame_bytes > CLIP_MB.in_bytes

    def _refusal(self) -> "Perturbation":
        def apply(episode: Episode, parameter: Any, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
            raise NotApplicable(f"{self.name} needs all frames in memory at once, in MB {CLIP_MB.describe()}")

        return replace(self, stage="sampled", apply=apply)

    def _rng(self, episode: Episode, seed: int) -> Generator:
        # Severity is no part of the key: stronger changes extend the weaker ones instead of redrawing them.
        return rng_for(seed, self.name, episode.clip.source.digest, episode.instruction)


def on_frames(spec: Spec) -> Callable[[Callable[[Frames, Any, Generator], Frames]], Perturbation]:
    """Turn `(frames, parameter, rng) -> frames` into a perturbation of the pixels; the input is never written to."""

    def wrap(function: Callable[[Frames, Any, Generator], Frames]) -> Perturbation:
        def apply(episode: Episode, parameter: Any, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
            return PerturbedEpisode(with_frames(episode, function(episode.frames, parameter, rng)), spec.expect)

        return _perturbation(function, spec, "frames", apply)

    return wrap


def on_order(spec: Spec) -> Callable[[Callable[[int, Any, Generator], Indices]], Perturbation]:
    """Turn `(frame count, parameter, rng) -> indices` into a perturbation of the order of frames.

    With `expect="relabel"` the truth becomes that of the frame now last where progress is known per frame,
    and is otherwise unknown: then the reward must only not rise.
    """

    def wrap(function: Callable[[int, Any, Generator], Indices]) -> Perturbation:
        def apply(episode: Episode, parameter: Any, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
            after = rearrange(episode, function(len(episode.clip), parameter, rng))
            relabel = spec.expect == "relabel"
            return relabel_by_last_frame(episode, after) if relabel else PerturbedEpisode(after, spec.expect)

        return _perturbation(function, replace(spec, stage="stream"), "order", apply)

    return wrap


def on_instruction(spec: Spec) -> Callable[[Callable[[str, Any, Generator], str]], Perturbation]:
    """Turn `(text, parameter, rng) -> text` into a perturbation of the instruction."""

    def wrap(function: Callable[[str, Any, Generator], str]) -> Perturbation:
        def apply(episode: Episode, parameter: Any, rng: Generator, dataset: Episodes) -> PerturbedEpisode:
            text = function(episode.instruction, parameter, rng)
            return PerturbedEpisode(replace(episode, instruction=text), spec.expect)

        return _perturbation(function, spec, "instruction", apply)

    return wrap


def on_episode(channel: Channel, spec: Spec) -> Callable[[Apply], Perturbation]:
    """Turn `(episode, parameter, rng, dataset) -> PerturbedEpisode` into a perturbation that sets the truth itself."""
    placed = replace(spec, stage="stream") if channel == "order" else spec
    return lambda apply: _perturbation(apply, placed, channel, apply)


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
    """Return the episode without its truth: at most the direction of the reward is still known."""
    return PerturbedEpisode(replace(episode, label=Label()), expect)


def _perturbation(function: Callable[..., object], spec: Spec, channel: Channel, apply: Apply) -> Perturbation:
    summary = " ".join((function.__doc__ or "").split())
    return Perturbation(
        name=function.__name__,
        summary=summary,
        category=spec.category,
        channel=channel,
        stage=spec.stage,
        expect=spec.expect,
        label=spec.label,
        randomness=spec.randomness,
        parameter=spec.parameter,
        table=spec.table,
        based_on=spec.based_on,
        uses_dataset=spec.uses_dataset,
        apply=apply,
        uses_world=spec.uses_world,
    )


# The label of a rollout under an instruction that it did not follow.


def is_known_success(truth: Label) -> bool:
    """Tell whether the video is known to show the whole instruction carried out."""
    return truth.success is not False and (truth.level == 5 or (truth.level is None and truth.success is True))


def require_known_success(episode: Episode) -> None:
    """Raise NotApplicable unless the rollout is a success: only then is another instruction known not to be done."""
    if not is_known_success(episode.label):
        raise NotApplicable("not known to be a success: a failure may have done just what is asked for now")


def relabel_as_undone(episode: Episode, text: str) -> PerturbedEpisode:
    """Return the episode under an instruction of which nothing was done."""
    return PerturbedEpisode(replace(episode, instruction=text, label=Label(1, False)), "relabel")


def expect_lower(episode: Episode, text: str) -> PerturbedEpisode:
    """Return the episode under an instruction that was carried out less well, by an unknown amount."""
    return with_unknown_label(replace(episode, instruction=text), "lower")
