"""Scoring cells: an episode is decoded once, perturbed once per condition, and shown to every model."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rewardlab.core.episode import Episode, Indices, InMemoryFrames, hold_frames, strip_labels
from rewardlab.core.errors import DataError, NotApplicable, RewardlabError
from rewardlab.core.limits import CLIP_MB
from rewardlab.core.seeding import digest
from rewardlab.core.trial import CLEAN, Answer, Expectation, Failure, Trial
from rewardlab.data.video_decoding import FramePolicy, frame_policy, sample_frames
from rewardlab.models.composite import batch_answers
from rewardlab.models.contract import Budget, NamedModel, RewardModel
from rewardlab.perturbations import choose_perturbations
from rewardlab.perturbations.contract import Perturbation, PerturbedEpisode
from rewardlab.perturbations.graded_severity import graded_perturbation


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing to score: a perturbation at a severity, scored by a model."""

    id: str
    perturbation: str
    severity: int
    model: str


Prepare = Callable[[Sequence[Cell]], None]  # told which cells are about to be decoded or perturbed
Begin = Callable[[list[Trial]], None]  # told which cells a model is about to score
End = Callable[[list[Trial]], None]  # told what came out


@dataclass(frozen=True)
class EpisodeCells:
    """The open cells of one episode."""

    episode: Episode
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Job:
    """What a worker is given at once: one episode, or several where each has but a few cells, so that batches fill.

    The cells named in `alone` are given to their model one at a time. `deaths` counts the workers that died of it.
    """

    episodes: tuple[EpisodeCells, ...]
    alone: frozenset[str] = frozenset()
    deaths: int = 0

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Return the cells of every episode."""
        return tuple(cell for planned in self.episodes for cell in planned.cells)

    def keep(self, open_cells: Sequence[Cell], deaths: int) -> "Job":
        """Return the job with only these cells left, of which so many workers died."""
        ids = {cell.id for cell in open_cells}
        left = [replace(each, cells=tuple(cell for cell in each.cells if cell.id in ids)) for each in self.episodes]
        return Job(tuple(each for each in left if each.cells), self.alone, deaths)


@dataclass(frozen=True)
class ScoringContext:
    """What every job needs: the models to ask, the perturbations by name, and the protocol."""

    models: Mapping[str, NamedModel]
    names: tuple[str, ...]
    dataset: Sequence[Episode]
    frames: str
    seed: int
    batch: int
    budget: Budget = Budget()
    judged: tuple[str, ...] = ()  # the models that the run is about; the others are controls

    @cached_property
    def perturbations(self) -> Mapping[str, Perturbation]:
        """Return the perturbations that the names mean."""
        worlds = any(episode.world is not None for episode in self.dataset)
        return {p.name: p for p in choose_perturbations(self.names, worlds=worlds)}

    def perturbation(self, name: str) -> Perturbation:
        """Return the perturbation of a cell, whose name may state severities between the whole ones."""
        known = self.perturbations
        return known[name] if name in known else graded_perturbation(name, known)

    @cached_property
    def policy(self) -> FramePolicy:
        """Return the choice of frames."""
        return frame_policy(self.frames)


@dataclass(frozen=True)
class CellGroup:
    """The cells that show one perturbed episode: what it is, or the reason why there is none."""

    origin: Episode
    cells: tuple[Cell, ...]
    category: str
    outcome: PerturbedEpisode | str
    dropped: bool = False


@dataclass(frozen=True)
class Listeners:
    """Who is told what a worker is at, so that its death costs no more than that, and what came out."""

    prepare: Prepare
    begin: Begin
    end: End


def score_job(job: Job, context: ScoringContext, models: Mapping[str, RewardModel], tell: Listeners) -> None:
    """Score every cell of a job and hand over the trials as they come."""
    waiting: list[CellGroup] = []
    for group in (group for planned in job.episodes for group in perturb_cells(planned, context, tell.prepare)):
        if isinstance(group.outcome, str):
            tell.end([_draft(context, group, cell) for cell in group.cells])
            continue
        waiting.append(group)
        if len(waiting) == context.batch or _held_bytes(waiting) > CLIP_MB.in_bytes:
            _ask_models(job, context, waiting, models, tell)
            waiting = []
    if waiting:
        _ask_models(job, context, waiting, models, tell)


def _held_bytes(groups: Sequence[CellGroup]) -> int:
    """Return the size of the frames that are held until the models are asked."""
    clips = [group.outcome.episode.clip for group in groups if isinstance(group.outcome, PerturbedEpisode)]
    return sum(len(clip) * clip.frame_bytes for clip in clips)


def failed_trials(job: Job, context: ScoringContext, cells: Sequence[Cell], reason: str) -> list[Trial]:
    """Return the trials of cells that could not even be prepared."""
    ids = {cell.id for cell in cells}
    lost = [(planned.episode, cell) for planned in job.episodes for cell in planned.cells if cell.id in ids]
    return [_draft(context, CellGroup(e, (c,), _category(context, c.perturbation), reason), c) for e, c in lost]


def perturb_cells(
    planned: EpisodeCells, context: ScoringContext, prepare: Prepare = lambda cells: None
) -> Iterator[CellGroup]:
    """Yield the episode under each perturbation and severity that is open; the video is decoded once."""
    groups: dict[tuple[str, int], list[Cell]] = {}
    for cell in planned.cells:
        groups.setdefault((cell.perturbation, cell.severity), []).append(cell)
    prepare(planned.cells)
    try:
        episode = _with_decoded_frames(planned.episode, groups, context)
    except RewardlabError as error:
        for (name, _), cells in groups.items():
            yield CellGroup(planned.episode, tuple(cells), _category(context, name), str(error))
        return
    for (name, severity), cells in groups.items():
        prepare(cells)
        yield _perturbed_group(episode, context, name, severity, tuple(cells))


def _perturbed_group(
    episode: Episode, context: ScoringContext, name: str, severity: int, cells: tuple[Cell, ...]
) -> CellGroup:
    category = _category(context, name)
    try:
        return CellGroup(episode, cells, category, _with_own_frames(_perturbed(episode, context, name, severity)))
    except DataError as error:
        return CellGroup(episode, cells, category, str(error))
    except NotApplicable as error:
        return CellGroup(episode, cells, category, str(error), dropped=True)
    except Exception as error:  # a fault in a perturbation must cost its own cells only
        return CellGroup(episode, cells, category, f"perturbation {name} failed: {type(error).__name__}: {error}")


def _perturbed(episode: Episode, context: ScoringContext, name: str, severity: int) -> PerturbedEpisode:
    if name == CLEAN:
        return PerturbedEpisode(sample_frames(episode, context.policy), "same")
    perturbation = context.perturbation(name).member_for(episode, context.seed)
    if perturbation.stage == "sampled":
        return perturbation(sample_frames(episode, context.policy), severity, context.seed, context.dataset)
    perturbed = perturbation(episode, severity, context.seed, context.dataset)
    return replace(perturbed, episode=sample_frames(perturbed.episode, context.policy))


def _with_decoded_frames(
    episode: Episode, groups: Mapping[tuple[str, int], object], context: ScoringContext
) -> Episode:
    """Return the episode with the frames that some cell will show in memory, decoded in one pass."""
    needed = np.unique(np.concatenate([_frames_needed(episode, context, name, severity) for name, severity in groups]))
    if len(needed) * episode.clip.frame_bytes > CLIP_MB.in_bytes:
        return episode  # each condition decodes its own frames: fewer at a time, and only what is too much fails
    return replace(episode, clip=hold_frames(episode.clip, needed))


def _with_own_frames(perturbed: PerturbedEpisode) -> PerturbedEpisode:
    """Return the same with its frames in memory, where the video was too large to be decoded for all at once."""
    episode, clip = perturbed.episode, perturbed.episode.clip
    if isinstance(clip.source, InMemoryFrames):
        return perturbed
    return replace(perturbed, episode=replace(episode, clip=hold_frames(clip, np.unique(clip.order))))


def _frames_needed(episode: Episode, context: ScoringContext, name: str, severity: int) -> Indices:
    if name == CLEAN:
        return sample_frames(episode, context.policy).clip.order
    perturbation = context.perturbation(name).member_for(episode, context.seed)
    if perturbation.stage == "sampled":
        return sample_frames(episode, context.policy).clip.order
    if perturbation.channel != "order":
        return np.unique(episode.clip.order)
    try:
        return _perturbed(episode, context, name, severity).episode.clip.order
    except Exception:  # the reason is said when the group is made
        return episode.clip.order[-1:]


def _category(context: ScoringContext, name: str) -> str:
    return CLEAN if name == CLEAN else context.perturbation(name).category


def _ask_models(
    job: Job, context: ScoringContext, chunk: list[CellGroup], models: Mapping[str, RewardModel], tell: Listeners
) -> None:
    for name, model in models.items():
        asked = [(group, cell) for group in chunk for cell in group.cells if cell.model == name]
        if context.models[name].sees_truth:
            tell.end([_without_truth(_draft(context, group, cell)) for group, cell in asked if not _has_level(group)])
            asked = [(group, cell) for group, cell in asked if _has_level(group)]
        together = [pair for pair in asked if pair[1].id not in job.alone]
        for batch in [together, *([pair] for pair in asked if pair[1].id in job.alone)]:
            if batch:
                _ask(context, model, batch, tell)


def _has_level(group: CellGroup) -> bool:
    return isinstance(group.outcome, PerturbedEpisode) and group.outcome.episode.truth.level is not None


def _without_truth(draft: Trial) -> Trial:
    return replace(draft, status="dropped", reason="the true level is unknown here, so an oracle is not asked")


def _ask(context: ScoringContext, model: RewardModel, asked: list[tuple[CellGroup, Cell]], tell: Listeners) -> None:
    """Ask one model about some cells; if it raises at a batch, ask again one by one."""
    drafts = [_draft(context, group, cell) for group, cell in asked]
    shown = [_shown(context, group, cell) for group, cell in asked]
    tell.begin(drafts)
    started = time.perf_counter()
    answers = batch_answers(model, shown)
    seconds = (time.perf_counter() - started) / len(asked)
    if isinstance(answers, list):
        tell.end([_finished(draft, answer, seconds) for draft, answer in zip(drafts, answers)])
    elif len(asked) == 1:
        tell.end([_finished(drafts[0], answers, seconds)])
    else:
        for pair in asked:
            _ask(context, model, [pair], tell)


def _shown(context: ScoringContext, group: CellGroup, cell: Cell) -> Episode:
    assert isinstance(group.outcome, PerturbedEpisode)
    episode = group.outcome.episode
    return episode if context.models[cell.model].sees_truth else strip_labels(episode)


def _draft(context: ScoringContext, group: CellGroup, cell: Cell) -> Trial:
    """Return the trial as it stands before the model answers: failed, with the reason known so far."""
    outcome, origin = group.outcome, group.origin
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
        category=group.category,
        severity=cell.severity,
        seed=context.seed,
        expectation=expect,
        truth_level=episode.truth.level,
        truth_success=episode.truth.success,
        truth_progress=None if broken else episode.truth.progress,
        instruction=episode.instruction,
        shown=() if broken else tuple(episode.clip.order.tolist()),
        frames_hash="" if broken else digest(episode.clip.source.digest, episode.clip.order.tobytes()),
        status="dropped" if group.dropped else "failed",
        reason=outcome if isinstance(outcome, str) else "the worker died while the model scored this cell",
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
