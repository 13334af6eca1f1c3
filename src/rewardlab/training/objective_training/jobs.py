"""Where each training of a comparison goes, and what it is."""

import re
from dataclasses import dataclass
from pathlib import Path

from rewardlab.core.seeding import digest
from rewardlab.training.objective_training.plan import ObjectivePlan
from rewardlab.training.objective_training.training_loop import TrainingJob, TrainingNumbers
from rewardlab.training.objectives import NamedObjective


@dataclass(frozen=True)
class TrainingPlace:
    """The folders of one objective on one backbone, and how many steps of the comparison come before it."""

    out: Path
    backbone: str
    objective: str
    steps_before: int

    def trial(self, number: int) -> Path:
        """Return the folder of a setting that is tried."""
        return self.out / "tuning" / self.backbone / slug(self.objective) / f"setting{number}"

    def seed(self, seed: int) -> Path:
        """Return the folder of a training, which `contrastive:` takes."""
        return self.out / "trainings" / self.backbone / slug(self.objective) / f"seed{seed}"


def slug(text: str) -> str:
    """Return the text of an objective as the name of a folder; two texts never share one."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", text)
    return plain if plain == text else f"{plain}-{digest(text)[:6]}"


def make_job(plan: ObjectivePlan, setting: tuple[NamedObjective, float], seed: int, folder: Path) -> TrainingJob:
    """Return the training of an objective with a learning rate."""
    objective, rate = setting
    return TrainingJob(objective, seed, TrainingNumbers(rate), plan.steps, plan.batch, plan.interval, folder)
