"""Score one job: decode once, perturb once a condition, ask each model; and the same inside a worker."""

import logging
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rewardlab.core.episode import Episode, FailureEvent, Indices, InMemoryFrames, hold_frames, hold_views, strip_labels
from rewardlab.core.errors import DataError, NotApplicable, RewardlabError, StopRun, WorkerFailed
from rewardlab.core.limits import CLIP_MB
from rewardlab.core.seeding import digest
from rewardlab.core.trial import CLEAN, Answer, Failure, Trial
from rewardlab.data.video import sample_frames
from rewardlab.evaluation.engines.contract import Service, Tell
from rewardlab.evaluation.engines.processes import Process
from rewardlab.evaluation.isolated_model import start_model
from rewardlab.evaluation.plan import EpisodeTrials, Job, PlannedTrial, ScoringContext
from rewardlab.models.composite import build_all, build_model, checked_answers
from rewardlab.models.contract import ASKING, RewardModel
from rewardlab.perturbations.contract import PerturbedEpisode

Prepare = Callable[[Sequence[PlannedTrial]], None]  # told which trials are about to be decoded or perturbed
Begin = Callable[[list[Trial]], None]  # told which trials a model is about to score
End = Callable[[list[Trial]], None]  # told what came out


@dataclass(frozen=True)
class TrialGroup:
    """The trials that show one perturbed episode: what it is, or the reason why there is none."""

    origin: Episode
    trials: tuple[PlannedTrial, ...]
    category: str
    outcome: PerturbedEpisode | str
    dropped: bool = False


@dataclass(frozen=True)
class Listeners:
    """Who is told what a worker is at, so that its exit costs no more than that, and what came out."""

    prepare: Prepare
    begin: Begin
    end: End


def score_job(job: Job, context: ScoringContext, models: Mapping[str, RewardModel], tell: Listeners) -> None:
    """Score every trial of a job and hand over the trials as they come."""
    waiting: list[TrialGroup] = []
    held_bytes = 0  # of frames, until the models are asked
    for group in (group for planned in job.episodes for group in perturb_trials(planned, context, tell.prepare)):
        if isinstance(group.outcome, str):
            tell.end([_draft(context, group, trial) for trial in group.trials])
            continue
        waiting.append(group)
        shown = group.outcome.episode
        held_bytes += len(shown.clip) * shown.clip.frame_bytes * (1 + len(shown.views))
        if len(waiting) == context.batch or held_bytes > CLIP_MB.in_bytes:
            _ask_models(job, context, waiting, models, tell)
            waiting, held_bytes = [], 0
    if waiting:
        _ask_models(job, context, waiting, models, tell)


def failed_trials(job: Job, context: ScoringContext, trials: Sequence[PlannedTrial], reason: str) -> list[Trial]:
    """Return the outcome of trials that could not even be prepared."""
    ids = {trial.id for trial in trials}
    lost = [(planned.episode, trial) for planned in job.episodes for trial in planned.trials if trial.id in ids]
    return [_draft(context, TrialGroup(e, (c,), _category(context, c.perturbation), reason), c) for e, c in lost]


def perturb_trials(
    planned: EpisodeTrials, context: ScoringContext, prepare: Prepare = lambda _trials: None
) -> Iterator[TrialGroup]:
    """Yield the episode under each perturbation and severity that is open; the video is decoded once."""
    groups: dict[tuple[str, int], list[PlannedTrial]] = {}
    for trial in planned.trials:
        groups.setdefault((trial.perturbation, trial.severity), []).append(trial)
    prepare(planned.trials)
    try:
        episode = _with_decoded_frames(planned.episode, groups, context)
    except RewardlabError as error:
        for (name, _), trials in groups.items():
            yield TrialGroup(planned.episode, tuple(trials), _category(context, name), str(error))
        return
    for (name, severity), trials in groups.items():
        prepare(trials)
        yield _perturbed_group(episode, context, name, severity, tuple(trials))


