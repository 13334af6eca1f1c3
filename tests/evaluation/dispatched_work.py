"""Work for worker processes to do, in a module that loads nothing of the tests: every worker imports it."""

import os
from pathlib import Path

import numpy as np

from rewardlab.core.errors import DataError


def scaled(shared: np.ndarray, item: int) -> tuple[int, float]:
    """Need what all items share, and tell in which process."""
    return os.getpid(), float(shared[item] * 2)


def fail_at(bad: int, item: int) -> int:
    if item == bad:
        raise DataError(f"item {item} is broken")
    return item


def die_at(bad: int, item: int) -> int:
    if item == bad:
        os._exit(7)
    return item


def square_and_die_once(flag: Path, item: int) -> int:
    if item == 3 and flag.exists():
        flag.unlink()
        os._exit(9)
    return item * item
