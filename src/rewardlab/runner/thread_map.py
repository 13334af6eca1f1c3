"""An ordered map over threads of this process, for work that leaves Python."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_threads(work: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Iterator[Result]:
    """Yield what a function makes of each item, in order, on threads: for work that leaves Python, such as decoding."""
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        try:
            yield from pool.map(work, items)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
