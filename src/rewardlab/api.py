"""The verbs of the command line as functions; `report` and `perturb` are packages, hence the longer names."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rewardlab.core.errors import DataError, PlanError
from rewardlab.core.run import Run
from rewardlab.data import dataset_folder, open_dataset
from rewardlab.data.folder import Problem
from rewardlab.models import name_model
from rewardlab.models.contract import RewardModel
from rewardlab.report.contact_sheet import write_sheet
from rewardlab.report.report_files import write_report as write_files
from rewardlab.runner.cell_replay import CellReplay, cell_replay
from rewardlab.runner.perturbed_dataset import PerturbPlan, write_copies
from rewardlab.runner.scoring_settings import ScoringSettings
from rewardlab.runner.stress import StressPlan, run_stress
from rewardlab.studies.perturbation_paper.measured.study_files import write_study as study_files


def stress(
    model: str | RewardModel,
    data: str | Path,
    *,
    perturbations: Sequence[str] = ("all",),
    severities: Sequence[int] = (1, 2, 3, 4),
    seed: int = 0,
    out: Path | None = None,
) -> Run:
    """Stress-test one model, by name or as an object, and write its report; StressPlan has every other setting."""
    named = name_model(model)
    plan = StressPlan(
        models=(named.name,),
        data=str(data),
        perturbations=tuple(perturbations),
        severities=tuple(severities),
        scoring=ScoringSettings(seed=seed, out=out),
    )
    run = run_stress(plan, own=[named])
    write_files([run], run.folder / "report.html")
    return run


def write_report(*runs: Run | Path | str, out: Path | None = None) -> Path:
    """Write the report of a run, or of several side by side, and return the path of its page."""
    opened = [run if isinstance(run, Run) else Run(Path(run)) for run in runs]
    if not opened:
        raise PlanError("name at least one run folder")
    return write_files(opened, out or (opened[0].folder if len(opened) == 1 else Path()) / "report.html")


def write_study(run: Run | Path | str, out: Path, roles: Mapping[str, str] | None = None) -> list[Path]:
    """Write the perturbation paper's table, figures and claims as a run measured them, and return the paths.

    `roles` says which of the run's models plays general, tuned and ensemble; without it the shipped ones do.
    """
    return study_files(run if isinstance(run, Run) else Run(Path(run)), out, roles)


def check(data: str | Path) -> tuple[Problem, ...]:
    """Return every problem of a dataset, with the line of its metadata."""
    return open_dataset(str(data)).problems


def write_perturbed(plan: PerturbPlan) -> list[str]:
    """Write perturbed copies or contact sheets; return what was written and what was left out, with the reason."""
    return list(perturbed_files(plan))


def perturbed_files(plan: PerturbPlan) -> Iterator[str]:
    """Write one file at a time and yield its name, or why it was left out."""
    contents = open_dataset(plan.data)
    if not contents.episodes:
        raise DataError(f"{plan.data} holds no usable episode; run `rewardlab check {plan.data}`")
    if plan.out.resolve() == dataset_folder(plan.data).resolve():
        raise PlanError(f"--out {plan.out} is the dataset itself; choose another folder")
    limit = plan.limit or (1 if plan.sheet else None)
    frames = "uniform:16" if plan.sheet else "all"
    shown = cell_replay(contents.episodes[:limit], plan.perturbations, frames, plan.seed)
    yield from _sheets(shown, plan.out) if plan.sheet else write_copies(shown, plan.severities, plan.out)


def _sheets(shown: CellReplay, out: Path) -> Iterator[str]:
    for number, episode in enumerate(shown.episodes):
        for perturbation in shown.bench.perturbations.values():
            suffix = f"-{number + 1}" if len(shown.episodes) > 1 else ""
            path = out / f"{perturbation.name.replace(':', '-')}{suffix}.png"
            write_sheet(shown, episode, perturbation, path)
            yield str(path)
