"""Threads that decode, copy and hash frames, all of which let other threads run; they are started once."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")


def map_frames(work: Callable[[Given], Made], items: Iterable[Given]) -> list[Made]:
    """Return what the work makes of each item, in order; it must not call this itself."""
    return list(_pool(os.getpid()).map(work, items))


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Return this process's threads; the number is the key of the cache, for a fork has none."""
    return ThreadPoolExecutor(thread_name_prefix="rewardlab frames")
