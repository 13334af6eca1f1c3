"""The settings of `rewardlab train objective`."""

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rewardlab.core.catalog_lookup import find
from rewardlab.core.command_settings import flat_fields, setting
from rewardlab.core.errors import PlanError

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
        from rewardlab.training.objectives import OBJECTIVES

        return tuple(OBJECTIVES)

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
