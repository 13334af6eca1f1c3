"""The verbs of the command line as functions, with the same settings; the command line calls these."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from rewardlab.analysis.model_comparison import Comparison, compare_runs
from rewardlab.analysis.run_labels import run_and_model
from rewardlab.api.options import (
    BenchOptions,
    CalibrateOptions,
    CollectOptions,
    PerturbOptions,
    Place,
    StressOptions,
    TrainOptions,
    documented_by,
    plan_from,
)
from rewardlab.collection.collection_settings import CollectPlan
from rewardlab.collection.dataset_collection import collect as collect_rollouts
from rewardlab.core.episode import Episode, Frames, episode_from_frames, strip_labels, whole_clip
from rewardlab.core.errors import PlanError
from rewardlab.core.run import Run
from rewardlab.core.trial import Answer
from rewardlab.data import open_dataset as read_dataset
from rewardlab.data.contract import Contents, Problem
from rewardlab.data.video_decoding import VideoFile, frame_policy, sample_frames
from rewardlab.models import name_model
from rewardlab.models.composite import validated_answers
from rewardlab.models.contract import NamedModel, RewardModel
from rewardlab.reporting.copies_and_sheets import perturbed_files
from rewardlab.reporting.leaderboard import write_leaderboard
from rewardlab.reporting.report_files import write_report
from rewardlab.runner.calibration_run import CalibratePlan, CalibrationRun, run_calibration
from rewardlab.runner.perturbed_dataset import PerturbPlan
from rewardlab.runner.roborewardbench_protocol import BenchPlan, run_benchmark
from rewardlab.runner.stress import StressPlan, run_stress
from rewardlab.studies.perturbation_paper.measured.measured_report import write_study
from rewardlab.training.pocket.plan import PocketPlan

AnyModel = str | RewardModel
AnyRun = Run | Place
Clip = Episode | Frames | Place


def load_model(model: str) -> RewardModel:
    """Return the model that a string names, ready to score; this may load weights."""
    return name_model(model).build()


def open_dataset(data: Place) -> Contents:
    """Return the sound episodes and every problem of a dataset folder, a shipped name such as sample, or hub:NAME."""
    return read_dataset(str(data))


def check(data: Place) -> tuple[Problem, ...]:
    """Return every problem of a dataset, with its place."""
    return open_dataset(data).problems


def score(model: AnyModel, clip: Clip, instruction: str = "", *, frames: str = "uniform:16") -> Answer:
    """Ask a model once: what it says of a video file, an array of frames (T, H, W, 3) or an episode."""
    named = name_model(model)
    episode = sample_frames(_episode(clip, instruction), frame_policy(frames))
    return validated_answers(named.build(), [episode if named.sees_truth else strip_labels(episode)])[0]


@documented_by(StressPlan)
def stress(models: AnyModel | Sequence[AnyModel], data: Place, **settings: Unpack[StressOptions]) -> Run:
    """Perturb a dataset, score it with one or several models, named or given as objects, and write a report."""
    named = _named(models)
    plan = plan_from(StressPlan, {"models": [model.name for model in named], "data": str(data), **settings})
    return _reported(run_stress(plan, own=named))


@documented_by(BenchPlan)
def bench(models: AnyModel | Sequence[AnyModel], data: Place, **settings: Unpack[BenchOptions]) -> Run:
    """Score clean episodes by the RoboRewardBench protocol and write the errors and a report."""
    named = _named(models)
    plan = plan_from(BenchPlan, {"models": [model.name for model in named], "data": str(data), **settings})
    return _reported(run_benchmark(plan, own=named))


@documented_by(CalibratePlan)
def calibrate(model: str, data: Place, **settings: Unpack[CalibrateOptions]) -> CalibrationRun:
    """Fit what makes a model's probabilities mean what they say; `MODEL+FOLDER` is then the calibrated model."""
    return run_calibration(plan_from(CalibratePlan, {"model": model, "data": str(data), **settings}))


def compare(a: AnyRun, b: AnyRun, *, draws: int = 10_000, seed: int = 0) -> Comparison:
    """Compare two models on the cells both scored: runs, run folders, or FOLDER::MODEL for one model of several."""
    (run_a, model_a), (run_b, model_b) = (run_and_model(str(x.folder if isinstance(x, Run) else x)) for x in (a, b))
    return compare_runs(run_a, run_b, model_a, model_b, draws, seed)


def leaderboard(runs: Sequence[AnyRun], out: Place = "leaderboard") -> Path:
    """Write a static site that ranks the judged models of runs beside published ones; return the path of its index."""
    return write_leaderboard(_opened(runs), Path(out))


def report(*runs: AnyRun, out: Place | None = None) -> Path:
    """Write the report of a run, or of several side by side, and return the path of its page."""
    opened = _opened(runs)
    if not opened:
        raise PlanError("name at least one run folder")
    folder = opened[0].folder if len(opened) == 1 else Path()
    return write_report(opened, Path(out) if out else folder / "report.html")


@documented_by(PerturbPlan)
def perturb(data: Place, **settings: Unpack[PerturbOptions]) -> list[str]:
    """Write perturbed copies or contact sheets; return what was written and what was left out, with the reason."""
    return list(perturb_files(data, **settings))


def perturb_files(data: Place, **settings: Unpack[PerturbOptions]) -> Iterator[str]:
    """Do what `perturb` does one file at a time, and yield each name as it is written."""
    return perturbed_files(plan_from(PerturbPlan, {"data": str(data), **settings}))


@documented_by(CollectPlan)
def collect(simulator: str = "metaworld", **settings: Unpack[CollectOptions]) -> Mapping[int, int]:
    """Record rollouts of every quality with exact progress as a dataset; return how many rows each level has."""
    return collect_rollouts(plan_from(CollectPlan, {"simulator": simulator, **settings}))


@documented_by(PocketPlan)
def train(recipe: str = "pocket", **settings: Unpack[TrainOptions]) -> tuple[str, ...]:
    """Train by a recipe and return the model strings of what came out; needs torch, from the extra `train`."""
    from rewardlab.training.pocket.training_loop import train_pocket

    plan = plan_from(PocketPlan, {"recipe": recipe, **settings})
    train_pocket(plan)
    return tuple(f"pocket:{plan.out / variant}" for variant in plan.variants)


def study(run: AnyRun, out: Place, roles: Mapping[str, str] | None = None) -> list[Path]:
    """Write the tables, figures and claims of the perturbation paper as a run measured them, and return the paths.

    `roles` says which of the run's models plays general, tuned and ensemble; without it the shipped ones do.
    """
    return write_study(_opened([run])[0], Path(out), roles)


def _named(models: AnyModel | Sequence[AnyModel]) -> list[NamedModel]:
    several = models if isinstance(models, Sequence) and not isinstance(models, str) else [models]
    return [name_model(model) for model in several]


def _opened(runs: Sequence[AnyRun]) -> list[Run]:
    return [run if isinstance(run, Run) else Run(Path(run)) for run in runs]


def _reported(run: Run) -> Run:
    write_report([run], run.folder / "report.html")
    return run


def _episode(clip: Clip, instruction: str) -> Episode:
    """Return the episode to ask about; an instruction replaces the one that an episode has."""
    if isinstance(clip, Episode):
        return replace(clip, instruction=instruction) if instruction else clip
    if not instruction.strip():
        raise PlanError("say what the robot was asked to do: score(model, clip, instruction)")
    if isinstance(clip, str | Path):
        video = VideoFile(Path(clip))
        return Episode(str(clip), instruction, whole_clip(video, video.info.fps))
    return episode_from_frames(clip, instruction)
