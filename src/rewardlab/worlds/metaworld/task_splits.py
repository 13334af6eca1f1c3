"""Which tasks are for training, validation and testing; it depends on the task alone."""

import numpy as np

from rewardlab.core.seeding import rng_for
from rewardlab.worlds.metaworld.physics import TASKS

SPLITS = {"train": 0.7, "val": 0.1, "test": 0.2}  # shares of the tasks


def split_of_task(task: str) -> str:
    """Return the split of a task, the same in every collection."""
    order = sorted(TASKS, key=lambda name: float(rng_for(0, "split", name).random()))
    place, ends = order.index(task) / len(order), np.cumsum(list(SPLITS.values()))
    return list(SPLITS)[int(np.searchsorted(ends, place, side="right"))]
