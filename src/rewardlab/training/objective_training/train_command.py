"""`rewardlab train objective`: simulate, render, perturb, encode, train, evaluate; what is there is not done again."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rewardlab.core.bounded_json import read_json
from rewardlab.core.command_settings import flat_settings
from rewardlab.core.errors import DataError, PlanError, RunError
from rewardlab.core.run import atomic_write
from rewardlab.training.objective_training.plan import SIMULATOR, ObjectivePlan
from rewardlab.training.objective_training.step_seconds import timed

if TYPE_CHECKING:
    from rewardlab.training.objective_training.clips import ClipTable
    from rewardlab.training.objective_training.perturbed_cells import PerturbedCells
    from rewardlab.training.objectives import NamedObjective

# Settings that may differ between two runs into one folder: what they add is kept apart by name.
_FREE = (
    *("objective", "backbone", "out", "seeds", "tuning", "steps", "batch", "rate", "check_every", "against", "draws"),
    *("until", "device", "workers"),
)


def train_objective(plan: ObjectivePlan) -> tuple[str, ...]:
    """Do every step of a plan that is not done yet, and return the model strings of what was trained."""
    require_parts(plan)
    from rewardlab.training.objective_training.backbone_parts import name_backbone
    from rewardlab.training.objectives import name_objective

    objectives = tuple(name_objective(text) for text in plan.objectives)
    backbones = tuple(name_backbone(text) for text in plan.backbone)
    _check_against(plan, objectives)
    _start_folder(plan)
    table = _clips(plan)
    if table is None:
        return ()
    _check_truth(table, objectives)
    cells = _cells(plan, table) if plan.does("perturb") else None
    if cells is None or not plan.does("features"):
        return ()
    from rewardlab.training.objective_training.whole_table import Comparing, compare_all

    return compare_all(Comparing(plan, table, cells, objectives), backbones)


def require_parts(plan: ObjectivePlan) -> None:
    """Say what is not installed or not named before anything is read."""
    if not plan.backbone:
        raise PlanError("name a backbone, such as --backbone dino=DINOV2.npz+MINILM_FOLDER or a folder of CLIP")
    missing = [name for name in ("torch", "transformers", "PIL") if find_spec(name) is None]
    if missing:
        raise PlanError(f"train objective needs {', '.join(missing)}; install with pip install 'rewardlab[vlm-train]'")


def _check_against(plan: ObjectivePlan, objectives: "tuple[NamedObjective, ...]") -> None:
    if len(objectives) > 1 and plan.against not in [each.text for each in objectives]:
        raise PlanError(f"against names {plan.against!r}, which is not among the objectives; name one that is")


def _start_folder(plan: ObjectivePlan) -> None:
    """Make the folder, or reopen it if it was begun with the same data."""
    path = plan.out / "begun.json"
    begun = {name: str(value) for name, value in flat_settings(plan).items() if name not in _FREE}
    if path.exists() and read_json(path) != begun:
        before = read_json(path)
        other = ", ".join(name for name in begun if before.get(name) != begun[name])
        raise RunError(f"{plan.out} was begun with another {other}; choose another --out or remove that folder")
    plan.out.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial:
        partial.write_text(json.dumps(begun) + "\n", encoding="utf-8")


def _clips(plan: ObjectivePlan) -> "ClipTable | None":
    """Return the clips, made now where they are not there; None where the plan stops before."""
    from rewardlab.training.objective_training.clips import list_files, listed_files, read_shards

    folder = plan.out / "clips"
    if listed_files(folder) is None:
        made = _make_clips(plan)
        if made is None:
            return None
        list_files(folder, made)
    return read_shards(listed_files(folder) or []) if plan.does("render") else None


def _make_clips(plan: ObjectivePlan) -> list[Path] | None:
    if plan.data != (SIMULATOR,):
        from rewardlab.training.objective_training.dataset_clips import dataset_shards

        with timed(plan.out, "render"):
            return dataset_shards(plan)
    from rewardlab.training.objective_training.simulated_clips import render_clips, simulate

    with timed(plan.out, "simulate"):
        simulate(plan)
    if not plan.does("render"):
        return None
    with timed(plan.out, "render"):
        return render_clips(plan)


def _cells(plan: ObjectivePlan, table: "ClipTable") -> "PerturbedCells":
    """Return the perturbed clips, made now where they are not there."""
    from rewardlab.training.objective_training.clips import list_files, listed_files
    from rewardlab.training.objective_training.perturbed_cells import read_cells

    folder = plan.out / "perturbed"
    if listed_files(folder) is None:
        from rewardlab.training.objective_training.perturbing import perturb_clips

        with timed(plan.out, "perturb"):
            list_files(folder, perturb_clips(plan, table))
    return read_cells(listed_files(folder) or [], plan.size)


def _check_truth(table: "ClipTable", objectives: "tuple[NamedObjective, ...]") -> None:
    """Say that an objective has nothing to learn from before anything is encoded."""
    from rewardlab.training.objective_training.clips import TRAIN, known_truths, only

    train = only(table, TRAIN)
    for objective in objectives:
        needs = objective.entry.needs
        if needs not in ("progress", "level"):  # that there are both outcomes is checked for all
            continue
        known = known_truths(train, needs)
        if len(known) < 2:
            lack = f"which is {known[0]:g} wherever it is known" if len(known) else "which no training clip has"
            column = "reward" if needs == "level" else needs
            raise DataError(
                f"objective {objective.text} learns from {needs}, {lack}; add it to the data (column `{column}`), "
                "or leave this objective out"
            )