def _perturbed_group(
    episode: Episode, context: ScoringContext, name: str, severity: int, trials: tuple[PlannedTrial, ...]
) -> TrialGroup:
    outcome: PerturbedEpisode | str
    dropped = False
    try:
        outcome = _perturbed(episode, context, name, severity)
        clip = outcome.episode.clip
        if not isinstance(clip.source, InMemoryFrames):  # the video was too large to be decoded for all at once
            held = replace(outcome.episode, clip=hold_frames(clip, np.unique(clip.order)))
            outcome = replace(outcome, episode=held)
    except (DataError, NotApplicable) as error:
        outcome, dropped = str(error), isinstance(error, NotApplicable)
    except Exception as error:  # a fault in a perturbation must cost its own trials only
        outcome = f"perturbation {name} failed: {type(error).__name__}: {error}"
    return TrialGroup(episode, trials, _category(context, name), outcome, dropped)


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
    """Return the episode with the frames that some trial will show in memory, decoded in one pass."""
    needed = np.unique(np.concatenate([_frames_needed(episode, context, name, severity) for name, severity in groups]))
    if len(needed) * episode.clip.frame_bytes > CLIP_MB.in_bytes:
        return episode  # each condition decodes its own frames: fewer at a time, and only what is too much fails
    return hold_views(replace(episode, clip=hold_frames(episode.clip, needed)), needed)


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
    job: Job, context: ScoringContext, chunk: list[TrialGroup], models: Mapping[str, RewardModel], tell: Listeners
) -> None:
    for name, model in models.items():
        every = [(group, trial) for group in chunk for trial in group.trials if trial.model == name]
        for repeat in sorted({trial.repeat for _, trial in every}):  # no batch asks anything twice
            asking = ASKING.set(repeat)
            try:
                _ask_model(job, context, model, [pair for pair in every if pair[1].repeat == repeat], tell)
            finally:
                ASKING.reset(asking)


def _ask_model(
    job: Job, context: ScoringContext, model: RewardModel, asked: list[tuple[TrialGroup, PlannedTrial]], tell: Listeners
) -> None:
    if context.models[asked[0][1].model].sees_truth:
        reason = "the true level is unknown here, so an oracle is not asked"
        drafts = [_draft(context, group, trial) for group, trial in asked if not _has_level(group)]
        tell.end([replace(draft, status="dropped", reason=reason) for draft in drafts])
        asked = [(group, trial) for group, trial in asked if _has_level(group)]
    together = [pair for pair in asked if pair[1].id not in job.alone]
    for batch in [together, *([pair] for pair in asked if pair[1].id in job.alone)]:
        if batch:
            _ask(context, model, batch, tell)


def _has_level(group: TrialGroup) -> bool:
    return isinstance(group.outcome, PerturbedEpisode) and group.outcome.episode.label.level is not None


def _ask(
    context: ScoringContext, model: RewardModel, asked: list[tuple[TrialGroup, PlannedTrial]], tell: Listeners
) -> None:
    """Ask one model about some trials; if it raises at a batch, ask again one by one."""
    drafts = [_draft(context, group, trial) for group, trial in asked]
    shown = [
        group.outcome.episode if context.models[trial.model].sees_truth else strip_labels(group.outcome.episode)
        for group, trial in asked
        if isinstance(group.outcome, PerturbedEpisode)  # all of them are
    ]
    tell.begin(drafts)
    started = time.perf_counter()
    try:
        given: Sequence[Answer] | Exception = list(model.score(shown))
    except (StopRun, WorkerFailed):
        raise
    except Exception as error:  # whatever a user's model does becomes a counted Failure
        given = error
    answers = checked_answers(given, shown)
    seconds = (time.perf_counter() - started) / len(asked)
    if isinstance(answers, list):
        tell.end([_finished(draft, answer, seconds) for draft, answer in zip(drafts, answers, strict=True)])
    elif len(asked) == 1:
        tell.end([_finished(drafts[0], answers, seconds)])
    else:
        for pair in asked:
            _ask(context, model, [pair], tell)


