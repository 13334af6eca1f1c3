"""Verbs that ask models: once, under stress, by the benchmark, in an attack, and to calibrate them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from rewardlab.api.options import (
    AttackOptions,
    BenchOptions,
    CalibrateOptions,
    Place,
    StressOptions,
    documented_by,
    plan_from,
)
from rewardlab.core.episode import Episode, Frames, episode_from_frames, strip_labels
from rewardlab.core.errors import PlanError
from rewardlab.core.loading_line import loading
from rewardlab.core.run import Run
from rewardlab.core.trial import Answer
from rewardlab.data.video_decoding import frame_policy, sample_frames
from rewardlab.models import name_model
from rewardlab.models.composite import validated_answers
from rewardlab.models.contract import NamedModel, RewardModel
from rewardlab.reporting.counterexamples import write_counterexamples
from rewardlab.reporting.report_files import write_report
from rewardlab.runner.ask_once import episode_of_video
from rewardlab.runner.attack import AttackPlan, AttackRun, run_attack
from rewardlab.runner.calibration_run import CalibratePlan, CalibrationRun, run_calibration
from rewardlab.runner.roborewardbench_protocol import BenchPlan, run_benchmark
from rewardlab.runner.stress import StressPlan, run_stress

AnyModel = str | RewardModel
Clip = Episode | Frames | Place


def load_model(model: str) -> RewardModel:
    """Return the model that a string names, ready to score; this may load weights."""
    return name_model(model).build()


def score(model: AnyModel, clip: Clip, instruction: str = "", *, frames: str = "uniform:16") -> Answer:
    """Ask a model once: what it says of a video file, an array of frames (T, H, W, 3) or an episode."""
    named = name_model(model)
    episode = sample_frames(_episode(clip, instruction), frame_policy(frames))
    return validated_answers(named.build(), [episode if named.sees_truth else strip_labels(episode)])[0]


@documented_by(StressPlan)
def stress(models: AnyModel | Sequence[AnyModel], data: Place, **settings: Unpack[StressOptions]) -> Run:
    """Perturb a dataset, score it with one or several models, named or given as objects, and write a report."""
    named = _named(models)
    plan = plan_from(StressPlan, {"models": [model.as_written for model in named], "data": data, **settings})
    run = run_stress(plan, own=named)
    return run if plan.scoring.shard else _reported(run, quiet=plan.scoring.quiet)


@documented_by(BenchPlan)
def bench(models: AnyModel | Sequence[AnyModel], data: Place, **settings: Unpack[BenchOptions]) -> Run:
    """Score clean episodes by the RoboRewardBench protocol and write the errors and a report."""
    named = _named(models)
    plan = plan_from(BenchPlan, {"models": [model.as_written for model in named], "data": data, **settings})
    return _reported(run_benchmark(plan, own=named), quiet=plan.scoring.quiet)


@documented_by(AttackPlan)
def attack(model: AnyModel, data: Place, **settings: Unpack[AttackOptions]) -> AttackRun:
    """Search each episode for the smallest change that turns a right verdict into a wrong one; writes the clips."""
    (named,) = _named(model)
    plan = plan_from(AttackPlan, {"model": named.as_written, "data": data, **settings})
    found = run_attack(plan, own=[named])
    with loading("writing the clips", quiet=plan.scoring.quiet):
        write_counterexamples(found)
        found.run.publish()
    return found


@documented_by(CalibratePlan)
def calibrate(model: str, data: Place, **settings: Unpack[CalibrateOptions]) -> CalibrationRun:
    """Fit what makes a model's probabilities mean what they say; `MODEL+FOLDER` is then the calibrated model."""
    return run_calibration(plan_from(CalibratePlan, {"model": model, "data": data, **settings}))


def _named(models: AnyModel | Sequence[AnyModel]) -> list[NamedModel]:
    several = models if isinstance(models, Sequence) and not isinstance(models, str) else [models]
    return [name_model(model) for model in several]


def _reported(run: Run, *, quiet: bool) -> Run:
    with loading("writing the report", quiet=quiet):
        write_report([run], run.page, trust=True)  # made by this very process
        run.publish()
    return run


def _episode(clip: Clip, instruction: str) -> Episode:
    """Return the episode to ask about; an instruction replaces the one that an episode has."""
    if isinstance(clip, Episode):
        return replace(clip, instruction=instruction) if instruction else clip
    if not instruction.strip():
        raise PlanError("say what the robot was asked to do: score(model, clip, instruction)")
    if isinstance(clip, str | Path):
        return episode_of_video(Path(clip), instruction)
    return episode_from_frames(clip, instruction)
