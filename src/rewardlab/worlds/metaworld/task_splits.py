"""Which tasks are for training, validation and testing, and five folds of all tasks; they depend on the task alone."""

import numpy as np

from rewardlab.core.seeding import rng_for
from rewardlab.worlds.metaworld.physics import TASKS

SPLITS = {"train": 0.7, "val": 0.1, "test": 0.2}  # shares of the tasks
FOLDS = 5


def split_of_task(task: str) -> str:
    """Return the split of a task, the same in every collection."""
    place, ends = _shuffled().index(task) / len(TASKS), np.cumsum(list(SPLITS.values()))
    return list(SPLITS)[int(np.searchsorted(ends, place, side="right"))]


def unseen_tasks(fold: int) -> tuple[str, ...]:
    """Return the tasks, a fifth of all, that a training of this fold never sees; those of fold 0 are the test split."""
    order = _shuffled()[::-1]
    size = len(order) // FOLDS
    return tuple(sorted(order[fold * size : (fold + 1) * size]))


def _shuffled() -> list[str]:
    return sorted(TASKS, key=lambda name: float(rng_for(0, "split", name).random()))
