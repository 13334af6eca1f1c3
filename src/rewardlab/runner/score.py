"""Scoring episodes in all their variants: decode once, perturb once, ask every model."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rewardlab.core.episode import Episode, HeldFrames, blind
from rewardlab.core.errors import NotApplicable, RewardlabError, StopRun
from rewardlab.core.seeding import digest
from rewardlab.core.trial import CLEAN, Answer, Expectation, Failure, Trial, checked
from rewardlab.data.video import FramePolicy, frame_policy, sampled
from rewardlab.models.contract import Budget, NamedModel, RewardModel
from rewardlab.perturb import choose_perturbations
from rewardlab.perturb.contract import Perturbation, PerturbedEpisode

Begin = Callable[[list[Trial]], None]  # told which cells a model is about to judge
End = Callable[[list[Trial]], None]  # told what came out


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing to score: a perturbation at a severity, judged by a model."""

    id: str
    perturbation: str
    severity: int
    model: str


@dataclass(frozen=True)
class Part:
    """The open cells of one episode."""

    episode: Episode
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Job:
    """What a worker is given at once: one episode, or several where each has but a few cells, so that batches fill.

    The cells named in `alone` are given to their model one at a time.
    """

    parts: tuple[Part, ...]
    alone: frozenset[str] = frozenset()

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Return the cells of every part."""
        return tuple(cell for part in self.parts for cell in part.cells)

    def keep(self, open_cells: Sequence[Cell], alone: frozenset[str]) -> "Job":
        """Return the job with only these cells left; those in `alone` are asked one at a time from now on."""
        ids = {cell.id for cell in open_cells}
        parts = [replace(p, cells=tuple(cell for cell in p.cells if cell.id in ids)) for p in self.parts]
        return Job(tuple(part for part in parts if part.cells), self.alone | alone)


@dataclass(frozen=True)
class Bench:
    """What every job needs: the models to ask, the perturbations by name, and the protocol."""

    models: Mapping[str, NamedModel]
    names: tuple[str, ...]
    peers: Sequence[Episode]
    frames: str
    seed: int
    batch: int
    budget: Budget = Budget()

    @cached_property
    def perturbations(self) -> Mapping[str, Perturbation]:
        """Return the perturbations that the names mean."""
        worlds = any(peer.world is not None for peer in self.peers)
        return {p.name: p for p in choose_perturbations(self.names, worlds=worlds)}

    @cached_property
    def policy(self) -> FramePolicy:
        """Return the choice of frames."""
        return frame_policy(self.frames)


@dataclass(frozen=True)
class Variant:
    """The episode as one perturbation at one severity shows it, or the reason why there is none."""

    origin: Episode
    cells: tuple[Cell, ...]
    category: str
    outcome: PerturbedEpisode | str
    dropped: bool = False


def score_job(job: Job, bench: Bench, models: Mapping[str, RewardModel], begin: Begin, end: End) -> None:
    """Score every cell of a job and hand over the trials as they come."""
    waiting: list[Variant] = []
    for variant in (variant for part in job.parts for variant in variants(part, bench)):
        if isinstance(variant.outcome, str):
            end([_draft(bench, variant, cell) for cell in variant.cells])
            continue
        waiting.append(variant)
        if len(waiting) == bench.batch:
            _ask_models(job, bench, waiting, models, begin, end)
            waiting = []
    if waiting:
        _ask_models(job, bench, waiting, models, begin, end)


def failed_trials(job: Job, bench: Bench, cells: Sequence[Cell], reason: str) -> list[Trial]:
    """Return the trials of cells that could not even be prepared."""
    ids = {cell.id for cell in cells}
    lost = [(part.episode, cell) for part in job.parts for cell in part.cells if cell.id in ids]
    return [_draft(bench, Variant(e, (c,), _category(bench, c.perturbation), reason), c) for e, c in lost]


def variants(part: Part, bench: Bench) -> Iterator[Variant]:
    """Yield the episode under each perturbation and severity that is open; the video is decoded once."""
    groups: dict[tuple[str, int], list[Cell]] = {}
    for cell in part.cells:
        groups.setdefault((cell.perturbation, cell.severity), []).append(cell)
    try:
        episode = _held(part.episode, groups, bench)
    except RewardlabError as error:
        for (name, _), cells in groups.items():
            yield Variant(part.episode, tuple(cells), _category(bench, name), str(error))
        return
    for (name, severity), cells in groups.items():
        yield _variant(episode, bench, name, severity, tuple(cells))


def _variant(episode: Episode, bench: Bench, name: str, severity: int, cells: tuple[Cell, ...]) -> Variant:
    category = _category(bench, name)
    try:
        return Variant(episode, cells, category, _changed(episode, bench, name, severity))
    except NotApplicable as error:
        return Variant(episode, cells, category, str(error), dropped=True)
    except Exception as error:  # a fault in a perturbation must cost its own cells only
        return Variant(episode, cells, category, f"perturbation {name} failed: {type(error).__name__}: {error}")


def _changed(episode: Episode, bench: Bench, name: str, severity: int) -> PerturbedEpisode:
    if name == CLEAN:
        return PerturbedEpisode(sampled(episode, bench.policy), "same")
    perturbation = bench.perturbations[name].member_for(episode, bench.seed)
    if perturbation.stage == "sampled":
        return perturbation(sampled(episode, bench.policy), severity, bench.seed, bench.peers)
    change = perturbation(episode, severity, bench.seed, bench.peers)
    return replace(change, episode=sampled(change.episode, bench.policy))


def _held(episode: Episode, groups: Mapping[tuple[str, int], object], bench: Bench) -> Episode:
    """Decode, in one pass, the frames that some variant will show, and hold them."""
    source = episode.clip.source
    needed = np.unique(np.concatenate([_needed(episode, bench, name, severity) for name, severity in groups]))
    held = HeldFrames(source.read(needed), needed, source.count, source.digest)
    return replace(episode, clip=replace(episode.clip, source=held))


def _needed(episode: Episode, bench: Bench, name: str, severity: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    if name == CLEAN:
        return sampled(episode, bench.policy).clip.order
    perturbation = bench.perturbations[name].member_for(episode, bench.seed)
    if perturbation.stage == "sampled":
        return sampled(episode, bench.policy).clip.order
    if perturbation.channel != "order":
        return np.unique(episode.clip.order)
    try:
        return _changed(episode, bench, name, severity).episode.clip.order
    except Exception:  # the reason is said when the variant is made
        return episode.clip.order[-1:]


def _category(bench: Bench, name: str) -> str:
    return CLEAN if name == CLEAN else bench.perturbations[name].category


def _ask_models(
    job: Job, bench: Bench, chunk: list[Variant], models: Mapping[str, RewardModel], begin: Begin, end: End
) -> None:
    for name, model in models.items():
        asked = [(v, cell) for v in chunk for cell in v.cells if cell.model == name]
        if bench.models[name].sees_truth:
            end([_without_truth(_draft(bench, v, cell)) for v, cell in asked if not _has_level(v)])
            asked = [(v, cell) for v, cell in asked if _has_level(v)]
        together = [pair for pair in asked if pair[1].id not in job.alone]
        for group in [together, *([pair] for pair in asked if pair[1].id in job.alone)]:
            if group:
                _ask(bench, model, group, begin, end)


def _has_level(variant: Variant) -> bool:
    return isinstance(variant.outcome, PerturbedEpisode) and variant.outcome.episode.truth.level is not None


def _without_truth(draft: Trial) -> Trial:
    return replace(draft, status="dropped", reason="the true level is unknown here, so an oracle is not asked")


def _ask(bench: Bench, model: RewardModel, group: list[tuple[Variant, Cell]], begin: Begin, end: End) -> None:
    """Ask one model about some variants; if the batch fails as a whole, ask again one by one."""
    drafts = [_draft(bench, variant, cell) for variant, cell in group]
    shown = [_shown(bench, variant, cell) for variant, cell in group]
    begin(drafts)
    started = time.perf_counter()
    answers = _answers(model, shown)
    seconds = (time.perf_counter() - started) / len(group)
    if isinstance(answers, list):
        end([_finished(draft, answer, seconds) for draft, answer in zip(drafts, answers)])
    elif len(group) == 1:
        end([_finished(drafts[0], answers, seconds)])
    else:
        for pair in group:
            _ask(bench, model, [pair], begin, end)


def _answers(model: RewardModel, shown: list[Episode]) -> list[Answer] | Answer:
    """Return one checked answer per episode, or the one Failure of the whole batch."""
    try:
        answers = list(model.score(shown))
    except StopRun:
        raise
    except Exception as error:  # whatever a user's model does becomes a counted Failure
        return checked(Failure(f"{type(error).__name__}: {error}"), 0)
    if len(answers) != len(shown):
        return Failure(f"expected {len(shown)} answers, got {len(answers)}")
    return [checked(answer, len(episode.clip)) for answer, episode in zip(answers, shown)]


def _shown(bench: Bench, variant: Variant, cell: Cell) -> Episode:
    assert isinstance(variant.outcome, PerturbedEpisode)
    episode = variant.outcome.episode
    return episode if bench.models[cell.model].sees_truth else blind(episode)


def _draft(bench: Bench, variant: Variant, cell: Cell) -> Trial:
    """Return the trial as it stands before the model answers: failed, with the reason known so far."""
    outcome, origin = variant.outcome, variant.origin
    episode = origin if isinstance(outcome, str) else outcome.episode
    expect: Expectation = "undefined" if isinstance(outcome, str) else outcome.expect
    broken = isinstance(outcome, str)
    return Trial(
        id=cell.id,
        model=cell.model,
        episode=origin.id,
        video=origin.clip.source.digest,
        subset=origin.origin.subset,
        task=origin.origin.task,
        perturbation=cell.perturbation,
        category=variant.category,
        severity=cell.severity,
        seed=bench.seed,
        expectation=expect,
        truth_level=episode.truth.level,
        truth_success=episode.truth.success,
        truth_progress=None if broken else episode.truth.progress,
        instruction=episode.instruction,
        shown=() if broken else tuple(episode.clip.order.tolist()),
        frames_hash="" if broken else digest(episode.clip.source.digest, episode.clip.order.tobytes()),
        status="dropped" if variant.dropped else "failed",
        reason=outcome if isinstance(outcome, str) else "the worker died while the model judged this cell",
    )


def _finished(draft: Trial, answer: Answer, seconds: float) -> Trial:
    if isinstance(answer, Failure):
        return replace(draft, reason=answer.reason, raw=answer.raw, seconds=seconds)
    return replace(
        draft,
        status="scored",
        level=float(answer.level),
        probabilities=answer.probabilities,
        progress=answer.progress,
        raw=answer.raw,
        reason=None,
        seconds=seconds,
    )
