"""`stress`, `bench`, `attack`, `collect`, `load_model`: what joins two features."""

import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, replace
from importlib.util import find_spec
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from rewardlab.augmentation.augment import Augmented, AugmentPlan, augment_dataset
from rewardlab.core.episode import Episode, Frames, episode_from_frames, strip_labels
from rewardlab.core.errors import PlanError
from rewardlab.core.old_settings import build_plan, flat_fields, setting_text
from rewardlab.core.run import Run, open_run
from rewardlab.core.terminal import loading
from rewardlab.core.trial import Answer
from rewardlab.data import open_dataset as read_dataset
from rewardlab.data.contract import Contents, Problem
from rewardlab.data.convert import Conversion, ConvertPlan, convert_dataset
from rewardlab.data.row_listing import paused_garbage_collection
from rewardlab.data.video import check_videos, frame_policy, map_threads, sample_frames
from rewardlab.evaluation.attack import AttackPlan, AttackRun, run_attack
from rewardlab.evaluation.bench import BenchPlan, run_benchmark
from rewardlab.evaluation.evaluate import StressPlan, run_stress
from rewardlab.evaluation.fit_calibration import CalibratePlan, CalibrationRun, run_calibration
from rewardlab.evaluation.fit_guard import GuardPlan, GuardRun, run_guard_fit
from rewardlab.evaluation.merge import Merged, MergePlan, merge_runs
from rewardlab.evaluation.runs import RunEntry, find_runs, query_trials
from rewardlab.evaluation.score import episode_of_video
from rewardlab.models import name_model
from rewardlab.models.composite import validated_answers
from rewardlab.models.contract import NamedModel, RewardModel
from rewardlab.reporting.contact_sheets import write_counterexamples
from rewardlab.reporting.data_report import DataReportPlan
from rewardlab.reporting.leaderboard import write_leaderboard
from rewardlab.reporting.perturbed_copies import PerturbPlan, perturbed_files
from rewardlab.reporting.report import write_report
from rewardlab.reporting.trackers import ExportPlan, export_run
from rewardlab.rl import RlRunPlan
from rewardlab.rl.relabel import Relabelled, RelabelPlan
from rewardlab.rl.relabel import relabel as relabel_by_plan
from rewardlab.rl.results import RlResults
from rewardlab.serving.listening import ServePlan
from rewardlab.serving.verify import VerifyPlan
from rewardlab.studies.rl.page import RlReportPlan, write_rl_page
from rewardlab.training.objectives import ObjectivePlan
from rewardlab.training.pocket import PocketPlan
from rewardlab.training.vlm import AssemblePlan, VlmPlan
from rewardlab.training.vlm import train_vlm as train_vlm_by_plan
from rewardlab.worlds.metaworld.recording import CollectPlan

if TYPE_CHECKING:
    import pyarrow


Verb = TypeVar("Verb", bound=Callable[..., Any])
Plan = TypeVar("Plan")
Names = str | Sequence[str]  # one name, or several
Place = str | Path


class ScoringOptions(TypedDict, total=False):
    """What every verb that scores takes."""

    frames: str
    seed: int
    limit: int | None
    skip_bad: bool
    retry_failures: bool
    workers: int
    batch: int
    timeout: float
    load_timeout: float
    max_restarts: int
    max_failures: int
    max_requests: int | None
    max_cost: float | None
    describe_failures: int
    quiet: bool
    name: Names
    shard: str
    engine: str
    address: str | None
    gpus: float
    out: Place | None


class StressOptions(ScoringOptions, total=False):
    """What `stress` takes beside models and data."""

    perturbations: Names
    severities: int | Sequence[int]
    controls: bool
    reliable_at: float


class BenchOptions(ScoringOptions, total=False):
    """What `bench` takes beside models and data."""

    split: str
    controls: bool
    duplicates: bool
    against: Place | None


class CalibrateOptions(ScoringOptions, total=False):
    """What `calibrate` takes beside model and data."""

    coverage: float


class GuardFitOptions(ScoringOptions, total=False):
    """What `guard_fit` takes beside model and data."""

    false_success: float
    perturbations: Names
    severities: int | Sequence[int]
    policy: str
    fallback: str
    guard: Place


class ServeOptions(TypedDict, total=False):
    """What `serve` takes beside the model."""

    host: str
    port: int
    root: Place | None
    frames: str
    max_batch: int
    max_wait: float
    queue: int
    sessions: int
    drain: int


