"""Opens the videos of a report: here, or where a report has much else to do in a process beside this one."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import cloudpickle

from rewardlab.runner.engines.process_pool import start_worker
from rewardlab.runner.engines.processes import Process, send, stop_process
from rewardlab.runner.engines.worker_process import serve_items

Video = TypeVar("Video")
Result = TypeVar("Result")


@dataclass(frozen=True)
class VideoOpening:
    """Who opens videos: a process beside this one, else this one."""

    beside: Process | None

    def begin(self, work: Callable[[Video], Result], videos: Sequence[Video]) -> Callable[[], list[Result]]:
        """Begin to do this with every video; what is returned waits for the results.

        What was begun first is waited for first.
        """
        if self.beside is None:
            return lambda: [work(video) for video in videos]
        send(self.beside, cloudpickle.dumps((work, videos)))
        return partial(_await, self.beside, work, videos)


@contextmanager
def open_beside(many: bool) -> Iterator[VideoOpening]:
    """Give who opens videos; where there are many, a process is started at once, for that takes a while."""
    process = start_worker(cloudpickle.dumps(partial(serve_items, _opened)), 1) if many else None
    try:
        yield VideoOpening(process)
    finally:
        if process is not None:
            stop_process(process)


def _opened(asked: tuple[Callable[[Any], Any], Sequence[Any]]) -> list[Any]:
    work, videos = asked
    return [work(video) for video in videos]


def _await(process: Process, work: Callable[[Video], Result], videos: Sequence[Video]) -> list[Result]:
    """Return the results of the process; where it failed or died, open the videos here, and see why."""
    try:
        kind, content = cloudpickle.loads(process.pipe.recv_bytes())
    except (EOFError, OSError):
        kind, content = "ended", None
    results: list[Result] = content if kind == "done" else [work(video) for video in videos]
    return results