def _draft(context: ScoringContext, group: TrialGroup, trial: PlannedTrial) -> Trial:
    """Return the trial as it stands before the model answers: failed, with the reason known so far."""
    outcome, origin, broken = group.outcome, group.origin, isinstance(group.outcome, str)
    perturbed = PerturbedEpisode(origin, "undefined") if isinstance(outcome, str) else outcome
    episode = perturbed.episode
    failure, change = episode.label.failure, context.perturbations.get(trial.perturbation)
    if broken and failure is not None:  # which frames would have been shown is not known
        failure = FailureEvent(failure.cause)
    return Trial(
        id=trial.id,
        model=trial.model,
        episode=origin.id,
        video=origin.clip.source.digest,
        subset=origin.provenance.subset,
        task=origin.provenance.task,
        perturbation=trial.perturbation,
        category=group.category,
        severity=trial.severity,
        seed=context.seed,
        expectation=perturbed.expect,
        truth_level=episode.label.level,
        truth_success=episode.label.success,
        truth_progress=None if broken else episode.label.progress,
        truth_stages=None if broken else _stages_done(episode),
        truth_failure_cause=None if failure is None else failure.cause,
        truth_failure_frame=None if failure is None else failure.frame,
        instruction=episode.instruction,
        shown=() if broken else tuple(episode.clip.order.tolist()),
        frames_hash="" if broken else frames_hash(episode),
        status="dropped" if group.dropped else "failed",
        reason=outcome if isinstance(outcome, str) else "the worker process ended while the model scored this trial",
        embodiment=origin.provenance.embodiment or None,
        perspective=origin.provenance.perspective or None,
        drawn=change.member_for(origin, context.seed).name if change and change.members else None,
        repeat=trial.repeat or None,
    )


def frames_hash(episode: Episode) -> str:
    """Identify the frames that an episode shows."""
    return digest(episode.clip.source.digest, episode.clip.order.tobytes())


def _stages_done(episode: Episode) -> tuple[int, ...] | None:
    """Return stage after stage whether it is done at each shown frame; None of an episode without stages."""
    return tuple(int(done) for stage in episode.label.stages for done in stage.done) or None


def _finished(draft: Trial, answer: Answer, seconds: float) -> Trial:
    if isinstance(answer, Failure):
        failed = replace(draft, reason=answer.reason, raw=answer.raw, traceback=answer.traceback)
        return replace(failed, seconds=seconds, info=answer.info)
    return replace(
        draft,
        status="scored",
        level=float(answer.level),
        probabilities=answer.probabilities,
        progress=answer.progress,
        raw=answer.raw,
        reason=None,
        seconds=seconds,
        info=answer.info,
    )


# The scoring of jobs in a worker: the models are built once, then each job is scored as it comes.


class _Notes(logging.Handler):
    """Hands what a worker logs, such as a retried request, to the command, which shows it."""

    def __init__(self, take: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._take = take

    def emit(self, record: logging.LogRecord) -> None:
        """Take one message."""
        self._take(record.getMessage())


def serve_jobs(context: ScoringContext, tell: Tell, *, isolate: bool = True) -> Service | None:
    """Say when the models are loaded, then score the jobs that come and tell their trials.

    Without `isolate`, models from outside are built here too, where a debugger reaches them.
    """
    say: Callable[[str, object], None] = lambda kind, content: tell(pickle.dumps((kind, content)))
    started: list[Process] = []  # of models from outside
    if isolate:
        logging.getLogger("rewardlab").addHandler(_Notes(lambda text: say("note", text)))

    def close() -> None:
        for process in started:
            process.stop()

    try:
        build = partial(start_model, started=started) if isolate else build_model
        models = build_all(context.models, context.budget, build)
    except Exception as error:
        close()
        say("exited" if isinstance(error, WorkerFailed) else "broken", str(error))
        return None
    say("ready", None)
    listeners = Listeners(
        prepare=lambda trials: say("prepare", [trial.id for trial in trials]),
        begin=lambda drafts: say("begin", drafts),
        end=lambda trials: say("end", trials),
    )

    def answer(message: bytes) -> bool:
        """Score one job; a worker whose model stopped the run, or exited, takes no other."""
        try:
            score_job(pickle.loads(message), context, models, listeners)
        except (StopRun, WorkerFailed) as error:  # this process exits with its model's: there is one way to recover
            say("stopped" if isinstance(error, StopRun) else "exited", str(error))
            return False
        say("idle", None)
        return True

    return Service(answer, close)
