"""`stress`, `bench`, `attack`, `collect`: what joins two features."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rewardlab.core.run import Run
from rewardlab.core.settings import (
    Budget,
    Data,
    Demonstrations,
    Execution,
    FramePolicyText,
    Help,
    Limit,
    Names,
    Perturbations,
    Repeats,
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
from rewardlab.core.terminal import loading
from rewardlab.core.trial import SEVERITIES
from rewardlab.data import choose_split
from rewardlab.models.contract import AnyModel

if TYPE_CHECKING:
    from rewardlab.evaluation import plan as evaluation_plan
    from rewardlab.evaluation.attack import AttackRun


Models = Annotated[
    AnyModel | Sequence[AnyModel], Help("models to evaluate, such as pocket, openai:MODEL@URL or package.module:name")
]
Controls = Annotated[bool, Help("leave out the controls: constant, random, length, motion, end-motion, change, oracle")]
Stages = Annotated[bool, Help("also score every stage of a long episode under its own instruction")]
DescribeFailures = Annotated[
    int, Help("have vision-language models describe N of the clips they misjudged, up to 12", more=True)
]


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
    repeats: Repeats = 1,
    stages: Stages = False,
    seed: Seed = 0,
    limit: Limit = None,
    demonstrations: Demonstrations = False,
    skip_invalid: SkipInvalid = False,
    describe_failures: DescribeFailures = 0,
    name: Names = (),
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
        rewardlab stress openai:MODEL@URL sample --repeats 3
    """
    plan = stress_plan(locals())
    from rewardlab.evaluation.evaluate import evaluate

    run = evaluate(plan)
    return run if sharding.shard else _reported(run, quiet=execution.quiet)


def stress_plan(given: Mapping[str, Any]) -> "evaluation_plan.Plan":
    """Return the plan of `stress` with these arguments; its groups may be given flat."""
    from rewardlab.evaluation.plan import make_plan

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
        str | Path | None, Help("training set to search for the evaluated videos", metavar="DATA")
    ] = None,
    grounding: Annotated[
        bool,
        Help("also score successes under other instructions of their source, to test whether the model reads them"),
    ] = False,
    preferences: Annotated[
        int,
        Help("also compare N pairs of clips of the same instruction: pairs that people compared first, then by level"),
    ] = 0,
    repeats: Repeats = 1,
    stages: Stages = False,
    seed: Seed = 0,
    limit: Limit = None,
    demonstrations: Demonstrations = False,
    skip_invalid: SkipInvalid = False,
    describe_failures: DescribeFailures = 0,
    name: Names = (),
    out: RunFolder = None,
    execution: Execution = Execution(),
    scoring: Scoring = Scoring(),
    budget: Budget = Budget(),
) -> Run:
    """Score clean episodes by the RoboRewardBench protocol; report the error per subset and overall.

    Examples:
        rewardlab bench pocket hub:teetone/RoboReward
        rewardlab bench pocket data/RoboReward --split val --against data/train
        rewardlab bench pocket sample --grounding
        rewardlab bench pocket sample --preferences 60
    """
    plan = bench_plan(locals())
    from rewardlab.evaluation.bench import run_benchmark

    training = None if against is None else str(against)
    run = run_benchmark(plan, duplicates=duplicates, against=training, preferences=preferences)
    return _reported(run, quiet=execution.quiet)


def bench_plan(given: Mapping[str, Any]) -> "evaluation_plan.Plan":
    """Return the plan of `bench` with these arguments; its groups may be given flat."""
    from rewardlab.evaluation.plan import make_plan
    from rewardlab.metrics.contract import COVERED_END, HIDDEN_FROM

    arguments = all_arguments(bench, given)
    changes: dict[str, Any] = {"data": choose_split(str(arguments["data"]), arguments["split"])}
    if arguments["grounding"]:
        changes |= {"perturbations": ("instruction_swap",), "severities": SEVERITIES[1:]}
    plan = make_plan("bench", bench, arguments, **changes)
    if not any(model.abstains for model in plan.models):
        return plan
    shown = tuple(name for name in plan.perturbations if name != "none")  # recall needs clips that do not show the end
    severities = plan.severities if shown else tuple(range(HIDDEN_FROM, SEVERITIES[-1] + 1))
    return replace(plan, perturbations=(*shown, COVERED_END), severities=severities)


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
    demonstrations: Demonstrations = False,
    skip_invalid: SkipInvalid = False,
    out: RunFolder = None,
    execution: Execution = Execution(),
    scoring: Scoring = Scoring(),
    budget: Budget = Budget(),
) -> "AttackRun":
    """Search each episode for the smallest change that turns a correct verdict into a wrong one; write the clips.

    Examples:
        rewardlab attack pocket sample-sim
        rewardlab attack pocket sample-sim --perturbations temporal --queries 30
    """
    given = dict(locals())
    from rewardlab.evaluation.attack import run_attack
    from rewardlab.evaluation.plan import make_plan
    from rewardlab.reporting.contact_sheets import write_counterexamples

    found = run_attack(make_plan("attack", attack, given, severities=SEVERITIES[1:]), queries, strategy)
    with loading("writing the clips", quiet=execution.quiet):
        write_counterexamples(found)
        found.run.publish()
    return found


