"""Relabelling a dataset: a model's progress for every frame, as the Parquet file that LeRobot reads.

The episodes are scored as a stress test scores clean ones, into a run folder, so that workers may die, the command may
be stopped and go on, and what was paid for is written down; the file is made of the trials when all are there.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Episode
from rewardlab.core.errors import DataError, ModelError, PlanError
from rewardlab.core.old_settings import EngineSettings, as_command, flat_settings, setting
from rewardlab.core.run import Run, locked
from rewardlab.core.settings import Budget, Execution, Scoring
from rewardlab.core.storage import store_address, write_parquet
from rewardlab.core.trial import Trial
from rewardlab.data import open_dataset
from rewardlab.data.contract import Contents
from rewardlab.data.lerobot import progress_table
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.evaluation.evaluate import (
    finished_trials,
    score_jobs,
    scoring_context,
    start_scoring,
)
from rewardlab.evaluation.plan import (
    ACCURACY_THRESHOLD,
    CLEAN_CONDITION,
    Plan,
    ScoringContext,
    bundle_jobs,
    plan_trials,
    planned_trial,
)
from rewardlab.models import name_model

_NUMBERED = re.compile(r"episode_(\d{6,})(?:\D|$)")  # how episodes of LeRobot datasets are called

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class RelabelPlan:
    """Write a model's progress for every frame of a dataset, as the Parquet file that LeRobot reads."""

    data: str = setting("dataset folder or a shipped name; DATA@CAMERA of several cameras", positional=True)
    model: str = setting("the model whose progress is written", "pocket")
    frames: str = setting(
        "frames shown to the model: uniform:N, fps:X or all; the others are interpolated", "uniform:16"
    )
    limit: int | None = setting("use only the first N episodes", None)
    batch: int = setting("episodes given to the model at once", 8)
    workers: int = setting("processes; 0 takes one per core", 0)
    timeout: float = setting("seconds the model may take for one batch before it is stopped", 120.0)
    retry_failures: bool = setting("ask again about episodes that failed in an earlier attempt", False)
    max_requests: int | None = setting("stop before more than N requests to a paid model", None)
    max_cost: float | None = setting("stop before a paid model has cost more than this", None)
    quiet: bool = setting("print no progress", False, short="-q")
    engine_settings: EngineSettings = EngineSettings()
    run: Path | None = setting("run folder of the answers; by default runs/ plus a name made from the plan", None)
    out: Path = setting("file to write", Path("rewardlab_progress.parquet"))

    def __post_init__(self) -> None:
        frame_policy(self.frames)
        if store_address(self.out):
            raise PlanError(f"out must be a file of this machine, got {self.out}; an object store may hold the --run")
        if self.batch < 1 or (self.limit or 1) < 1:
            raise PlanError("batch and limit must be at least 1")
        self.scoring_plan()

    def scoring_plan(self) -> Plan:
        """Return the plan that asks the model about every clean episode."""
        engine = self.engine_settings
        return Plan(
            kind="relabel",
            models=(name_model(self.model),),
            controls=(),
            data=self.data,
            perturbations=("none",),
            severities=(0,),
            frames=self.frames,
            seed=0,
            limit=self.limit,
            accuracy_threshold=ACCURACY_THRESHOLD,
            skip_invalid=False,
            names=(),
            shard="",
            describe_failures=0,
            out=self.run,
            execution=Execution(self.workers, cast(Any, engine.engine), engine.address, engine.gpus, self.quiet),
            scoring=Scoring(self.batch, self.timeout, retry_failures=self.retry_failures),
            budget=Budget(self.max_requests, self.max_cost),
            settings=json.loads(json.dumps(flat_settings(self), default=str)),
            command=as_command("relabel", self),
        )


@dataclass(frozen=True)
class Relabelled:
    """What was written: how many episodes and frames, and how many episodes got no progress, and why the first."""

    path: Path
    episodes: int
    frames: int
    failed: int
    reason: str


def relabel(plan: RelabelPlan) -> Relabelled:
    """Ask the model about every episode and write the file; episodes without an answer have no numbers in it."""
    scoring_plan, episodes = plan.scoring_plan(), _episodes(plan)
    context = scoring_context(scoring_plan, episodes)
    run = start_scoring(scoring_plan, context, Contents(episodes, ()))
    with locked(run):
        trials = _scored(run, scoring_plan, context)
    (named,) = context.models.values()
    asked = [trials[planned_trial(context, episode, named, CLEAN_CONDITION).id] for episode in episodes]
    curves = [every_frame(episode, trial, plan.frames) for episode, trial in zip(episodes, asked)]
    reasons = [_reason(trial) for trial in asked if trial.progress is None]
    if len(reasons) == len(episodes):
        raise ModelError(f"{named.name} gave no progress for any episode; the first time because: {reasons[0]}")
    plan.out.parent.mkdir(parents=True, exist_ok=True)
    write_parquet(progress_table([(len(curve), curve.tolist()) for curve in curves], named.name), plan.out)
    frames = sum(len(curve) for curve in curves)
    return Relabelled(plan.out, len(episodes), frames, len(reasons), reasons[0] if reasons else "")


def _scored(run: Run, plan: Plan, context: ScoringContext) -> Mapping[str, Trial]:
    """Ask about every episode that is open, and return the trials by their id."""
    known = finished_trials(run.trials(), retry_failures=plan.scoring.retry_failures)
    jobs = bundle_jobs(plan_trials(context.dataset, context, plan.severities, known), context.batch)
    score_jobs(run, jobs, context, plan, (len(known), run.record.trials))
    run.compact()
    return {trial.id: trial for trial in run.trials().rows()}


def _reason(trial: Trial) -> str:
    return trial.reason or "the model gives no progress"


def every_frame(episode: Episode, trial: Trial, frames: str) -> Numbers:
    """Return the progress at every frame of an episode, on lines between the shown ones; nan where there is none."""
    if trial.progress is None:
        return np.full(len(episode.clip), np.nan)
    shown = sample_frames(episode, frame_policy(frames)).clip
    return np.interp(episode.clip.positions, shown.positions, trial.progress)


def _episodes(plan: RelabelPlan) -> tuple[Episode, ...]:
    contents = open_dataset(plan.data)
    if contents.problems:
        raise DataError(
            f"{plan.data} has {len(contents.problems)} problems, the first: {contents.problems[0]}; frames are counted "
            "through the whole dataset, so mend it first"
        )
    numbers = [episode_number(episode, place) for place, episode in enumerate(contents.episodes)]
    if numbers != list(range(len(numbers))):
        raise PlanError(f"the episodes of {plan.data} must be 0, 1, 2, ..., each once; name one camera as DATA@CAMERA")
    return contents.episodes[: plan.limit]


def episode_number(episode: Episode, place: int) -> int:
    """Return the index of an episode: the one in its name where it is numbered as in LeRobot, else its place."""
    numbered = _NUMBERED.match(episode.id)
    return int(numbered[1]) if numbered else place
