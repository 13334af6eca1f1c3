"""Where work runs: a pool of processes that survives models that hang, crash or are killed."""

import ctypes
import multiprocessing as mp
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from rewardlab.bench.score import Bench, Cell, Job, failed_trials, score_job
from rewardlab.core.errors import ModelError
from rewardlab.core.trial import Trial

# Forked workers take models given as objects and need no guard in the user's script.
_CONTEXT = mp.get_context("fork") if sys.platform == "linux" else mp.get_context("spawn")


@dataclass
class _Worker:
    """A process, the pipe to it, and what it is doing right now."""

    process: BaseProcess
    pipe: Connection
    job: Job | None = None
    judging: list[Trial] = field(default_factory=list)
    deadline: float = float("inf")
    done: set[str] = field(default_factory=set)


def run_jobs(jobs: Iterable[Job], bench: Bench, workers: int, timeout: float) -> Iterator[list[Trial]]:
    """Yield trials as they are finished; a cell whose model hangs or kills its process becomes a Failure."""
    queue = deque(jobs)
    pool = [_start(bench) for _ in range(min(workers or os.cpu_count() or 1, len(queue)))]
    try:
        while True:
            for worker in pool:
                if worker.job is None and queue:
                    _give(worker, queue.popleft())
            busy = [worker for worker in pool if worker.job is not None]
            if not busy:
                return
            yield from _listen(busy, timeout)
            for index, worker in enumerate(pool):
                if _is_lost(worker):
                    trials, rest = _aftermath(worker, bench, timeout)
                    pool[index] = _start(bench)
                    queue.extendleft(rest)
                    yield trials
    finally:
        for worker in pool:
            _stop(worker)


def _listen(busy: list[_Worker], timeout: float) -> Iterator[list[Trial]]:
    patience = max(0.0, min(worker.deadline for worker in busy) - time.monotonic())
    ready = wait([worker.pipe for worker in busy], timeout=min(patience, 0.5))
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
            elif kind == "idle":
                worker.job = None
            else:
                raise ModelError(content)
    except (EOFError, ConnectionResetError):
        worker.process.join(5)


def _is_lost(worker: _Worker) -> bool:
    if worker.job is None:
        return False
    return not worker.process.is_alive() or time.monotonic() > worker.deadline


def _aftermath(worker: _Worker, bench: Bench, timeout: float) -> tuple[list[Trial], list[Job]]:
    """Return the cells that are lost for good and the job that is left after a hang or a crash."""
    job = worker.job
    assert job is not None
    hung = worker.process.is_alive()
    _stop(worker)
    how = f"no answer within {timeout:g} s" if hung else f"the worker died with exit code {worker.process.exitcode}"
    suspects = {trial.id for trial in worker.judging}
    left = tuple(cell for cell in job.cells if cell.id not in worker.done)
    if len(suspects) == 1:
        lost = [replace(trial, reason=how) for trial in worker.judging]
        return lost, _rest(job, tuple(cell for cell in left if cell.id not in suspects), frozenset())
    if not suspects:  # no model was at work: the episode itself cannot be prepared
        return failed_trials(job, bench, left, f"{how} while the episode was decoded or perturbed"), []
    return [], _rest(job, left, frozenset(suspects))


def _rest(job: Job, left: tuple[Cell, ...], alone: frozenset[str]) -> list[Job]:
    return [replace(job, cells=left, alone=job.alone | alone)] if left else []


def _start(bench: Bench) -> _Worker:
    ours, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_serve, args=(theirs, bench), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _give(worker: _Worker, job: Job) -> None:
    worker.job, worker.done = job, set()
    with suppress(BrokenPipeError):  # it died at once: its last words are still to be read
        worker.pipe.send(job)


def _stop(worker: _Worker) -> None:
    worker.process.kill()
    worker.process.join()
    worker.pipe.close()


def _die_with_parent() -> None:
    """Ask Linux to end this process when its parent is killed, so that no orphan goes on scoring."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG


def _serve(pipe: Connection, bench: Bench) -> None:
    """Be a worker: build the models once, then score jobs until the parent goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    _die_with_parent()
    import cv2

    cv2.setNumThreads(1)
    try:
        models = {name: model.build() for name, model in bench.models.items()}
    except Exception as error:
        pipe.send(("broken", f"cannot load a model: {error}"))
        return
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            return
        score_job(
            job,
            bench,
            models,
            begin=lambda drafts: pipe.send(("begin", drafts)),
            end=lambda trials: pipe.send(("end", trials)),
        )
        pipe.send(("idle", None))