def _reported(run: Run, *, quiet: bool) -> Run:
    from rewardlab.reporting.report import write_report

    with loading("writing the report", quiet=quiet):
        write_report([run], run.page, allow_code=True)  # made by this very process
        run.publish()
    return run


def collect(
    simulator: Annotated[str, Help("the simulator: metaworld, or tabletop for procedural scenes")] = "metaworld",
    *,
    tasks: Annotated[
        Names, Help("tasks such as drawer-open, or chains; in tabletop verbs such as put-in; or all", metavar="TASK")
    ] = ("all",),
    episodes: Annotated[int, Help("episodes per task")] = 10,
    quality: Annotated[Names, Help("ways of doing the task such as expert or drops, or all", metavar="NAME")] = (
        "all",
    ),
    world: Annotated[
        Names, Help("plain, or changed worlds such as world_camera:3; each episode gets one", metavar="NAME")
    ] = ("plain",),
    camera: Annotated[
        Names,
        Help(
            "cameras; each episode gets one of them; none is right in metaworld, any in tabletop",
            metavar="NAME",
            more=True,
        ),
    ] = (),
    balance: Annotated[bool, Help("try rollouts until every level is equally frequent")] = False,
    distractors: Annotated[int, Help("at most N objects of other tasks in the scene")] = 0,
    counterfactuals: Annotated[int, Help("at most N rows with another instruction for each video")] = 0,
    captions: Annotated[bool, Help("describe in every row what the video shows, for training on captions")] = False,
    phrasings: Annotated[
        str, Help("train or held_out phrasings of the instructions", metavar="{train,held_out}", more=True)
    ] = "train",
    marker: Annotated[bool, Help("show the goal as a marker, which reveals it to the model", more=True)] = False,
    size: Annotated[int, Help("side of the frame in pixels", more=True)] = 128,
    fps: Annotated[float, Help("frames recorded per second, of the simulator's 80", more=True)] = 10.0,
    frames: Annotated[tuple[int, ...], Help("fewest and most frames of a video; the length is random", more=True)] = (
        24,
        48,
    ),
    seed: Seed = 0,
    execution: Execution = Execution(),
    out: Annotated[Path | str, Help("dataset folder to write to")] = Path("collected"),
) -> Mapping[int, int]:
    """Record simulated rollouts of every quality with exact labels; return how many rows each level has.

    Examples:
        rewardlab collect metaworld --tasks drawer-open,push --episodes 20 --balance --out my-data
        rewardlab collect metaworld --world world_camera:3,plain --distractors 2 --out changed
        rewardlab collect tabletop --episodes 20 --counterfactuals 4 --out scenes
    """
    given = {name: value for name, value in locals().items() if name != "execution"}
    from rewardlab.evaluation.engines.ordered_map import map_items
    from rewardlab.worlds.collection import collect_rollouts, simulator_called
    from rewardlab.worlds.plan import Collection

    listed = {name: several(given[name]) for name in ("tasks", "quality", "world", "camera", "frames")}
    listed["camera"] = listed["camera"] or (simulator_called(simulator).camera,)
    plan = Collection(**given | listed | {"out": Path(out)})
    return collect_rollouts(
        plan,
        {setting.name: setting.default for setting in settings_of(collect)},
        lambda work, items: map_items(work, items, execution.workers, execution),
        quiet=execution.quiet,
    )
