"""`train_objective`: its settings and its steps, each kept in the folder; imports nothing heavy."""

import json
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewardlab.core.catalog import find
from rewardlab.core.errors import DataError, PlanError, RunError
from rewardlab.core.old_settings import flat_fields, flat_settings, setting
from rewardlab.core.records import read_json
from rewardlab.core.storage import atomic_write

if TYPE_CHECKING:
    from rewardlab.training.objectives.clips import ClipTable, PerturbedFrames
    from rewardlab.training.objectives.losses import NamedObjective


SIMULATOR = "metaworld"
# What is done, in this order; each is kept in the folder and not done again.
STEPS = ("simulate", "render", "perturb", "features", "train", "evaluate")


@dataclass(frozen=True)
class ObjectivePlan:
    """What is trained on what, with which budget, and how it is judged: the same for every objective."""

    objective: str = setting(
        "objectives with commas between them: names of the catalog, NAME?option=value, package.module:name",
        "",
        positional=True,
    )
    backbone: tuple[str, ...] = setting("backbones: NAME=VISION+TEXT, NAME=FOLDER or FOLDER; see the page", ())
    data: tuple[str, ...] = setting("metaworld to simulate, or dataset folders", (SIMULATOR,))
    out: Path = setting("folder of everything that comes out", Path("runs/objectives"))
    seeds: tuple[int, ...] = setting("seeds, one training each", (0,))
    tuning: int = setting("settings tried for each objective on the first seed; 1 takes --rate and its defaults", 1)
    steps: int = setting("training steps", 400)
    batch: int = setting("clips in a step", 64)
    rate: float = setting("highest learning rate", 3e-4)
    align_steps: int = setting("steps of InfoNCE that align new projections before any objective", 400)
    check_every: int = setting("steps between validations and checkpoints; 0 takes a quarter of the training", 0)
    lora: int = setting("rank of LoRA adapters where the backbone is CLIP or SigLIP", 16)
    frames: int = setting("frames of a clip", 12)
    size: int = setting("side of the frame in pixels", 112)
    views: int = setting("looks of each training clip: as it is, the others cropped and tinted", 3)
    tasks: tuple[str, ...] = setting("Meta-World tasks; all takes every task", ("all",))
    fold: int = setting("fold of Meta-World tasks, a fifth, that is never trained on", 0)
    holdout: float = setting("share of the tasks of a dataset that is never trained on", 0.25)
    multi_step: tuple[str, ...] = setting("tasks of a dataset that take several steps", ())
    rollouts: int = setting("simulated training rollouts of each task", 40)
    near: int = setting("rollouts more that should end just short of success", 10)
    checks: int = setting("simulated rollouts of each task for validation and test", 16)
    perturbations: tuple[str, ...] = setting("catalogue entries of the robustness AUC; none leaves it out", ("quick",))
    stressed: int = setting("test clips of each task that are perturbed", 2)
    against: str = setting("objective that the others are tested against", "triplet")
    draws: int = setting("draws of the bootstrap; few tasks need many for a small p-value", 10_000)
    seed: int = setting("seed of data and perturbations", 0)
    until: str = setting(f"the last step to do: {', '.join(STEPS)}", STEPS[-1])
    device: str = setting("auto, cpu, cuda or cuda:N", "auto")
    workers: int = setting("processes that simulate, render and perturb; 0 takes one per core", 0)

    def __post_init__(self) -> None:
        find({step: step for step in STEPS}, self.until, "step")
        if not self.seeds or not self.data:
            raise PlanError("train objective needs at least one seed and one dataset")
        self._check_counts()
        if not 0 < self.holdout < 1 or self.rate <= 0:
            raise PlanError(f"holdout is a share between 0 and 1 and rate above 0, got {self.holdout} and {self.rate}")
        names = [backbone_name(text) for text in self.backbone]
        if len(set(names)) < len(names):
            raise PlanError(f"two backbones are called {names[0]!r}; name them apart, as a=FOLDER,b=FOLDER")

    def _check_counts(self) -> None:
        least = {"steps": 1, "batch": 2, "tuning": 1, "frames": 2, "size": 16, "views": 1, "rollouts": 1, "checks": 2}
        least |= {"near": 0, "stressed": 1, "align_steps": 0, "check_every": 0, "lora": 1, "draws": 100}
        wrong = [f"{name} at least {count}" for name, count in least.items() if vars(self)[name] < count]
        if wrong:
            raise PlanError(f"settings are too small: {', '.join(wrong)} is needed")

    @property
    def objectives(self) -> tuple[str, ...]:
        """Return the objectives as they were written, each once; every one of the catalog where none is named."""
        written = tuple(dict.fromkeys(part.strip() for part in self.objective.split(",") if part.strip()))
        if written:
            return written
        from rewardlab.training.objectives.losses import OBJECTIVES

        return tuple(OBJECTIVES.own)

    @property
    def interval(self) -> int:
        """Return the steps between validations."""
        return self.check_every or max(1, self.steps // 4)

    def does(self, step: str) -> bool:
        """Tell whether this step is asked for."""
        return STEPS.index(step) <= STEPS.index(self.until)


@dataclass(frozen=True)
class TrainObjectiveCommand:
    """Train a contrastive image-text pair with a learning objective, or with all of them and compare."""

    plan: ObjectivePlan
    all: Path | None = setting(
        "a TOML file of settings: train and compare all its objectives; flags go before it", None
    )


def backbone_name(text: str) -> str:
    """Return the name of a backbone: what stands before =, or the last part of its folder."""
    name, equals, rest = text.partition("=")
    return name if equals else Path(rest or text).name


def read_plan(path: Path, flags: ObjectivePlan) -> ObjectivePlan:
    """Return the plan of a TOML file, with the settings that differ from their default in `flags` put before it."""
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PlanError(
            f"there is no plan {path}; write one with the settings of `rewardlab train objective`"
        ) from None
    except (OSError, ValueError) as error:
        raise PlanError(f"{path} is no TOML file: {error}") from None
    known = {entry.name: (entry, hint) for entry, hint in flat_fields(ObjectivePlan)}
    values = {name: _value(path, name, value, find(known, name, "setting")[1]) for name, value in written.items()}
    given = {name: vars(flags)[name] for name, (entry, _) in known.items() if vars(flags)[name] != entry.default}
    return replace(flags, **{**values, **given})


def _value(path: Path, name: str, value: Any, hint: Any) -> Any:
    """Return a value of the file as the setting takes it."""
    if hint is Path and isinstance(value, str):
        return Path(value)
    kinds: dict[Any, Any] = {int: int, float: (int, float), str: str}
    many = hint in (tuple[str, ...], tuple[int, ...])
    if many and isinstance(value, list) and all(isinstance(part, hint.__args__[0]) for part in value):
        return tuple(value)
    if name == "objective" and isinstance(value, list):
        return ",".join(map(str, value))
    if isinstance(value, bool) or many or not isinstance(value, kinds[hint]):
        raise PlanError(f"{path}: {name} must be {'a list' if many else hint.__name__}, got {value!r}")
    return value


# How long each step of a comparison took, added up over all runs into its folder.


@contextmanager
def timed(out: Path, step: str) -> Iterator[None]:
    """Add the seconds of a step to those that are written down; what was there already took none."""
    started = time.monotonic()
    yield
    path = out / "seconds.json"
    seconds = dict(read_seconds(out))
    seconds[step] = round(seconds.get(step, 0.0) + time.monotonic() - started, 2)
    with atomic_write(path) as partial:
        partial.write_text(json.dumps(seconds) + "\n", encoding="utf-8")


def read_seconds(out: Path) -> Mapping[str, float]:
    """Return how long each step has taken so far."""
    path = out / "seconds.json"
    return {name: float(value) for name, value in read_json(path).items()} if path.exists() else {}


# `rewardlab train objective`: simulate, render, perturb, encode, train, evaluate; what is there is not done again.

# Settings that may differ between two runs into one folder: what they add is kept apart by name.
_FREE = (
    *("objective", "backbone", "out", "seeds", "tuning", "steps", "batch", "rate", "check_every", "against", "draws"),
    *("until", "device", "workers"),
)


def train_objective(plan: ObjectivePlan) -> tuple[str, ...]:
    """Do every step of a plan that is not done yet, and return the model strings of what was trained."""
    require_parts(plan)
    from rewardlab.training.objectives.backbones import name_backbone
    from rewardlab.training.objectives.losses import name_objective

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
    from rewardlab.training.objectives.comparison import Comparing, compare_all

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
    from rewardlab.training.objectives.clips import list_files, listed_files, read_shards

    folder = plan.out / "clips"
    if listed_files(folder) is None:
        made = _make_clips(plan)
        if made is None:
            return None
        list_files(folder, made)
    return read_shards(listed_files(folder) or []) if plan.does("render") else None


def _make_clips(plan: ObjectivePlan) -> list[Path] | None:
    if plan.data != (SIMULATOR,):
        from rewardlab.training.objectives.sources import dataset_shards

        with timed(plan.out, "render"):
            return dataset_shards(plan)
    from rewardlab.training.objectives.sources import render_clips, simulate

    with timed(plan.out, "simulate"):
        simulate(plan)
    if not plan.does("render"):
        return None
    with timed(plan.out, "render"):
        return render_clips(plan)


def _cells(plan: ObjectivePlan, table: "ClipTable") -> "PerturbedFrames":
    """Return the perturbed clips, made now where they are not there."""
    from rewardlab.training.objectives.clips import list_files, listed_files, read_cells

    folder = plan.out / "perturbed"
    if listed_files(folder) is None:
        from rewardlab.training.objectives.sources import perturb_clips

        with timed(plan.out, "perturb"):
            list_files(folder, perturb_clips(plan, table))
    return read_cells(listed_files(folder) or [], plan.size)


def _check_truth(table: "ClipTable", objectives: "tuple[NamedObjective, ...]") -> None:
    """Say that an objective has nothing to learn from before anything is encoded."""
    from rewardlab.training.objectives.clips import TRAIN, known_truths, only

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
