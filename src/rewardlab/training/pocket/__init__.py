"""`train_pocket`: its settings, and the order of work; imports nothing heavy."""

from dataclasses import dataclass
from pathlib import Path

from rewardlab.core.errors import PlanError
from rewardlab.core.old_settings import setting
from rewardlab.worlds.metaworld.physics import TASKS
from rewardlab.worlds.metaworld.tasks import FOLDS, unseen_tasks

VARIANTS = ("pocket", "pocket-plain")
PARTS = ("eyes", "scenes", "contraries", "captions")  # of the recipe, that an ablation leaves out
# How often each camera renders for training; `front` and `corner3` are held out.
CAMERA_SHARES = {"right": 0.3, "left": 0.3, "corner2": 0.2, "top": 0.1, "far": 0.1}


@dataclass(frozen=True)
class Training:
    """One network to be trained: a variant on a fold."""

    variant: str
    fold: int

    @property
    def robust(self) -> bool:
        """Return whether it also sees perturbed clips and changed worlds."""
        return self.variant == "pocket"

    @property
    def name(self) -> str:
        """Return the name of its files."""
        return f"{self.variant}-fold{self.fold}"


@dataclass(frozen=True)
class PocketPlan:
    """Train the small reward models that ship in the package, from simulated rollouts alone."""

    recipe: str = setting("what to train: pocket", positional=True)
    variants: tuple[str, ...] = setting("which of pocket and pocket-plain", VARIANTS)
    folds: tuple[int, ...] = setting("folds to train, each with a fifth of the tasks unseen", (0,))
    eyes: str = setting("weights of DINOv2 from rewardlab.training.encoders; none if empty", "")
    without: tuple[str, ...] = setting("parts to leave out: eyes, scenes, contraries, captions", ())
    rollouts: int = setting("rollouts of each task", 200)
    near: int = setting("rollouts more of each task that should end just short of success", 50)
    checks: int = setting("validation rollouts of each task", 40)
    tasks: tuple[str, ...] = setting("tasks to take; all takes every task", ("all",))
    kept: int = setting("frames kept of a rollout", 24)
    size: int = setting("side of the frame in pixels", 112)
    steps: int = setting("training steps, the same for every variant and fold", 2400)
    batch: int = setting("clips in a batch", 256)
    check_every: int = setting("steps between checkpoints", 600)
    rate: float = setting("highest learning rate", 1e-3)
    seed: int = setting("seed of everything that is random", 0)
    device: str = setting("cpu or cuda", "cuda")
    workers: int = setting("processes that simulate and render; 0 takes one per core", 16)
    out: Path = setting("checkpoint folder", Path("runs/pocket"))

    def __post_init__(self) -> None:
        if self.recipe != "pocket":
            raise PlanError(f"the recipe must be pocket, got {self.recipe!r}")
        for names, known, what in ((self.variants, VARIANTS, "variant"), (self.without, PARTS, "part")):
            for name in names:
                if name not in known:
                    raise PlanError(f"a {what} is one of {', '.join(known)}, got {name!r}")
        if not self.folds or not set(self.folds) <= set(range(FOLDS)):
            raise PlanError(f"folds are numbers from 0 to {FOLDS - 1}, got {self.folds}")
        counts = (self.rollouts, self.checks, self.steps, self.batch, self.check_every)
        if self.size % 16 or self.kept < 4 or min(counts) < 1 or self.near < 0:
            raise PlanError("size must be a multiple of 16, kept at least 4, every count at least 1, near at least 0")

    @property
    def all_tasks(self) -> tuple[str, ...]:
        """Return the tasks of this plan."""
        return TASKS if self.tasks == ("all",) else tuple(task for task in TASKS if task in self.tasks)

    def unseen(self, fold: int) -> tuple[str, ...]:
        """Return the tasks of this plan that a fold never sees."""
        return tuple(task for task in self.all_tasks if task in unseen_tasks(fold))

    def seen(self, fold: int) -> tuple[str, ...]:
        """Return the tasks of this plan that a fold is trained on."""
        return tuple(task for task in self.all_tasks if task not in unseen_tasks(fold))

    @property
    def trainings(self) -> tuple[Training, ...]:
        """Return the networks to be trained."""
        return tuple(Training(variant, fold) for fold in self.folds for variant in self.variants)
