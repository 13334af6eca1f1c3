"""`relabel`: a model's progress for every frame of a dataset, as the Parquet file that LeRobot reads.

The episodes are scored into a run folder, as a stress test scores clean ones: a crashed worker costs one episode, a
stopped command continues, and paid answers are kept. The file is written once every episode has its trial.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Episode
from rewardlab.core.errors import DataError, ModelError, PlanError
from rewardlab.core.settings import Budget, Execution, FramePolicyText, Help, Scoring
from rewardlab.core.storage import locked, store_address, writable, write_parquet
from rewardlab.core.terminal import counted
from rewardlab.core.trial import Trial
from rewardlab.data import open_dataset
from rewardlab.data.contract import Contents
from rewardlab.data.lerobot import episode_number, progress_table
from rewardlab.data.video import frame_policy, sample_frames


@dataclass(frozen=True)
class Relabelled:
    """The file that was written, its episodes and frames, how many episodes have no progress, and the first reason."""

    path: Path
    episodes: int
    frames: int
    failed: int
    reason: str


def relabel(
    data: Annotated[str | Path, Help("dataset folder or a shipped name; DATA@CAMERA where there are several cameras")],
    *,
    model: Annotated[str, Help("model whose progress is written")] = "pocket",
    frames: FramePolicyText = "uniform:16",
    limit: Annotated[int | None, Help("use only the first N episodes: the file counts frames from the first")] = None,
    run: Annotated[
        Path | str | None, Help("run folder of the scores; default: runs/ and a name made from the settings")
    ] = None,
    out: Annotated[Path | str, Help("file to write")] = Path("rewardlab_progress.parquet"),
    execution: Execution = Execution(),
    scoring: Scoring = Scoring(),
    budget: Budget = Budget(),
) -> Relabelled:
    """Write a model's progress for every frame of a dataset, as the Parquet file that LeRobot reads.

    Progress between the frames that the model is shown is interpolated; episodes without an answer have nulls.

    Examples:
        rewardlab relabel sample --model pocket --out progress.parquet
        rewardlab relabel my_dataset@front --frames fps:2 --run runs/relabel
    """
    given, out = dict(locals()), Path(out)
    policy = frame_policy(frames)
    if store_address(out):
        raise PlanError(f"out must be a file of this machine, got {out}; an object store may hold the --run")
    if out.suffix != ".parquet":
        raise PlanError(f"out must be a file that ends in .parquet, got {str(out)!r}")
    episodes = _read_episodes(str(data), limit)
    name, trials = _score_episodes(episodes, given)
    curves: list[NDArray[np.float64]] = []
    for episode, trial in zip(episodes, trials, strict=True):
        shown, every = sample_frames(episode, policy).clip.positions, episode.clip.positions
        curves.append(
            np.full(len(every), np.nan) if trial.progress is None else np.interp(every, shown, trial.progress)
        )
    reasons = [trial.reason or "the model gives no progress" for trial in trials if trial.progress is None]
    if len(reasons) == len(episodes):
        raise ModelError(f"{name} gave no progress for any episode; the first reason: {reasons[0]}")
    with writable(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    write_parquet(progress_table([(len(curve), curve.tolist()) for curve in curves], name), out)
    return Relabelled(out, len(episodes), sum(map(len, curves)), len(reasons), reasons[0] if reasons else "")


def _score_episodes(episodes: tuple[Episode, ...], given: Mapping[str, Any]) -> tuple[str, list[Trial]]:
    """Score every episode that has no trial yet; return the name of the model and the trials, one per episode.

    `given` are the arguments of `relabel`.
    """
    from rewardlab.evaluation import evaluate
    from rewardlab.evaluation.plan import (
        CLEAN_CONDITION,
        bundle_jobs,
        finished_trials,
        make_plan,
        plan_trials,
        planned_trial,
    )

    # Nothing is drawn: the episodes are the first ones.
    plan = make_plan("relabel", relabel, given, out=given["run"], limit=None)
    context = evaluate.scoring_context(plan, episodes)
    run = evaluate.start_scoring(plan, context, Contents(episodes, ()))
    with locked(run.folder):
        known = set(finished_trials(run.trials(), plan, context).arrow["id"].to_pylist())
        jobs = bundle_jobs(plan_trials(context.dataset, context, plan.severities, known), context.batch)
        evaluate.score_jobs(run, jobs, context, plan, (len(known), run.record.trials))
        run.compact()
        trials = {trial.id: trial for trial in run.trials().rows()}
    (named,) = context.models.values()
    return named.name, [trials[planned_trial(context, each, named, CLEAN_CONDITION).id] for each in episodes]


def _read_episodes(data: str, limit: int | None) -> tuple[Episode, ...]:
    from rewardlab.evaluation.plan import require_limit

    require_limit(limit)
    contents = open_dataset(data)
    if contents.problems:
        raise DataError(
            f"{data} has {counted(len(contents.problems), 'problem')}, the first: {contents.problems[0]}; frames are "
            "counted through the whole dataset, so mend it first"
        )
    if not contents.episodes:
        raise DataError(f"{data} holds no usable episode; run `rewardlab data check {data}`")
    named = [episode_number(episode.id) for episode in contents.episodes]
    numbers = [place if number is None else number for place, number in enumerate(named)]
    if len(set(numbers)) < len(numbers):
        raise PlanError(f"{data} has one episode several times; name one camera as DATA@CAMERA")
    gap = next((place for place, number in enumerate(numbers) if number != place), None)
    if gap is not None:
        what = f"episode {gap} is not in its place in {data}, and frames are counted through the whole dataset"
        raise PlanError(f"{what}; copy every episode of the dataset here, in order")
    return contents.episodes[:limit]
