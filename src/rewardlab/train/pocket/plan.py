"""The settings of the recipe, and what of the catalogue it keeps away from training."""

from dataclasses import dataclass
from pathlib import Path

from rewardlab.bench.collect import split_of
from rewardlab.core.errors import PlanError
from rewardlab.core.seeding import rng_for
from rewardlab.core.settings import setting
from rewardlab.perturb import PERTURBATIONS
from rewardlab.perturb.contract import Perturbation
from rewardlab.perturb.domain.world import WORLD_CHANGES
from rewardlab.worlds.metaworld.physics import TASKS

VARIANTS = ("pocket-plain", "pocket", "pocket-alt")
# How often each camera films for training; `front` and `corner3` stay unseen.
CAMERAS = {"right": 0.3, "left": 0.3, "corner2": 0.2, "top": 0.1, "far": 0.1}
# The goal is never shown here, so it cannot be hidden; a thing of another colour would not be what the words say.
_UNSUITABLE = ("world_goal_hidden", "world_object_colour")
_KEPT_AWAY = 0.3  # share of every category of perturbations
# Changes of the compressed video need a codec; they stay unseen, so that training needs none.
_CODECS = ("codec", "codec_h265", "bit_error", "packet_loss")


@dataclass(frozen=True)
class PocketPlan:
    """Train the small reward models that ship in the package, from simulated rollouts alone."""

    variants: tuple[str, ...] = setting("which of pocket-plain, pocket and pocket-alt", VARIANTS)
    rollouts: int = setting("rollouts of each training task", 620)
    checks: int = setting("rollouts of each training task, and twice as many of each validation task, to choose by", 30)
    tasks: tuple[str, ...] = setting("tasks to train on; all takes every task of the train split", ("all",))
    kept: int = setting("frames kept of a rollout", 24)
    size: int = setting("side of the picture in pixels", 112)
    steps: int = setting("training steps of each variant", 4000)
    batch: int = setting("clips in a step", 256)
    check_every: int = setting("steps after which the checks are judged and a checkpoint is written", 500)
    rate: float = setting("highest learning rate", 1e-3)
    seed: int = setting("seed of everything drawn by chance", 0)
    device: str = setting("cpu or cuda", "cuda")
    workers: int = setting("processes that simulate and film", 16)
    words: Path = setting("embeddings of word pieces, made from a sentence encoder", Path("words.npz"))
    out: Path = setting("checkpoint folder", Path("runs/pocket"))

    def __post_init__(self) -> None:
        for name in self.variants:
            if name not in VARIANTS:
                raise PlanError(f"a variant is one of {', '.join(VARIANTS)}, got {name!r}")
        if (
            self.size % 16
            or self.kept < 4
            or min(self.rollouts, self.checks, self.steps, self.batch, self.check_every) < 1
        ):
            raise PlanError("size must be a multiple of 16, kept at least 4, and every count at least 1")

    def split(self, name: str) -> tuple[str, ...]:
        """Return the tasks of a split that this plan uses."""
        chosen = TASKS if self.tasks == ("all",) else self.tasks
        return tuple(task for task in TASKS if task in chosen and split_of(task) == name)


def kept_away() -> tuple[str, ...]:
    """Return the perturbations and changed worlds that no variant is trained with, some of every category."""
    names = list(_CODECS)
    groups: dict[str, list[str]] = {"world": sorted(WORLD_CHANGES)}
    for p in _unworldly():
        groups.setdefault(p.category, []).append(p.name)
    for category, members in groups.items():
        rng = rng_for(0, "kept away from pocket", category)
        names += [str(name) for name in rng.choice(sorted(members), round(_KEPT_AWAY * len(members)), replace=False)]
    return tuple(dict.fromkeys(names))


def trained_with() -> tuple[str, ...]:
    """Return the perturbations of pixels, order and instruction that the robust variants are trained with."""
    return tuple(p.name for p in _unworldly() if p.name not in kept_away())


def worlds_trained_with() -> tuple[str, ...]:
    """Return the changed worlds that the robust variants are trained with."""
    return tuple(name for name in WORLD_CHANGES if name not in (*kept_away(), *_UNSUITABLE))


def _unworldly() -> list[Perturbation]:
    """Return the perturbations that change a video, not the world it was filmed in."""
    return [p for p in PERTURBATIONS.values() if p.category != "pair" and not p.name.startswith("world_")]
