"""Where work runs: the only module that starts processes.

`run_jobs` scores on a pool that survives models that hang, crash or are killed; `map_processes` is an ordered map over
processes, `map_threads` one over threads.
"""

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
from itertools import chain, islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

import cloudpickle

from rewardlab.core.errors import ModelError, RunError, StopRun
from rewardlab.core.trial import Trial
from rewardlab.runner.cell_scoring import Cell, Job, ScoringContext, failed_trials
from rewardlab.runner.scoring_settings import ScoringSettings
from rewardlab.runner.scoring_worker import serve_jobs
from rewardlab.runner.worker import serve_items

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 64  # items begun before their turn, so that a slow one keeps no process waiting
_WORKER = "from rewardlab.runner.worker import main; main()"


@dataclass(frozen=True)
class _Answer:
    """What a worker made of an item, or the error that is raised when its turn comes."""

    content: Any = None
    error: Exception | None = None
    alive: bool = True  # the worker can take another item

    def result(self) -> Any:
        """Return the content, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.content


@dataclass(frozen=True)
class _Process:
    """A worker process and the pipe to it."""

    process: "subprocess.Popen[bytes]"
    pipe: Connection


@dataclass
class _Worker:
    """A process that scores, and what it is doing right now."""

    process: "subprocess.Popen[bytes]"
    pipe: Connection
    ready: bool = False  # the models are loaded
    job: Job | None = None
    scoring: list[Trial] = field(default_factory=list)
    deadline: float = float("inf")
    done: set[str] = field(default_factory=set)


def run_jobs(
    jobs: Iterable[Job], context: ScoringContext, workers: int, settings: ScoringSettings
) -> Iterator[list[Trial]]:
    """Yield trials as they are finished; a cell whose model hangs or kills its process becomes a Failure."""
    cores, source = os.cpu_count() or 1, iter(jobs)
    queue = deque(islice(source, workers or cores))  # the rest is made when it is needed
    start = partial(_start_scoring, context, settings.load_timeout, max(1, cores // max(len(queue), 1)))
    pool = [start() for _ in range(len(queue))]
    try:
        while True:
            for index, worker in enumerate(pool):
                if worker.job is None and queue:
                    if worker.ready and worker.process.poll() is not None:  # it died between two jobs
                        _stop(worker)
                        pool[index] = worker = start()
                    _assign(worker, queue.popleft())
                    queue.extend(islice(source, 1))
            busy = [worker for worker in pool if worker.job is not None]
            if not busy:
                return
            yield from _listen(busy, settings.timeout)
            for index, worker in enumerate(pool):
                if _is_lost(worker):
                    yield from _receive(worker, settings.timeout)  # its last words may still be in the pipe
                if _is_lost(worker):
                    trials, rest = _recover(worker, context, settings.timeout)
                    pool[index] = start()
                    queue.extendleft(rest)
                    yield trials
    finally:
        for worker in pool:
            _stop(worker)


def map_processes(
    work: Callable[[Item], Result], items: Iterable[Item], workers: int, *, ahead: int = _AHEAD
) -> Iterator[Result]:
    """Yield what a function makes of each item, in order, whichever of the processes makes it; 0 is one per core.

    The function is sent to each process once, so it may carry what all items need. No more than `ahead` items more
    than there are processes are begun before their turn. With one process, or one item, the work is done here.
    """
    cores, source = os.cpu_count() or 1, iter(items)
    first = list(islice(source, workers or cores))
    if len(first) < 2:
        yield from map(work, chain(first, source))
        return
    pool = [_spawn(max(1, cores // len(first))) for _ in first]
    try:
        payload = cloudpickle.dumps(partial(serve_items, work))
        for worker in pool:  # all of them load at the same time
            _send(worker, payload)
        yield from _in_order(pool, chain(first, source), len(pool) + ahead)
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


def _in_order(pool: list[_Process], items: Iterator[Any], most: int) -> Iterator[Any]:
    """Yield the results in the order of the items; at most so many are begun and not yet yielded."""
    numbered, idle, following = enumerate(items), list(pool), 0
    busy: dict[Connection, tuple[int, _Process]] = {}
    finished: dict[int, _Answer] = {}

    def assign() -> None:
        room = min(len(idle), most - len(busy) - len(finished))
        for number, item in islice(numbered, room):
            worker = idle.pop()
            busy[worker.pipe] = number, worker
            _send(worker, cloudpickle.dumps(item))

    assign()
    while busy or finished:
        ready = wait(list(busy), timeout=0 if following in finished else None)
        for pipe in [pipe for pipe in busy if pipe in ready]:
            number, worker = busy.pop(pipe)
            finished[number] = answer = _answer(worker)
            idle += [worker] if answer.alive else []
        assign()  # before the caller goes on, so that no process waits for it
        if following in finished:
            yield finished.pop(following).result()
            following += 1
            assign()


def _answer(worker: _Process) -> _Answer:
    try:
        kind, content = cloudpickle.loads(worker.pipe.recv_bytes())
    except (EOFError, ConnectionResetError):
        code = worker.process.wait(5)
        again = "run the same command again: what is finished is kept"
        return _Answer(error=RunError(f"a worker process died with exit code {code}; {again}"), alive=False)
    if kind == "broken":
        return _Answer(error=RunError(f"a worker process cannot load its work: {content}"), alive=False)
    return _Answer(error=content) if kind == "raised" else _Answer(content)


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
                worker.scoring, worker.deadline = content, time.monotonic() + timeout
            elif kind == "end":
                worker.scoring, worker.deadline = [], float("inf")
                worker.done |= {trial.id for trial in content}
                yield content
            elif kind == "ready":
                worker.ready, worker.deadline = True, float("inf")
            elif kind == "idle":
                worker.job = None
            elif kind == "stopped":
                raise StopRun(content)
            else:
                raise ModelError(f"cannot load a model: {content}")
    except (EOFError, ConnectionResetError):
        worker.process.wait(5)


def _is_lost(worker: _Worker) -> bool:
    if worker.job is None:
        return False
    return worker.process.poll() is not None or time.monotonic() > worker.deadline


def _recover(worker: _Worker, context: ScoringContext, timeout: float) -> tuple[list[Trial], list[Job]]:
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
    suspects = {trial.id for trial in worker.scoring}
    left = tuple(cell for cell in job.cells if cell.id not in worker.done)
    if len(suspects) == 1:
        lost = [replace(trial, reason=how) for trial in worker.scoring]
        return lost, _rest(job, tuple(cell for cell in left if cell.id not in suspects), frozenset())
    if not suspects:  # no model was at work: the episode itself cannot be prepared
        return failed_trials(job, context, left, f"{how} while the episode was decoded or perturbed"), []
    return [], _rest(job, left, frozenset(suspects))


def _rest(job: Job, left: tuple[Cell, ...], alone: frozenset[str]) -> list[Job]:
    return [job.keep(left, alone)] if left else []


def _start_scoring(context: ScoringContext, load_timeout: float, threads: int) -> _Worker:
    started = _spawn(threads)
    _send(started, cloudpickle.dumps(partial(serve_jobs, replace(context))))
    return _Worker(started.process, started.pipe, deadline=time.monotonic() + load_timeout)


def _spawn(threads: int) -> _Process:
    """Start a fresh interpreter: it inherits no threads, locks or devices, and never runs the user's script again.

    The workers share the cores: libraries that compute in threads are told how many are theirs.
    """
    ours, theirs = Pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        env={"OMP_NUM_THREADS": str(threads), **os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        process_group=0,  # Ctrl-C is the parent's business
    )
    theirs.close()
    return _Process(process, ours)


def _send(worker: _Process, payload: bytes) -> None:
    with suppress(BrokenPipeError):  # it died: reading its answer will say so
        worker.pipe.send_bytes(payload)


def _assign(worker: _Worker, job: Job) -> None:
    worker.job, worker.done = job, set()
    with suppress(BrokenPipeError):  # it died at once: its last words are still to be read
        worker.pipe.send(job)


def _stop(worker: _Process | _Worker) -> None:
    """End a worker and every process it started; each worker is a group of its own."""
    worker.pipe.close()
    with suppress(ProcessLookupError):
        os.killpg(worker.process.pid, signal.SIGKILL)
    worker.process.wait()
