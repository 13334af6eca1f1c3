"""The settings of `rewardlab train pocket`."""

from dataclasses import dataclass
from pathlib import Path

from rewardlab.core.command_settings import setting
from rewardlab.core.errors import PlanError
from rewardlab.worlds.metaworld.physics import TASKS
from rewardlab.worlds.metaworld.task_splits import split_of_task

VARIANTS = ("pocket-plain", "pocket", "pocket-alt")
# How often each camera renders for training; `front` and `corner3` are held out.
CAMERA_SHARES = {"right": 0.3, "left": 0.3, "corner2": 0.2, "top": 0.1, "far": 0.1}


@dataclass(frozen=True)
class PocketPlan:
    """Train the small reward models that ship in the package, from simulated rollouts alone."""

    recipe: str = setting("what to train: pocket", positional=True)
    variants: tuple[str, ...] = setting("which of pocket-plain, pocket and pocket-alt", VARIANTS)
    rollouts: int = setting("rollouts of each training task", 496)
    near: int = setting("rollouts more of each training task that should end just short of success", 100)
    checks: int = setting("validation rollouts of each training task; each validation task gets twice as many", 30)
    tasks: tuple[str, ...] = setting("tasks to train on; all takes every task of the train split", ("all",))
    kept: int = setting("frames kept of a rollout", 24)
    size: int = setting("side of the frame in pixels", 112)
    steps: tuple[int, ...] = setting("training steps: one number for all variants, or one for each", (4000,))
    batch: int = setting("clips in a batch", 256)
    check_every: int = setting("steps between validations, each with a checkpoint", 500)
    rate: float = setting("highest learning rate", 1e-3)
    seed: int = setting("seed of everything that is random", 0)
    device: str = setting("cpu or cuda", "cuda")
    workers: int = setting("processes that simulate and render; 0 takes one per core", 16)
    out: Path = setting("checkpoint folder", Path("runs/pocket"))

    def __post_init__(self) -> None:
        if self.recipe != "pocket":
            raise PlanError(f"the recipe must be pocket, got {self.recipe!r}")
        for name in self.variants:
            if name not in VARIANTS:
                raise PlanError(f"a variant is one of {', '.join(VARIANTS)}, got {name!r}")
        if len(self.steps) not in (1, len(self.variants)):
            raise PlanError(f"steps must be one number or {len(self.variants)}, got {self.steps}")
        counts = (self.rollouts, self.checks, *self.steps, self.batch, self.check_every)
        if self.size % 16 or self.kept < 4 or min(counts) < 1 or self.near < 0:
            raise PlanError("size must be a multiple of 16, kept at least 4, every count at least 1, near at least 0")

    def steps_of(self, variant: str) -> int:
        """Return the training steps of a variant."""
        return self.steps[self.variants.index(variant) % len(self.steps)]

    def split(self, name: str) -> tuple[str, ...]:
        """Return the tasks of a split that this plan uses."""
        chosen = TASKS if self.tasks == ("all",) else self.tasks
        return tuple(task for task in TASKS if task in chosen and split_of_task(task) == name)
