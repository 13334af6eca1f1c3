"""Work that dies once and raises once; workers import this module, so it needs nothing that takes long to load."""

import os
from pathlib import Path

from rewardlab.core.errors import RewardlabError


def square(flag: Path, item: int) -> int:
    if item == 3 and flag.exists():
        flag.unlink()
        os._exit(9)
    if item == 6:
        raise RewardlabError("no six")
    return item * item
