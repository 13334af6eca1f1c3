"""`stress`, `bench`, `attack`, `collect`, `load_model`: what joins two features."""

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, replace
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, TypedDict, TypeVar, Unpack

from rewardlab.core.episode import Episode, Frames, episode_from_frames, strip_labels
from rewardlab.core.errors import PlanError
from rewardlab.core.old_settings import EngineSettings, build_plan, flat_fields, setting_text
from rewardlab.core.run import Run
from rewardlab.core.settings import Execution, Help, Seed, settings_of, several
from rewardlab.core.terminal import loading
from rewardlab.core.trial import Answer
from rewardlab.data.video import frame_policy, sample_frames
from rewardlab.evaluation.attack import AttackPlan, AttackRun, run_attack
from rewardlab.evaluation.bench import BenchPlan, run_benchmark
from rewardlab.evaluation.evaluate import StressPlan, run_stress
from rewardlab.evaluation.fit_calibration import CalibratePlan, CalibrationRun, run_calibration
from rewardlab.evaluation.fit_guard import GuardPlan, GuardRun, run_guard_fit
from rewardlab.evaluation.merge import Merged, MergePlan, merge_runs
from rewardlab.evaluation.score import episode_of_video
from rewardlab.models import name_model
from rewardlab.models.composite import validated_answers
from rewardlab.models.contract import NamedModel, RewardModel
from rewardlab.reporting.contact_sheets import write_counterexamples
from rewardlab.reporting.report import write_report

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


class AttackOptions(ScoringOptions, total=False):
    """What `attack` takes beside model and data."""

    perturbations: Names
    budget: int
    strategy: str


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
        write_report([run], run.page, allow_code=True)  # made by this very process
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


# Verbs about many runs: list them, ask their trials in SQL, put shards together, and hand numbers on.


def merge(shards: Sequence[Run | Place], out: Place) -> Merged:
    """Put shards of one run together after a check that they belong together; return what was made."""
    folders = tuple(str(shard.folder if isinstance(shard, Run) else shard) for shard in shards)
    plan = MergePlan(folders, Path(out))
    return merge_runs([Run(Path(folder)) for folder in plan.runs], plan.out)


@documented_by(GuardPlan)
def guard_fit(model: str, data: Place, **settings: Unpack[GuardFitOptions]) -> GuardRun:
    """Fit a guard that withholds doubtful successes; `MODEL+FOLDER` is then the guarded model."""
    return run_guard_fit(plan_from(GuardPlan, {"model": model, "data": data, **settings}))


# Verbs that make data: record rollouts.


def collect(
    simulator: Annotated[str, Help("the simulator: metaworld")] = "metaworld",
    *,
    tasks: Annotated[Names, Help("tasks such as drawer-open, or all", metavar="TASK")] = ("all",),
    episodes: Annotated[int, Help("episodes per task")] = 10,
    quality: Annotated[Names, Help("ways of doing the task such as expert or drops, or all", metavar="NAME")] = (
        "all",
    ),
    world: Annotated[
        Names, Help("plain, or changed worlds such as world_camera:3; each episode gets one", metavar="NAME")
    ] = ("plain",),
    camera: Annotated[Names, Help("cameras; each episode gets one of them", metavar="NAME", more=True)] = ("right",),
    balance: Annotated[bool, Help("try rollouts until every level is equally frequent")] = False,
    distractors: Annotated[int, Help("at most N objects of other tasks in the scene")] = 0,
    counterfactuals: Annotated[int, Help("at most N rows with another instruction for each video")] = 0,
    captions: Annotated[bool, Help("describe in every row what the video shows, for training on captions")] = False,
    phrasings: Annotated[
        str, Help("train or held_out phrasings of the instructions", metavar="{train,held_out}", more=True)
    ] = "train",
    marker: Annotated[bool, Help("show the goal as a marker; it gives the goal away", more=True)] = False,
    size: Annotated[int, Help("side of the frame in pixels", more=True)] = 128,
    fps: Annotated[float, Help("frames per second kept of the simulator's 80", more=True)] = 10.0,
    frames: Annotated[
        tuple[int, ...], Help("least and most frames of a video; the length is drawn at random", more=True)
    ] = (24, 48),
    seed: Seed = 0,
    execution: Execution = Execution(),
    out: Annotated[Path | str, Help("dataset folder to write to")] = Path("collected"),
) -> Mapping[int, int]:
    """Record simulated rollouts of every quality with exact labels; return how many rows each level has.

    Examples:
        rewardlab collect metaworld --tasks drawer-open,push --episodes 20 --balance --out my-data
        rewardlab collect metaworld --world world_camera:3,plain --distractors 2 --out changed
    """
    from rewardlab.evaluation.engines.ordered_map import map_items
    from rewardlab.worlds.collection import collect_rollouts
    from rewardlab.worlds.metaworld.recording import Collection

    plan = Collection(
        simulator=simulator,
        tasks=several(tasks),
        episodes=episodes,
        quality=several(quality),
        world=several(world),
        camera=several(camera),
        balance=balance,
        distractors=distractors,
        counterfactuals=counterfactuals,
        captions=captions,
        phrasings=phrasings,
        marker=marker,
        size=size,
        fps=fps,
        frames=several(frames),
        seed=seed,
        out=Path(out),
    )
    engine = EngineSettings(execution.engine, execution.address, execution.gpus)
    return collect_rollouts(
        plan,
        {setting.name: setting.default for setting in settings_of(collect)},
        lambda work, items: map_items(work, items, execution.workers, engine),
        quiet=execution.quiet,
    )
