"""Spreading work over processes that share nothing; with one worker it is done here."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

Result = TypeVar("Result")


def spread(workers: int, work: Callable[..., Result], *inputs: Iterable[object]) -> Iterator[Result]:
    """Yield what `work` makes of each input, in order."""
    if workers < 2:
        yield from map(work, *inputs)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(work, *inputs)
