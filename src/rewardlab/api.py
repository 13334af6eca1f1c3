"""`stress`, `bench`, `attack`, `collect`, `load_model`: what joins two features."""

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from importlib.util import find_spec
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, TypeVar, Unpack

from rewardlab.core.errors import PlanError
from rewardlab.core.old_settings import build_plan, flat_fields, setting_text
from rewardlab.core.run import Run
from rewardlab.core.settings import (
    Budget,
    Data,
    Execution,
    FramePolicyText,
    Help,
    Limit,
    Perturbations,
    RunFolder,
    Scoring,
    Seed,
    Severities,
    Sharding,
    SkipInvalid,
    all_arguments,
    settings_of,
    several,
)
from rewardlab.core.settings import Names as ModelNames
from rewardlab.core.terminal import loading
from rewardlab.core.trial import SEVERITIES
from rewardlab.data import choose_split
from rewardlab.evaluation import plan as evaluation_plan
from rewardlab.evaluation.attack import AttackRun, run_attack
from rewardlab.evaluation.bench import run_benchmark
from rewardlab.evaluation.evaluate import evaluate
from rewardlab.evaluation.plan import make_plan
from rewardlab.models import name_model
from rewardlab.models.contract import NamedModel, RewardModel
from rewardlab.reporting.contact_sheets import write_counterexamples
from rewardlab.reporting.report import write_report
from rewardlab.serving.listening import ServePlan
from rewardlab.serving.verify import VerifyPlan

Verb = TypeVar("Verb", bound=Callable[..., Any])
Plan = TypeVar("Plan")
Names = str | Sequence[str]  # one name, or several
Place = str | Path


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


AnyModel = str | RewardModel | NamedModel  # a model string, or an object with `score`
Models = Annotated[
    AnyModel | Sequence[AnyModel], Help("models to evaluate, such as pocket, openai:MODEL@URL or package.module:name")
]
Controls = Annotated[bool, Help("leave out the controls constant, random, length and oracle")]
DescribeFailures = Annotated[
    int, Help("have vision-language models describe N of the clips they misjudged, up to 12", more=True)
]


def load_model(model: str) -> RewardModel:
    """Return the model that a string names, ready to score; this may load weights."""
    return name_model(model).build()


def stress(
    models: Models,
    data: Data,
    *,
    perturbations: Perturbations = ("quick",),
    severities: Severities = (1, 2, 3, 4),
    frames: FramePolicyText = "uniform:16",
    controls: Controls = True,
    accuracy_threshold: Annotated[
        float, Help("success accuracy below which a model counts as unreliable", more=True)
    ] = 0.70,
    seed: Seed = 0,
    limit: Limit = None,
    skip_invalid: SkipInvalid = False,
    describe_failures: DescribeFailures = 0,
    name: ModelNames = (),
    out: RunFolder = None,
    execution: Execution = Execution(),
    scoring: Scoring = Scoring(),
    budget: Budget = Budget(),
    sharding: Sharding = Sharding(),
) -> Run:
    """Perturb a dataset, score it with one or more models, and write a report.

    Examples:
        rewardlab stress pocket sample
        rewardlab stress pocket my_model:Reward data/rollouts --perturbations visual,temporal --limit 50
    """
    run = evaluate(stress_plan(locals()))
    return run if sharding.shard else _reported(run, quiet=execution.quiet)


def stress_plan(given: Mapping[str, Any]) -> evaluation_plan.Plan:
    """Return the plan of `stress` with these arguments; its groups may be given flat."""
    return make_plan("stress", stress, given)


def bench(
    models: Models,
    data: Annotated[
        str | Path, Help("a copy of teetone/RoboReward, one of its splits, any dataset, or hub:teetone/RoboReward")
    ],
    *,
    split: Annotated[str, Help("split to evaluate where DATA holds several")] = "test",
    frames: FramePolicyText = "fps:1",
    controls: Controls = True,
    duplicates: Annotated[bool, Help("do not look for duplicate and near-duplicate videos")] = True,
    against: Annotated[
        str | Path | None, Help("training set in which to look for the evaluated videos", metavar="DATA")
    ] = None,
    seed: Seed = 0,
    limit: Limit = None,
    skip_invalid: SkipInvalid = False,
    describe_failures: DescribeFailures = 0,
    name: ModelNames = (),
    out: RunFolder = None,
    execution: Execution = Execution(),
    scoring: Scoring = Scoring(),
    budget: Budget = Budget(),
) -> Run:
    """Score clean episodes by the RoboRewardBench protocol; report the error per subset and overall.

    Examples:
        rewardlab bench pocket hub:teetone/RoboReward
        rewardlab bench pocket data/RoboReward --split val --against data/train
    """
    plan = bench_plan(locals())
    training = None if against is None else str(against)
    return _reported(run_benchmark(plan, duplicates=duplicates, against=training), quiet=execution.quiet)


def bench_plan(given: Mapping[str, Any]) -> evaluation_plan.Plan:
    """Return the plan of `bench` with these arguments; its groups may be given flat."""
    arguments = all_arguments(bench, given)
    return make_plan("bench", bench, arguments, data=choose_split(str(arguments["data"]), arguments["split"]))


def attack(
    model: Annotated[AnyModel, Help("model to attack")],
    data: Data,
    *,
    perturbations: Perturbations = ("all",),
    queries: Annotated[int, Help("queries per episode and strategy, beside the clean one")] = 60,
    strategy: Annotated[
        Literal["search", "random", "both"], Help("search, random changes at random severities, or both")
    ] = "search",
    frames: FramePolicyText = "uniform:16",
    seed: Seed = 0,
    limit: Limit = None,
    skip_invalid: SkipInvalid = False,
    name: ModelNames = (),
    out: RunFolder = None,
    execution: Execution = Execution(),
    scoring: Scoring = Scoring(),
    budget: Budget = Budget(),
) -> AttackRun:
    """Search each episode for the smallest change that turns a correct verdict into a wrong one; write the clips.

    Examples:
        rewardlab attack pocket sample-sim
        rewardlab attack pocket sample-sim --perturbations temporal --queries 30
    """
    found = run_attack(make_plan("attack", attack, locals(), severities=SEVERITIES[1:]), queries, strategy)
    with loading("writing the clips", quiet=execution.quiet):
        write_counterexamples(found)
        found.run.publish()
    return found


def _reported(run: Run, *, quiet: bool) -> Run:
    with loading("writing the report", quiet=quiet):
        write_report([run], run.page, allow_code=True)  # made by this very process
        run.publish()
    return run


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


# Verbs about many runs: list them, ask their trials in SQL, put shards together, and hand numbers on.


_SERVE_PACKAGES = ("fastapi", "uvicorn", "python_multipart", "websockets", "prometheus_client")


@documented_by(ServePlan)
def serve(model: str, **settings: Unpack[ServeOptions]) -> None:
    """Serve a model over HTTP until the process is told to stop; needs the extra `serve`."""
    missing = next((name for name in _SERVE_PACKAGES if find_spec(name) is None), None)
    if missing:
        raise PlanError(f"serve needs the package {missing}; install rewardlab with its extra: rewardlab[serve]")
    from rewardlab.serving.serve import serve as serve_by_plan

    serve_by_plan(plan_from(ServePlan, {"model": model, **settings}))


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
    return collect_rollouts(
        plan,
        {setting.name: setting.default for setting in settings_of(collect)},
        lambda work, items: map_items(work, items, execution.workers, execution),
        quiet=execution.quiet,
    )
