"""`train_pocket`: its settings, and the order of work; imports nothing heavy."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from rewardlab.core.errors import PlanError, require_packages
from rewardlab.core.settings import Help, Seed, settings_of, several
from rewardlab.worlds.metaworld.physics import TASKS
from rewardlab.worlds.metaworld.tasks import FOLDS, unseen_tasks

VARIANTS = ("pocket", "pocket-large", "pocket-plain")
# Parts of the recipe that an ablation leaves out.
PARTS = ("distillation", "scenes", "inverse-instructions", "captions", "places")
# How often each camera renders for training; `front` and `corner3` are held out.
NOT_DONE = -1  # in place of a level: whatever it is, not a success
EVERYTHING = "none"  # in place of a fold: nothing is held out
CAMERA_SHARES = {"right": 0.3, "left": 0.3, "corner2": 0.2, "top": 0.1, "far": 0.1}

# How a rollout is rendered, and how often: `plain` as it was; `crowd` among things of other tasks; `look` so with other
# shapes and colours; `world` among others in a changed world; `view` is `plain` under a perturbation of the video.
RENDERED = {"plain": 0.25, "crowd": 0.2, "look": 0.2, "world": 0.15, "view": 0.2}
CLEAN_KINDS = ("plain", "crowd", "look")


def train_pocket(
    *,
    variants: Annotated[str | Sequence[str], Help(f"which of {', '.join(VARIANTS)}", metavar="NAME")] = ("pocket",),
    folds: Annotated[
        str | Sequence[str],
        Help("folds to train, each with a fifth of tasks, kinds, verbs and subsets unseen; none holds out nothing"),
    ] = (EVERYTHING,),
    dinov2: Annotated[
        str,
        Help(
            "weights of DINOv2 ViT-S/14, .onnx or .npz: the encoder of pocket-large; the others distil from it",
            metavar="FILE",
        ),
    ] = "",
    demonstrations: Annotated[
        str, Help("dataset whose successes are demonstrations of their instructions, such as DROID", metavar="DATASET")
    ] = "",
    tabletop: Annotated[int, Help("rollouts of the tabletop world; 0 leaves it out")] = 20_000,
    ablate: Annotated[
        str | Sequence[str], Help(f"parts to leave out: {', '.join(PARTS)}", metavar="PART", more=True)
    ] = (),
    rollouts: Annotated[int, Help("training rollouts of each task")] = 200,
    near_misses: Annotated[int, Help("more rollouts of each task that should end just short of success")] = 100,
    val_rollouts: Annotated[int, Help("validation rollouts of each task")] = 40,
    tasks: Annotated[str | Sequence[str], Help("tasks to use; all takes every task", metavar="TASK")] = ("all",),
    policy_rollouts: Annotated[
        str,
        Help("folder of policy rollouts to train on, as benchmarks/near_misses.py writes them", metavar="FOLDER"),
    ] = "",
    frames_per_rollout: Annotated[int, Help("frames stored of a rollout", more=True)] = 24,
    size: Annotated[int, Help("side of a frame in pixels; pocket sees them smaller", more=True)] = 168,
    steps: Annotated[int, Help("training steps of every variant and fold")] = 5000,
    batch_size: Annotated[int, Help("videos in a step")] = 224,
    eval_every: Annotated[int, Help("steps between validations and checkpoints")] = 1000,
    lr: Annotated[float, Help("highest learning rate")] = 1e-3,
    seed: Seed = 0,
    device: Annotated[Literal["cpu", "cuda"], Help("where to train")] = "cuda",
    workers: Annotated[int, Help("processes that simulate and render; 0 uses one per core")] = 16,
    out: Annotated[Path | str, Help("folder of rollouts, checkpoints and models")] = Path("runs/pocket"),
) -> tuple[str, ...]:
    """Train the models that ship, on simulated rollouts and real demonstrations, and return their model strings.

    Needs torch and Meta-World, from the extras `train` and `sim`.

    Examples:
        rewardlab train pocket --variants pocket,pocket-large --dinov2 dinov2_vits14.onnx --demonstrations droid
        rewardlab train pocket --tasks drawer-open,hammer --rollouts 20 --tabletop 100 --steps 200 --device cpu
    """
    settings = pocket_settings(**locals())
    require_parts(settings)
    from rewardlab.training.holdout import recorded_split
    from rewardlab.training.pocket.export import export
    from rewardlab.training.pocket.frame_store import calibration_frames, make_frame_store, of_fold, of_variant
    from rewardlab.training.pocket.network import network_config
    from rewardlab.training.pocket.rollouts import simulate_all
    from rewardlab.training.pocket.train import fit

    out, started = settings.out, time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    recorded_split(out)  # before the workers read it
    simulate_all(settings)
    print(f"{time.monotonic() - started:.0f} s: rollouts are simulated", flush=True)
    store = make_frame_store(settings)
    print(f"{time.monotonic() - started:.0f} s: Meta-World is rendered", flush=True)
    for training in settings.trainings:
        store = of_fold(settings, store, training.fold)
        own = of_variant(settings, store, training)
        fit(settings, training, own)
        print(f"{time.monotonic() - started:.0f} s: {training.name} is trained", flush=True)
        frames = calibration_frames(own, network_config(training.variant, settings.size))
        np.save(out / f"{training.name}-frames.npy", frames)
    for training in settings.trainings:  # calibrated on the other folds, so all are trained first
        export(settings, training, out, np.load(out / f"{training.name}-frames.npy"))
    return tuple(f"pocket:{out / training.name}" for training in settings.trainings)


def require_parts(settings: "PocketSettings") -> None:
    """Say what is not installed, or which device is not there, before anything is simulated."""
    require_packages("train pocket", "torch", "onnx", extra="train")
    require_packages("train pocket", "mujoco", "metaworld", extra="sim")
    import torch

    if settings.device == "cuda" and not torch.cuda.is_available():
        raise PlanError("train pocket trains on a GPU, and torch sees no CUDA device here; use --device cpu")


def forecast_pocket(**given: Any) -> list[str]:
    """Return what `train_pocket` would do with these arguments, in sentences; nothing is simulated or written."""
    settings = pocket_settings(**given)
    require_parts(settings)
    each = settings.rollouts + settings.near_misses + settings.val_rollouts
    tasks, names = len(settings.all_tasks), ", ".join(training.name for training in settings.trainings)
    simulated = f"{tasks * each:,} rollouts of {tasks} tasks are simulated and rendered, those in {settings.out} aside"
    return [simulated, f"{settings.steps:,} steps of {settings.batch_size} clips on {settings.device} each: {names}"]


@dataclass(frozen=True)
class Training:
    """One network to train: a variant on a fold."""

    variant: str
    fold: int | None  # None holds out nothing

    @property
    def robust(self) -> bool:
        """Return whether it also sees perturbed clips and changed worlds."""
        return self.variant != "pocket-plain"

    @property
    def name(self) -> str:
        """Return the name of its files."""
        return self.variant if self.fold is None else f"{self.variant}-fold{self.fold}"


@dataclass(frozen=True)
class PocketSettings:
    """The settings of `train_pocket`, checked, as loader and simulator workers get them."""

    variants: tuple[str, ...]
    folds: tuple[str, ...]  # numbers, or EVERYTHING
    dinov2: str
    demonstrations: str
    tabletop: int
    ablate: tuple[str, ...]
    rollouts: int
    near_misses: int
    val_rollouts: int
    tasks: tuple[str, ...]
    policy_rollouts: str
    frames_per_rollout: int
    size: int
    steps: int
    batch_size: int
    eval_every: int
    lr: float
    seed: int
    device: str
    workers: int
    out: Path

    @property
    def all_tasks(self) -> tuple[str, ...]:
        """Return the tasks that are simulated."""
        return TASKS if self.tasks == ("all",) else tuple(task for task in TASKS if task in self.tasks)

    def unseen(self, fold: int | None) -> tuple[str, ...]:
        """Return the tasks that a fold never sees."""
        return () if fold is None else tuple(task for task in self.all_tasks if task in unseen_tasks(fold))

    def seen(self, fold: int | None) -> tuple[str, ...]:
        """Return the tasks that a fold is trained on."""
        return tuple(task for task in self.all_tasks if task not in self.unseen(fold))

    @property
    def rendered_kinds(self) -> dict[str, float]:
        """Return the kinds of rendering that some training uses, and how often each is drawn."""
        kinds = RENDERED if any(training.robust for training in self.trainings) else {kind: 1.0 for kind in CLEAN_KINDS}
        return {"plain": 1.0} if "scenes" in self.ablate else kinds

    @property
    def trainings(self) -> tuple[Training, ...]:
        """Return the networks to train."""
        folds = [None if fold == EVERYTHING else int(fold) for fold in self.folds]
        return tuple(Training(variant, fold) for fold in folds for variant in self.variants)


def pocket_settings(**given: Any) -> PocketSettings:
    """Return checked settings of `train_pocket`; what is not given has its default."""
    values = {setting.name: setting.default for setting in settings_of(train_pocket)} | given
    values |= {name: several(values[name]) for name in ("variants", "folds", "ablate", "tasks")}
    settings = PocketSettings(**values | {"out": Path(values["out"])})
    folds = (EVERYTHING, *map(str, range(FOLDS)))
    chosen = (
        (settings.variants, VARIANTS, "variant"),
        (settings.ablate, PARTS, "part"),
        (settings.folds, folds, "fold"),
        (settings.tasks, ("all", *TASKS), "task"),
    )
    for names, known, what in chosen:
        for name in names:
            if name not in known:
                raise PlanError(f"a {what} is one of {', '.join(known)}, got {name!r}")
    least = {"rollouts": 1, "val_rollouts": 1, "steps": 1, "batch_size": 1, "eval_every": 1}
    least |= {"near_misses": 0, "tabletop": 0, "frames_per_rollout": 4, "workers": 0}
    small = [f"{name} at least {count}" for name, count in least.items() if vars(settings)[name] < count]
    if small or settings.size % 14 or settings.size < 42:
        wrong = "size must be a multiple of 14, at least 42"
        raise PlanError(f"settings are too small: {', '.join(small)}" if small else wrong)
    if "pocket-large" in settings.variants and not settings.dinov2:
        raise PlanError("pocket-large sees with DINOv2; give its weights by --dinov2, or leave out pocket-large")
    return settings
