"""Where work runs: a pool of processes that survives models that hang, crash or are killed; threads for decoding."""

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import TypeVar

import cloudpickle

from rewardlab.core.errors import ModelError, StopRun
from rewardlab.core.trial import Trial
from rewardlab.runner.score import Bench, Cell, Job, failed_trials

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Timeouts:
    """The seconds that models may take to load, and for one batch."""

    load: float
    batch: float


@dataclass
class _Worker:
    """A process, the pipe to it, and what it is doing right now."""

    process: "subprocess.Popen[bytes]"
    pipe: Connection
    ready: bool = False  # the models are loaded
    job: Job | None = None
    judging: list[Trial] = field(default_factory=list)
    deadline: float = float("inf")
    done: set[str] = field(default_factory=set)


def run_jobs(jobs: Iterable[Job], bench: Bench, workers: int, timeouts: Timeouts) -> Iterator[list[Trial]]:
    """Yield trials as they are finished; a cell whose model hangs or kills its process becomes a Failure."""
    cores, source = os.cpu_count() or 1, iter(jobs)
    queue = deque(islice(source, workers or cores))  # the rest is made when it is needed
    start = partial(_start, bench, timeouts.load, max(1, cores // max(len(queue), 1)))
    pool = [start() for _ in range(len(queue))]
    try:
        while True:
            for index, worker in enumerate(pool):
                if worker.job is None and queue:
                    if worker.ready and worker.process.poll() is not None:  # it died between two jobs
                        _stop(worker)
                        pool[index] = worker = start()
                    _give(worker, queue.popleft())
                    queue.extend(islice(source, 1))
            busy = [worker for worker in pool if worker.job is not None]
            if not busy:
                return
            yield from _listen(busy, timeouts.batch)
            for index, worker in enumerate(pool):
                if _is_lost(worker):
                    yield from _receive(worker, timeouts.batch)  # its last words may still be in the pipe
                if _is_lost(worker):
                    trials, rest = _aftermath(worker, bench, timeouts.batch)
                    pool[index] = start()
                    queue.extendleft(rest)
                    yield trials
    finally:
        for worker in pool:
            _stop(worker)


def map_threads(work: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Iterator[Result]:
    """Yield what a function makes of each item, in order, on threads: for work that leaves Python, such as decoding."""
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        try:
            yield from pool.map(work, items)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _listen(busy: list[_Worker], timeout: float) -> Iterator[list[Trial]]:
    left = max(0.0, min(worker.deadline for worker in busy) - time.monotonic())
    ready = wait([worker.pipe for worker in busy], timeout=min(left, 0.5))
    for worker in busy:
        if worker.pipe in ready:
            yield from _receive(worker, timeout)


def _receive(worker: _Worker, timeout: float) -> Iterator[list[Trial]]:
    """Take every message that has arrived from a worker."""
    try:
        while worker.pipe.poll():
            kind, content = worker.pipe.recv()
            if kind == "begin":
                worker.judging, worker.deadline = content, time.monotonic() + timeout
            elif kind == "end":
                worker.judging, worker.deadline = [], float("inf")
                worker.done |= {trial.id for trial in content}
                yield content
            elif kind == "ready":
                worker.ready, worker.deadline = True, float("inf")
            elif kind == "idle":
                worker.job = None
            elif kind == "stopped":
                raise StopRun(content)
            else:
                raise ModelError(content)
    except (EOFError, ConnectionResetError):
        worker.process.wait(5)


def _is_lost(worker: _Worker) -> bool:
    if worker.job is None:
        return False
    return worker.process.poll() is not None or time.monotonic() > worker.deadline


def _aftermath(worker: _Worker, bench: Bench, timeout: float) -> tuple[list[Trial], list[Job]]:
    """Return the cells that are lost for good and the job that is left after a hang or a crash."""
    job = worker.job
    assert job is not None
    hung = worker.process.poll() is None
    _stop(worker)
    died = f"the worker died with exit code {worker.process.returncode}"
    if not worker.ready:
        slow = "the models did not load in time; give them more with --load-timeout"
        raise ModelError(slow if hung else f"{died} while it loaded the models")
    how = f"no answer within {timeout:g} s" if hung else died
    suspects = {trial.id for trial in worker.judging}
    left = tuple(cell for cell in job.cells if cell.id not in worker.done)
    if len(suspects) == 1:
        lost = [replace(trial, reason=how) for trial in worker.judging]
        return lost, _rest(job, tuple(cell for cell in left if cell.id not in suspects), frozenset())
    if not suspects:  # no model was at work: the episode itself cannot be prepared
        return failed_trials(job, bench, left, f"{how} while the episode was decoded or perturbed"), []
    return [], _rest(job, left, frozenset(suspects))


def _rest(job: Job, left: tuple[Cell, ...], alone: frozenset[str]) -> list[Job]:
    return [job.keep(left, alone)] if left else []


def _start(bench: Bench, load_timeout: float, threads: int) -> _Worker:
    """Start a fresh interpreter: it inherits no threads, locks or devices, and never runs the user's script again.

    The workers share the cores: libraries that compute in threads are told how many are theirs.
    """
    ours, theirs = Pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "rewardlab.runner.worker", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        env={"OMP_NUM_THREADS": str(threads), **os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        process_group=0,  # Ctrl-C is the parent's business
    )
    theirs.close()
    with suppress(BrokenPipeError):
        ours.send_bytes(cloudpickle.dumps(replace(bench)))
    return _Worker(process, ours, deadline=time.monotonic() + load_timeout)


def _give(worker: _Worker, job: Job) -> None:
    worker.job, worker.done = job, set()
    with suppress(BrokenPipeError):  # it died at once: its last words are still to be read
        worker.pipe.send(job)


def _stop(worker: _Worker) -> None:
    """End a worker and every process it started; each worker is a group of its own."""
    worker.pipe.close()
    with suppress(ProcessLookupError):
        os.killpg(worker.process.pid, signal.SIGKILL)
    worker.process.wait()