class VerifyOptions(TypedDict, total=False):
    """What `verify` takes beside the dataset."""

    verdicts: Place | None
    overlap: float
    seed: int
    host: str
    port: int
    export: Place | None


class DataReportOptions(TypedDict, total=False):
    """What `data_report` takes beside the dataset."""

    out: Place
    videos: int
    near_duplicates: bool
    seed: int


class AugmentOptions(TypedDict, total=False):
    """What `augment` takes beside the data."""

    out: Place
    stage: Names
    vision: str
    text: str
    attempts: int
    per_source: int
    splits: Names
    calls: Place | None
    max_requests: int | None
    max_cost: float | None
    skip_bad: bool
    quiet: bool
    seed: int
    workers: int
    engine: str
    address: str | None
    gpus: float


class RelabelOptions(TypedDict, total=False):
    """What `relabel` takes beside the data."""

    model: str
    frames: str
    limit: int | None
    batch: int
    workers: int
    timeout: float
    retry_failures: bool
    max_requests: int | None
    max_cost: float | None
    quiet: bool
    engine: str
    address: str | None
    gpus: float
    run: Place | None
    out: Place


class RlRunOptions(TypedDict, total=False):
    """What `rl_run` takes beside the plan."""

    out: Place
    workers: int
    engine: str
    address: str | None
    gpus: float


class RlReportOptions(TypedDict, total=False):
    """What `rl_report` takes beside the studies."""

    out: Place


class AttackOptions(ScoringOptions, total=False):
    """What `attack` takes beside model and data."""

    perturbations: Names
    budget: int
    strategy: str


class PerturbOptions(TypedDict, total=False):
    """What `perturb` takes beside the data."""

    perturbations: Names
    severities: int | Sequence[int]
    seed: int
    limit: int | None
    sheet: bool
    out: Place


class ConvertOptions(TypedDict, total=False):
    """What `convert` takes beside source and folder."""

    to: str
    fps: float | None
    sample: int | None
    splits: Names
    duplicates: bool
    skip_bad: bool
    seed: int


class CollectOptions(TypedDict, total=False):
    """What `collect` takes beside the simulator."""

    tasks: Names
    episodes: int
    quality: Names
    world: Names
    camera: Names
    balance: bool
    things: int
    counterfactuals: int
    captions: bool
    phrasings: str
    marker: bool
    size: int
    fps: float
    frames: tuple[int, int]
    seed: int
    workers: int
    engine: str
    address: str | None
    gpus: float
    out: Place


class TrainOptions(TypedDict, total=False):
    """What `train` takes beside the recipe."""

    variants: Names
    folds: int | Sequence[int]
    eyes: str
    without: Names
    rollouts: int
    near: int
    checks: int
    tasks: Names
    kept: int
    size: int
    steps: int
    batch: int
    check_every: int
    rate: float
    seed: int
    device: str
    workers: int
    out: Place


class TrainVlmOptions(TypedDict, total=False):
    """What `train_vlm` takes beside model and data."""

    out: Place
    recipe: str
    mixture: Names
    seeds: int | Sequence[int]
    validation: str
    holdout: float
    limit: int | None
    frames: str
    lora: int
    rate: float | None
    epochs: int | None
    batch: int | None
    micro: int
    check_every: int
    checkpointing: bool
    cache_gb: float
    compile: bool
    dtype: str
    device: str
    workers: int


class TrainObjectiveOptions(TypedDict, total=False):
    """What `train_objective` takes beside the objective."""

    backbone: Names
    data: Names
    out: Place
    seeds: int | Sequence[int]
    tuning: int
    steps: int
    batch: int
    rate: float
    align_steps: int
    check_every: int
    lora: int
    frames: int
    size: int
    views: int
    tasks: Names
    fold: int
    holdout: float
    multi_step: Names
    rollouts: int
    near: int
    checks: int
    perturbations: Names
    stressed: int
    against: str
    draws: int
    seed: int
    until: str
    device: str
    workers: int


class AssembleOptions(TypedDict, total=False):
    """What `assemble_vlm` takes."""

    vision: Place
    language: Place
    out: Place
    tokens: int
    seed: int


