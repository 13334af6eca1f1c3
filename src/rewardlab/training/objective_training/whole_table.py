"""The whole table: every objective with every seed on every backbone, then one evaluation of all."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rewardlab.analysis.objective_comparison import write_comparison
from rewardlab.core.bounded_json import read_json
from rewardlab.core.errors import RunError
from rewardlab.core.run import atomic_write
from rewardlab.models.backends.checkpoint import choose_device
from rewardlab.training.live_view import LiveView
from rewardlab.training.master_weights import trained_parameters
from rewardlab.training.objective_training.backbone_parts import Backbone, write_pair
from rewardlab.training.objective_training.clips import TRAIN, ClipTable, only
from rewardlab.training.objective_training.comparison_record import JudgedBackbone, compare
from rewardlab.training.objective_training.evaluation import VALUES, calibration, judge, read_values, write_values
from rewardlab.training.objective_training.features import encode_inputs, judged_rows, load_inputs
from rewardlab.training.objective_training.jobs import TrainingPlace, make_job
from rewardlab.training.objective_training.perturbed_cells import PerturbedCells
from rewardlab.training.objective_training.plan import ObjectivePlan
from rewardlab.training.objective_training.result_folder import model_string, write_levels, write_result
from rewardlab.training.objective_training.sampling import make_sampler
from rewardlab.training.objective_training.step_seconds import read_seconds, timed
from rewardlab.training.objective_training.trainable_pair import TrainablePair, load_pair
from rewardlab.training.objective_training.training_loop import (
    TrainingJob,
    TrainingNumbers,
    Workbench,
    fit,
    use_best,
)
from rewardlab.training.objective_training.tuning import tune
from rewardlab.training.objectives import NamedObjective, name_objective
from rewardlab.training.training_state import put_trained

_ALIGNMENT = "infonce"


@dataclass(frozen=True, eq=False)
class Comparing:
    """What is compared on which clips."""

    plan: ObjectivePlan
    table: ClipTable
    cells: PerturbedCells
    objectives: tuple[NamedObjective, ...]

    @property
    def device(self) -> str:
        """Return where it computes."""
        return choose_device(self.plan.device)


def compare_all(comparing: Comparing, backbones: Sequence[Backbone]) -> tuple[str, ...]:
    """Encode, train and evaluate on each backbone, write the record, and return the model strings."""
    plan = comparing.plan
    found = [one for backbone in backbones if (one := _on_backbone(comparing, backbone)) is not None]
    if found and plan.does("evaluate"):
        write_comparison(plan.out, compare(plan, comparing.table, comparing.cells, found, read_seconds(plan.out)))
    return tuple(model_string(job) for one in found for jobs in one.jobs.values() for job in jobs)


def _on_backbone(comparing: Comparing, backbone: Backbone) -> JudgedBackbone | None:
    plan, out = comparing.plan, comparing.plan.out
    _same_backbone(backbone, out / "backbones")
    start = write_pair(backbone, out / "backbones" / f"{backbone.name}-parts") if backbone.folder is None else None
    pair = load_pair(start or _folder(backbone), comparing.device, plan.lora)
    features = out / "features" / backbone.name
    with timed(out, "features"):
        encode_inputs(plan, pair, comparing.table, comparing.cells, features)
    if not plan.does("train"):
        return None
    bench = _workbench(comparing, pair, features)
    with timed(out, "train"):
        if start is not None:
            bench = _aligned(comparing, bench, out / "backbones" / backbone.name)
        jobs = _train(comparing, bench, backbone.name)
    if not plan.does("evaluate"):
        return None
    with timed(out, "evaluate"):
        return _evaluate(comparing, bench, backbone.name, jobs)


def _same_backbone(backbone: Backbone, folder: Path) -> None:
    """Write down what a name stands for; RunError where it stood for something else in this folder."""
    said = {key: str(value) for key, value in vars(backbone).items()}
    path = folder / f"{backbone.name}.json"
    if path.exists() and read_json(path) != said:
        raise RunError(f"{path} says that {backbone.name} is another backbone; give this one another name")
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial:
        partial.write_text(json.dumps(said) + "\n", encoding="utf-8")


def _folder(backbone: Backbone) -> Path:
    assert backbone.folder is not None
    return backbone.folder


def _workbench(comparing: Comparing, pair: TrainablePair, features: Path) -> Workbench:
    store = load_inputs(features, comparing.device)
    sampler = make_sampler(only(comparing.table, TRAIN), store, comparing.device)
    judged = comparing.table.take(judged_rows(comparing.table))
    start = {name: value.detach().clone() for name, value in trained_parameters(pair.network).items()}
    return Workbench(pair, start, sampler, judged, comparing.device)


def _aligned(comparing: Comparing, bench: Workbench, folder: Path) -> Workbench:
    """Return the workbench whose trainings begin with projections that InfoNCE has aligned; the folder holds them."""
    plan, pair = comparing.plan, bench.pair
    if plan.align_steps:
        interval = max(1, plan.align_steps // 4)
        job = TrainingJob(
            name_objective(_ALIGNMENT),
            plan.seed,
            TrainingNumbers(plan.rate),
            plan.align_steps,
            plan.batch,
            interval,
            folder,
        )
        view = LiveView(f"aligning {folder.name}", plan.align_steps, 0)
        try:
            fit(job, bench, view, 0)
        finally:
            view.close()
        use_best(job, bench)
    pair.write(folder)
    start = {name: value.detach().clone() for name, value in trained_parameters(pair.network).items()}
    return Workbench(pair, start, bench.sampler, bench.judged, bench.device)


def _train(comparing: Comparing, bench: Workbench, backbone: str) -> dict[str, list[TrainingJob]]:
    """Tune and train every objective; what is done already is not done again."""
    plan = comparing.plan
    each = plan.steps * ((plan.tuning if plan.tuning > 1 else 0) + len(plan.seeds))
    view = LiveView(f"trainings on {backbone}", each * len(comparing.objectives), 0)
    jobs: dict[str, list[TrainingJob]] = {}
    try:
        for number, objective in enumerate(comparing.objectives):
            place = TrainingPlace(plan.out, backbone, objective.text, number * each)
            setting = tune(objective, plan, bench, place, view)
            made = [make_job(plan, setting, seed, place.seed(seed)) for seed in plan.seeds]
            for turn, job in enumerate(made):
                found = fit(job, bench, view, (number + 1) * each - (len(made) - turn) * plan.steps)
                if not (job.folder / "config.json").exists():
                    use_best(job, bench)
                    write_result(job, bench, plan, found)
            jobs[objective.text] = made
            view.say(f"{backbone}: {objective.text} is trained")
    finally:
        view.close()
    return jobs


def _evaluate(
    comparing: Comparing, bench: Workbench, backbone: str, jobs: dict[str, list[TrainingJob]]
) -> JudgedBackbone:
    """Let every training judge the test; rewards that are there are read."""
    values = {}
    for name, made in jobs.items():
        for job in made:
            path = job.folder / VALUES
            if not path.exists():
                use_best(job, bench)
                write_values(path, judge(bench, comparing.cells))
            write_levels(job, calibration(bench.judged, read_values(path)))
        values[name] = [read_values(job.folder / VALUES) for job in made]
    put_trained(bench.pair.network, bench.start)
    return JudgedBackbone(backbone, jobs, values, judge(bench, comparing.cells))
