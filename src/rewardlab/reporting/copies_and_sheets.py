"""Perturbed copies or contact sheets of a dataset, written one file at a time."""

from collections.abc import Iterator
from pathlib import Path

from rewardlab.core.errors import DataError, PlanError
from rewardlab.data import dataset_folder, open_dataset
from rewardlab.reporting.contact_sheet import write_sheet
from rewardlab.runner.perturbed_dataset import PerturbPlan, write_copies
from rewardlab.runner.perturbed_episode_rebuild import CellReplay, cell_replay


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
        for perturbation in shown.context.perturbations.values():
            suffix = f"-{number + 1}" if len(shown.episodes) > 1 else ""
            path = out / f"{perturbation.name.replace(':', '-')}{suffix}.png"
            write_sheet(shown, episode, perturbation, path)
            yield str(path)