def documented_by(plan_type: type[Any]) -> Callable[[Verb], Verb]:
    """Give a verb the signature and the help that its command has, so that `help` shows every setting."""

    def document(verb: Verb) -> Verb:
        shown = signature(verb)
        first = [p for p in shown.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        settings = [entry for entry, _ in flat_fields(plan_type) if not entry.metadata["positional"]]
        more = [Parameter(entry.name, Parameter.KEYWORD_ONLY, default=entry.default) for entry in settings]
        help_lines = [f"    {entry.name}: {entry.metadata['help']}{_default(entry.default)}" for entry in settings]
        verb.__signature__ = shown.replace(parameters=[*first, *more])  # type: ignore[attr-defined]
        verb.__doc__ = "\n".join([(verb.__doc__ or "").rstrip(), "", "    Settings:", *help_lines])
        return verb

    return document


def _default(value: object) -> str:
    if value is MISSING or value is None:
        return ""
    return f" ({setting_text(value)})"


def plan_from(plan_type: type[Plan], settings: Mapping[str, Any]) -> Plan:
    """Return the plan with these settings; one name stands for a tuple of one, and text for a path."""
    hints = {entry.name: hint for entry, hint in flat_fields(plan_type)}
    return build_plan(plan_type, {name: _as(hints.get(name), value) for name, value in settings.items()})


def _as(hint: Any, value: Any) -> Any:
    if typing.get_origin(hint) is tuple:
        return (value,) if isinstance(value, str | Path) or not isinstance(value, Sequence) else tuple(value)
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if Path in kinds and isinstance(value, str):
        return Path(value)
    return str(value) if str in kinds and isinstance(value, Path) else value


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
    plan = plan_from(StressPlan, {"models": [model.spec for model in named], "data": data, **settings})
    run = run_stress(plan, own=named)
    return run if plan.scoring.shard else _reported(run, quiet=plan.scoring.quiet)


@documented_by(BenchPlan)
def bench(models: AnyModel | Sequence[AnyModel], data: Place, **settings: Unpack[BenchOptions]) -> Run:
    """Score clean episodes by the RoboRewardBench protocol and write the errors and a report."""
    named = _named(models)
    plan = plan_from(BenchPlan, {"models": [model.spec for model in named], "data": data, **settings})
    return _reported(run_benchmark(plan, own=named), quiet=plan.scoring.quiet)


@documented_by(AttackPlan)
def attack(model: AnyModel, data: Place, **settings: Unpack[AttackOptions]) -> AttackRun:
    """Search each episode for the smallest change that turns a right verdict into a wrong one; writes the clips."""
    (named,) = _named(model)
    plan = plan_from(AttackPlan, {"model": named.spec, "data": data, **settings})
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


# Verbs about datasets: open one, list its problems, write it in another layout, and make failures of successes.

_THREADS = min(4, os.cpu_count() or 1)  # each holds the frames that its decoder refers to


def open_dataset(data: Place) -> Contents:
    """Return the sound episodes and every problem of a dataset folder, a shipped name such as sample, or hub:NAME.

    No frame is decoded; `check` does that.
    """
    return read_dataset(str(data))


def check(data: Place) -> tuple[Problem, ...]:
    """Return every problem of a dataset, with its place; every frame of every video is decoded."""
    return checked_dataset(data).problems


@documented_by(ConvertPlan)
def convert(source: Place, out: Place, **settings: Unpack[ConvertOptions]) -> Conversion:
    """Write a dataset in another layout and return what was written; a conversion that was stopped goes on.

    Rollouts that are left out are in the result with the reason.
    """
    return run_conversion(plan_from(ConvertPlan, {"source": source, "out": out, **settings}))


@documented_by(AugmentPlan)
def augment(data: Place, **settings: Unpack[AugmentOptions]) -> Augmented:
    """Make failures and near misses of the successes of a dataset and return what each stage made.

    What was stopped goes on, and no teacher is asked anything twice.
    """
    return augment_dataset(plan_from(AugmentPlan, {"data": str(data), **settings}))


def run_conversion(plan: ConvertPlan) -> Conversion:
    """Carry out a plan; with `skip_bad` every frame is decoded first, to leave out what is damaged."""
    contents = checked_dataset(plan.source) if plan.skip_bad else read_dataset(plan.source)
    return convert_dataset(plan, contents, lambda work, videos: map_threads(work, videos, _THREADS))


def checked_dataset(data: Place) -> Contents:
    """Return the episodes whose videos decode, and every problem."""
    return check_videos(open_dataset(data), lambda work, videos: map_threads(work, videos, _THREADS))


# Verbs for people who look at a dataset: have its labels verified, and write a page about it.


@documented_by(VerifyPlan)
def verify(data: Place, **settings: Unpack[VerifyOptions]) -> None:
    """Serve the page on which people check labels until the process is told to stop; needs the extra `serve`.

    With `export` nothing is served: the verified rows and their videos are written into that folder.
    """
    missing = next((name for name in ("starlette", "uvicorn") if find_spec(name) is None), None)
    if missing:
        raise PlanError(f"verify needs the package {missing}; install rewardlab with its extra: rewardlab[serve]")
    from rewardlab.serving.verify import verify as verify_by_plan

    verify_by_plan(plan_from(VerifyPlan, {"data": data, **settings}))


@documented_by(DataReportPlan)
def data_report(data: Place, **settings: Unpack[DataReportOptions]) -> Path:
    """Write a page about a dataset, with what blind models reach on it, and return its path."""
    from rewardlab.reporting.data_page import write_data_page
    from rewardlab.reporting.data_report import measure_data

    plan = plan_from(DataReportPlan, {"data": data, **settings})
    with paused_garbage_collection():
        return write_data_page(measure_data(plan), plan.out)


# Verbs that write what people look at: reports, comparisons, leaderboards, perturbed copies, a study.

AnyRun = Run | Place


def leaderboard(runs: Sequence[AnyRun], out: Place = "leaderboard", *, trust: bool = False) -> Path:
    """Write a static site that ranks the judged models of runs beside published ones; return the path of its index.

    `trust` says that the runs are yours: the datasets are opened and the code is imported that they name.
    """
    return write_leaderboard(_opened(runs), Path(out), trust=trust)


def report(*runs: AnyRun, out: Place | None = None, trust: bool = False) -> Path:
    """Write the report of a run, or of several side by side, and return the path of its page.

    `trust` says that the runs are yours: the datasets are opened and the code is imported that they name.
    """
    opened = _opened(runs)
    if not opened:
        raise PlanError("name at least one run folder")
    page = opened[0].page if len(opened) == 1 else Path("report.html")
    written = write_report(opened, Path(out) if out else page, trust=trust)
    if written == opened[0].page:
        opened[0].publish()
    return written


@documented_by(PerturbPlan)
def perturb(data: Place, **settings: Unpack[PerturbOptions]) -> list[str]:
    """Write perturbed copies or contact sheets; return what was written and what was left out, with the reason."""
    return list(perturbed_files(plan_from(PerturbPlan, {"data": data, **settings})))


def _opened(runs: Sequence[AnyRun]) -> list[Run]:
    return [run if isinstance(run, Run) else open_run(run) for run in runs]


# Verbs about rewards and policies: train policies against rewards, and write the page of what came out.

_PACKAGES = ("torch", "stable_baselines3", "gymnasium", "metaworld", "mujoco")


@documented_by(RlRunPlan)
def rl_run(plan: Place, **settings: Unpack[RlRunOptions]) -> RlResults:
    """Train every cell of a plan that is not finished yet; needs the extra `rl-train`."""
    missing = next((name for name in _PACKAGES if find_spec(name) is None), None)
    if missing:
        raise PlanError(f"rl run needs the package {missing}; install rewardlab with its extra: rewardlab[rl-train]")
    from rewardlab.rl import live_table
    from rewardlab.rl.experiment import run_rl

    with live_table() as table:
        return run_rl(plan_from(RlRunPlan, {"plan": plan, **settings}), table.add)


@documented_by(RlReportPlan)
def rl_report(runs: Place | Sequence[Place], **settings: Unpack[RlReportOptions]) -> Path:
    """Write one page about one or several studies."""
    folders = (runs,) if isinstance(runs, str | Path) else tuple(runs)
    return write_rl_page(plan_from(RlReportPlan, {"runs": folders, **settings}))


# Verbs about many runs: list them, ask their trials in SQL, put shards together, and hand numbers on.


def runs(folder: Place = "runs", *, where: Names = ()) -> list[RunEntry]:
    """Return the runs below a folder that match every condition, such as `model=pocket*`, the oldest first."""
    return find_runs(Path(folder), (where,) if isinstance(where, str) else where)


def query(sql: str, folder: Place = "runs", *, where: Names = ()) -> "pyarrow.Table":
    """Return what one SELECT says of the tables `trials` and `runs` of a folder, as an Arrow table.

    DuckDB must be installed (extra sql); the query reads nothing else.
    """
    return query_trials(runs(folder, where=where), sql)


def merge(shards: Sequence[Run | Place], out: Place) -> Merged:
    """Put shards of one run together after a check that they belong together; return what was made."""
    folders = tuple(str(shard.folder if isinstance(shard, Run) else shard) for shard in shards)
    plan = MergePlan(folders, Path(out))
    return merge_runs([Run(Path(folder)) for folder in plan.runs], plan.out)


def export(run: Run | Place, to: str = "mlflow", *, project: str = "rewardlab", place: str | None = None) -> str:
    """Write the numbers of a run to MLflow or Weights & Biases, and return where they are.

    `place` is the tracking URI of MLflow, or the folder for the offline files of wandb.
    """
    plan = ExportPlan(str(run.folder if isinstance(run, Run) else run), to, project, place)
    return export_run(Run(Path(plan.run)), plan.to, plan.project, plan.place)


# Verbs for a running robot: serve a model, fit a guard for it, write its progress into a dataset's table.

_SERVE_PACKAGES = ("fastapi", "uvicorn", "python_multipart", "websockets", "prometheus_client")


@documented_by(ServePlan)
def serve(model: str, **settings: Unpack[ServeOptions]) -> None:
    """Serve a model over HTTP until the process is told to stop; needs the extra `serve`."""
    missing = next((name for name in _SERVE_PACKAGES if find_spec(name) is None), None)
    if missing:
        raise PlanError(f"serve needs the package {missing}; install rewardlab with its extra: rewardlab[serve]")
    from rewardlab.serving.serve import serve as serve_by_plan

    serve_by_plan(plan_from(ServePlan, {"model": model, **settings}))


@documented_by(GuardPlan)
def guard_fit(model: str, data: Place, **settings: Unpack[GuardFitOptions]) -> GuardRun:
    """Fit a guard that withholds doubtful successes; `MODEL+FOLDER` is then the guarded model."""
    return run_guard_fit(plan_from(GuardPlan, {"model": model, "data": data, **settings}))


@documented_by(RelabelPlan)
def relabel(data: Place, **settings: Unpack[RelabelOptions]) -> Relabelled:
    """Write a model's progress for every frame of a dataset as the Parquet file that LeRobot reads."""
    return relabel_by_plan(plan_from(RelabelPlan, {"data": data, **settings}))


# Verbs that make data and models: record rollouts, train on them, put vision-language models together.


@documented_by(CollectPlan)
def collect(simulator: str = "metaworld", **settings: Unpack[CollectOptions]) -> Mapping[int, int]:
    """Record rollouts of every quality with exact progress as a dataset; return how many rows each level has."""
    from rewardlab.evaluation.engines.ordered_map import map_items
    from rewardlab.worlds.collection import collect as collect_rollouts

    plan = plan_from(CollectPlan, {"simulator": simulator, **settings})
    return collect_rollouts(plan, lambda work, items: map_items(work, items, plan.workers, plan.engine_settings))


@documented_by(PocketPlan)
def train(recipe: str = "pocket", **settings: Unpack[TrainOptions]) -> tuple[str, ...]:
    """Train by a recipe and return the model strings of what came out; needs torch, from the extra `train`."""
    from rewardlab.training.pocket.train import train_pocket

    plan = plan_from(PocketPlan, {"recipe": recipe, **settings})
    train_pocket(plan)
    return tuple(f"pocket:{plan.out / training.name}" for training in plan.trainings)


@documented_by(VlmPlan)
def train_vlm(model: str, data: Place | Sequence[Place], **settings: Unpack[TrainVlmOptions]) -> tuple[str, ...]:
    """Fine-tune a vision-language model to answer the 1-5 prompt and return the model strings of what came out.

    Needs torch and transformers, from the extra `vlm-train`.
    """
    several = [data] if isinstance(data, str | Path) else data
    return train_vlm_by_plan(plan_from(VlmPlan, {"model": model, "data": [str(name) for name in several], **settings}))


@documented_by(ObjectivePlan)
def train_objective(objective: str = "", **settings: Unpack[TrainObjectiveOptions]) -> tuple[str, ...]:
    """Train a contrastive backbone with objectives, all of the catalog where none is named; return the model strings.

    The folder `out` then holds comparison.json and index.html. Needs torch and transformers (extra `vlm-train`).
    """
    from rewardlab.studies.objectives import write_objective_page
    from rewardlab.training.objectives import train_objective as train_by_plan

    plan = plan_from(ObjectivePlan, {"objective": objective, **settings})
    models = train_by_plan(plan)
    if plan.does("evaluate"):
        write_objective_page(plan.out)
    return models


@documented_by(AssemblePlan)
def assemble_vlm(**settings: Unpack[AssembleOptions]) -> str:
    """Write a vision-language model made of two others as a folder, and return its model string.

    Needs torch and transformers, from the extra `assemble`.
    """
    from rewardlab.training.vlm.assembly import assemble

    return f"hf:{assemble(plan_from(AssemblePlan, settings))}"
