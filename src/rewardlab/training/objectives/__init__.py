"""`train_objective`: its settings and its steps, each kept in the folder; imports nothing heavy."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rewardlab.core.catalog import find
from rewardlab.core.errors import DataError, PlanError, require_packages
from rewardlab.core.settings import Demonstrations, Help, settings_of, several

if TYPE_CHECKING:
    from rewardlab.training.objectives.clips import ClipTable, PerturbedFrames
    from rewardlab.training.objectives.losses import NamedObjective


METAWORLD, TABLETOP = WORLDS = ("metaworld", "tabletop")  # that `data` may name to have clips made
SECONDS = "seconds.json"
# What is done, in this order; each is kept in the folder and not done again.
STEPS = ("simulate", "render", "perturb", "features", "train", "evaluate")


def train_objective(
    objective: Annotated[
        str | None,
        Help("objectives, separated by commas: NAME, NAME?option=value, package.module:name; default: all"),
    ] = None,
    *,
    backbone: Annotated[
        str | Sequence[str],
        Help(
            "backbones: NAME=VISION+TEXT, with ?pretrain=STEPS as an image-text pair, or NAME=FOLDER",
            metavar="BACKBONE",
        ),
    ] = (),
    data: Annotated[
        str | Sequence[str], Help("metaworld or tabletop to simulate, or dataset folders", metavar="DATA")
    ] = (METAWORLD,),
    demonstrations: Demonstrations = False,
    out: Annotated[Path | str, Help("folder of all results")] = Path("runs/objectives"),
    seeds: Annotated[int | Sequence[int], Help("seeds, one training each")] = (0,),
    tuning: Annotated[
        int, Help("settings tried for each objective on the first seed; 1 takes --lr and the defaults", more=True)
    ] = 1,
    steps: Annotated[int, Help("training steps")] = 400,
    batch_size: Annotated[int, Help("clips in a step")] = 64,
    lr: Annotated[float, Help("highest learning rate")] = 3e-4,
    align_steps: Annotated[
        int, Help("steps of InfoNCE that align new projections before any objective", more=True)
    ] = 400,
    eval_every: Annotated[
        int, Help("steps between validations and checkpoints; 0 takes a quarter of the training", more=True)
    ] = 0,
    lora: Annotated[int, Help("rank of LoRA adapters where the backbone is CLIP or SigLIP", more=True)] = 16,
    frames: Annotated[int, Help("frames of a clip", more=True)] = 12,
    size: Annotated[int, Help("side of a frame in pixels", more=True)] = 112,
    views: Annotated[
        int, Help("versions of each training clip: one unchanged, others cropped and tinted", more=True)
    ] = 3,
    tasks: Annotated[str | Sequence[str], Help("Meta-World tasks; all takes every task", metavar="TASK", more=True)] = (
        "all",
    ),
    fold: Annotated[int, Help("fold of Meta-World tasks, a fifth, that is never trained on", more=True)] = 0,
    holdout: Annotated[float, Help("fraction of the tasks of a dataset that is never trained on", more=True)] = 0.25,
    multi_step: Annotated[
        str | Sequence[str], Help("tasks of a dataset that take several steps", metavar="TASK", more=True)
    ] = (),
    rollouts: Annotated[int, Help("simulated training rollouts of each task", more=True)] = 40,
    near_misses: Annotated[int, Help("more rollouts that should end just short of success", more=True)] = 10,
    val_rollouts: Annotated[int, Help("simulated rollouts of each task for validation and test", more=True)] = 16,
    perturbations: Annotated[
        str | Sequence[str], Help("catalog entries of the robustness AUC, or none", metavar="NAME")
    ] = ("quick",),
    perturbed_clips: Annotated[int, Help("test clips of each task that are perturbed", more=True)] = 2,
    against: Annotated[
        str, Help("objective that the others are tested against", metavar="NAME", more=True)
    ] = "triplet",
    n_resamples: Annotated[
        int, Help("resamples of the bootstrap; few tasks need many for a small p-value", more=True)
    ] = 10_000,
    seed: Annotated[int, Help("seed of data and perturbations", more=True)] = 0,
    stop_after: Annotated[str, Help(f"the last step to do: {', '.join(STEPS)}", metavar="STEP")] = STEPS[-1],
    device: Annotated[str, Help("auto, cpu, cuda or cuda:N")] = "auto",
    workers: Annotated[int, Help("processes that simulate, render and perturb; 0 uses one per core")] = 0,
    parallel: Annotated[int, Help("objectives trained at once on the device", more=True)] = 1,
) -> tuple[str, ...]:
    """Train an image-text pair with one objective or several, evaluate all alike, and return the model strings.

    Finished steps in the folder are not repeated. Needs torch and transformers, from the extra `vlm-train`.

    Examples:
        rewardlab train objective triplet --backbone dino=dinov2_vits14.onnx+MINILM --out mine
        rewardlab train objective triplet,vip --backbone CLIP_FOLDER --data DATA --seeds 0,1,2
    """
    settings = objective_settings(**locals())
    require_parts(settings)
    from rewardlab.core.run import claim_folder
    from rewardlab.training.objectives.backbones import name_backbone
    from rewardlab.training.objectives.losses import name_objective

    objectives = tuple(name_objective(text) for text in settings.objectives)
    backbones = tuple(name_backbone(text) for text in settings.backbone)
    if len(objectives) > 1 and settings.against not in [each.text for each in objectives]:
        raise PlanError(f"against names {settings.against!r}, which is not among the objectives; name one that is")
    begun = {name: str(value) for name, value in vars(settings).items() if name not in _FREE}
    claim_folder(settings.out / "begun.json", begun)
    table = _clips(settings)
    if table is None:
        return ()
    _check_truth(table, objectives)
    cells = _cells(settings, table) if settings.does("perturb") else None
    if cells is None or not settings.does("features"):
        return ()
    from rewardlab.training.objectives.comparison import Comparing, compare_all

    return compare_all(Comparing(settings, table, cells, objectives), backbones)


@dataclass(frozen=True)
class ObjectiveSettings:
    """The settings of `train_objective`, checked: the same for every objective, and for the workers."""

    objective: str | None
    backbone: tuple[str, ...]
    data: tuple[str, ...]
    demonstrations: bool
    out: Path
    seeds: tuple[int, ...]
    tuning: int
    steps: int
    batch_size: int
    lr: float
    align_steps: int
    eval_every: int
    lora: int
    frames: int
    size: int
    views: int
    tasks: tuple[str, ...]
    fold: int
    holdout: float
    multi_step: tuple[str, ...]
    rollouts: int
    near_misses: int
    val_rollouts: int
    perturbations: tuple[str, ...]
    perturbed_clips: int
    against: str
    n_resamples: int
    seed: int
    stop_after: str
    device: str
    workers: int
    parallel: int

    @property
    def objectives(self) -> tuple[str, ...]:
        """Return the objectives as they were written, each once; every one of the catalog where none is named."""
        written = tuple(dict.fromkeys(part.strip() for part in (self.objective or "").split(",") if part.strip()))
        if written:
            return written
        from rewardlab.training.objectives.losses import OBJECTIVES

        return tuple(OBJECTIVES.own)

    @property
    def interval(self) -> int:
        """Return the steps between validations."""
        return self.eval_every or max(1, self.steps // 4)

    @property
    def datasets(self) -> tuple[str, ...]:
        """Return the datasets among the data; the others are worlds."""
        return tuple(name for name in self.data if name not in WORLDS)

    def does(self, step: str) -> bool:
        return STEPS.index(step) <= STEPS.index(self.stop_after)


_LARGEST_SIZE = 1024  # pixels of a side


def objective_settings(**given: Any) -> ObjectiveSettings:
    """Return checked settings of `train_objective`; what is not given has its default."""
    known = settings_of(train_objective)
    values = {setting.name: setting.default for setting in known} | given
    values |= {setting.name: several(values[setting.name]) for setting in known if setting.many}
    settings = ObjectiveSettings(**values | {"out": Path(values["out"])})
    find({step: step for step in STEPS}, settings.stop_after, "step")
    if not settings.seeds or not settings.data:
        raise PlanError("train objective needs at least one seed and one dataset")
    least = {"steps": 1, "batch_size": 2, "tuning": 1, "frames": 2, "size": 16, "views": 1, "rollouts": 1}
    least |= {"val_rollouts": 2, "near_misses": 0, "perturbed_clips": 1, "align_steps": 0, "eval_every": 0}
    least |= {"lora": 1, "n_resamples": 100, "parallel": 1, "workers": 0}
    wrong = [f"{name} at least {count}" for name, count in least.items() if vars(settings)[name] < count]
    if wrong:
        raise PlanError(f"settings are too small: {', '.join(wrong)} is needed")
    if not (0 < settings.holdout < 1 and 0 < settings.lr <= 1 and settings.size <= _LARGEST_SIZE):
        got = f"got {settings.holdout}, {settings.lr} and {settings.size}"
        raise PlanError(
            f"holdout lies between 0 and 1, lr is above 0 and at most 1, and size at most {_LARGEST_SIZE}, {got}"
        )
    names = [backbone_name(text) for text in settings.backbone]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise PlanError(f"two backbones are called {twice!r}; name them apart, as a=FOLDER,b=FOLDER")
    return settings


def backbone_name(text: str) -> str:
    """Return the name of a backbone: what stands before =, or the last part of its folder."""
    name, equals, rest = text.partition("=")
    return name if equals else Path(rest or text).name


# Settings that may differ between two runs into one folder: what they add is kept apart by name.
_FREE = (
    *("objective", "backbone", "out", "seeds", "tuning", "steps", "batch_size", "lr", "eval_every", "against"),
    *("n_resamples", "stop_after", "device", "workers", "parallel"),
)


def require_parts(settings: ObjectiveSettings) -> None:
    """Say what is not installed or not named before anything is read."""
    if not settings.backbone:
        raise PlanError("name a backbone, such as --backbone dino=DINOV2.onnx+MINILM_FOLDER or a folder of CLIP")
    require_packages("train objective", "torch", "transformers", "PIL", extra="vlm-train")
    if set(WORLDS) & set(settings.data):
        require_packages("train objective without a dataset in --data", "mujoco", "metaworld", extra="sim")
    if settings.does("features"):
        from rewardlab.models.backends.checkpoint import choose_device

        choose_device(settings.device)


def forecast_objective(**given: Any) -> list[str]:
    """Return what `train_objective` would do with these arguments, in sentences; nothing is made or written."""
    settings = objective_settings(**given)
    require_parts(settings)
    from rewardlab.training.objectives.losses import name_objective

    names = [name_objective(text).text for text in settings.objectives]
    count = len(names) * len(settings.seeds) * len(settings.backbone)
    return [
        f"{count:,} trainings of {settings.steps:,} steps: {len(names)} objectives ({', '.join(names)}) x "
        f"{len(settings.backbone)} backbones x {len(settings.seeds)} seeds; {settings.tuning} settings tried for each",
        f"on the clips of {', '.join(settings.data)}, up to the step {settings.stop_after}, into {settings.out}",
    ]


def _clips(settings: ObjectiveSettings) -> "ClipTable | None":
    """Return the clips, made now where they are not there; None where --stop-after comes before."""
    from rewardlab.core.run import timed
    from rewardlab.training.objectives.clips import list_files, listed_files, read_shards

    folder = settings.out / "clips"
    if listed_files(folder) is None:
        from rewardlab.training.objectives.sources import clip_shards, simulate

        if METAWORLD in settings.data:
            with timed(settings.out / SECONDS, "simulate"):
                simulate(settings)
        if not settings.does("render"):
            return None
        with timed(settings.out / SECONDS, "render"):
            list_files(folder, clip_shards(settings))
    return read_shards(listed_files(folder) or []) if settings.does("render") else None


def _cells(settings: ObjectiveSettings, table: "ClipTable") -> "PerturbedFrames":
    """Return the perturbed clips, made now where they are not there."""
    from rewardlab.training.objectives.clips import list_files, listed_files, read_cells

    folder = settings.out / "perturbed"
    if listed_files(folder) is None:
        from rewardlab.core.run import timed
        from rewardlab.training.objectives.sources import perturb_clips

        with timed(settings.out / SECONDS, "perturb"):
            list_files(folder, perturb_clips(settings, table))
    return read_cells(listed_files(folder) or [], settings.size)


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
