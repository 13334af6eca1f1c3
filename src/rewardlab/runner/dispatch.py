"""Where work runs: `run_jobs` scores on a pool that survives models that hang, crash or are killed.

`map_processes` is an ordered map over processes, `map_threads` one over threads.
"""

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

import cloudpickle

from rewardlab.core.errors import ModelError, RunError, StopRun
from rewardlab.core.trial import Trial
from rewardlab.runner.cell_scoring import Cell, Job, ScoringContext, failed_trials
from rewardlab.runner.first_answers import FirstAnswers
from rewardlab.runner.lost_work import UnderWay, after_death, after_hang
from rewardlab.runner.model_process import sealed
from rewardlab.runner.processes import Process, send, start_process, stop_process
from rewardlab.runner.scoring_settings import ScoringSettings
from rewardlab.runner.scoring_worker import serve_jobs
from rewardlab.runner.worker import serve_items

Item = TypeVar("Item")
Result = TypeVar("Result")

_NEVER = float("inf")
_AHEAD = 64  # items begun before their turn, so that a slow one keeps no process waiting
_MAX_DEATHS = 3  # of processes that load the models, or that work on one item of a map, before it is an error


@dataclass(frozen=True)
class _Answer:
    """What a worker made of an item, or the error that is raised when its turn comes."""

    content: Any = None
    error: Exception | None = None
    died: bool = False

    def result(self) -> Any:
        """Return the content, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.content


@dataclass
class _Worker:
    """A process that scores, and what it is doing right now."""

    process: Process
    deadline: float
    ready: bool = False  # the models are loaded
    job: Job | None = None
    under_way: UnderWay = UnderWay()
    drafts: list[Trial] = field(default_factory=list)  # of the cells that a model scores right now
    done: set[str] = field(default_factory=set)
    last_words: str = ""

    @property
    def exit_code(self) -> int | None:
        """Return how the process ended, None while it runs."""
        return self.process.process.poll()

    @property
    def is_lost(self) -> bool:
        """Tell whether its job will not be finished: it died, or it takes too long."""
        ended = bool(self.last_words) or self.exit_code is not None or time.monotonic() > self.deadline
        return self.job is not None and ended


@dataclass
class _Deaths:
    """Counts the workers that died; too many of them end the run, with all that is finished kept."""

    most: int
    total: int = 0
    loading: int = 0  # one after the other

    def count(self, worker: _Worker, how: str) -> None:
        """Count a death, or raise because it is one too many."""
        self.total += 1
        self.loading = 0 if worker.ready else self.loading + 1
        if self.loading >= _MAX_DEATHS:
            raise ModelError(f"{how} while it loaded the models")
        if self.total > self.most:
            why = "see whether memory is short (fewer --workers) or a model crashes, or allow more with --max-restarts"
            raise StopRun(f"worker processes died {self.total} times, at last so: {how}; {why}")


def run_jobs(
    jobs: Iterable[Job], context: ScoringContext, workers: int, settings: ScoringSettings
) -> Iterator[list[Trial]]:
    """Yield trials as they are finished; only a cell whose model hangs or dies of it alone becomes a Failure."""
    cores, source = os.cpu_count() or 1, iter(jobs)
    queue = deque(islice(source, workers or cores))  # the rest is made when it is needed
    start = partial(_start_scoring, context, settings.load_timeout, max(1, cores // max(len(queue), 1)))
    pool, deaths = [start() for _ in range(len(queue))], _Deaths(settings.max_restarts)
    first = FirstAnswers(context.judged, settings.max_failures)
    try:
        while True:
            for index, worker in enumerate(pool):
                if worker.job is None and _may_begin(pool, queue, source, first):
                    if worker.ready and worker.exit_code is not None:  # it died between two jobs
                        _replace(pool, index, start, deaths)
                    _assign(pool[index], _next_job(queue, source, first, context.batch))
            busy = [worker for worker in pool if worker.job is not None]
            if not busy:
                return
            yield from _counted(_listen(busy, settings.timeout), first)
            for index, worker in enumerate(pool):
                if worker.is_lost:
                    yield from _receive(worker, settings.timeout)  # its last words may still be in the pipe
                if worker.is_lost:
                    trials, rest = _recover(worker, context, settings.timeout)
                    _replace(pool, index, start, deaths)
                    queue.extendleft(reversed(rest))
                    yield from _counted([trials], first)
    finally:
        for worker in pool:
            stop_process(worker.process)


def _may_begin(pool: Sequence[_Worker], queue: deque[Job], source: Iterator[Job], first: FirstAnswers) -> bool:
    """Tell whether there is a job to begin now: until every judged model has answered, one at a time."""
    if not queue:
        queue.extend(islice(source, 1))  # jobs may be made of what came out of earlier ones
    return bool(queue) and not (first.untried and any(worker.job is not None for worker in pool))


def _counted(batches: Iterable[list[Trial]], first: FirstAnswers) -> Iterator[list[Trial]]:
    """Yield the trials, so that they are kept, and then count them."""
    for trials in batches:
        yield trials
        first.count(trials)


def _next_job(queue: deque[Job], source: Iterator[Job], first: FirstAnswers, batch: int) -> Job:
    if not first.untried:
        queue.extend(islice(source, 1))
        return queue.popleft()
    job, rest = first.first_part(queue.popleft(), batch)
    queue.extendleft(rest)
    queue.extend(islice(source, 1 - len(rest)))
    return job


def map_processes(
    work: Callable[[Item], Result], items: Iterable[Item], workers: int, *, ahead: int = _AHEAD
) -> Iterator[Result]:
    """Yield what a function makes of each item, in order, whichever of the processes makes it; 0 is one per core.

    The function is sent to each process once, so it may carry what all items need. No more than `ahead` items more
    than there are processes are begun before their turn. An item whose process dies is put back, and is an error
    when it has died of it three times. With one process, or one item, the work is done here.
    """
    cores, source = os.cpu_count() or 1, iter(items)
    first = list(islice(source, workers or cores))
    if len(first) < 2:
        yield from map(work, chain(first, source))
        return
    payload = cloudpickle.dumps(partial(serve_items, work))
    start = partial(_start_mapping, payload, max(1, cores // len(first)))
    pool = [start() for _ in first]  # all of them load at the same time
    try:
        yield from _in_order(pool, start, chain(first, source), len(pool) + ahead)
    finally:
        for worker in pool:
            stop_process(worker)


def map_threads(work: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Iterator[Result]:
    """Yield what a function makes of each item, in order, on threads: for work that leaves Python, such as decoding."""
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        try:
            yield from pool.map(work, items)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _in_order(pool: list[Process], start: Callable[[], Process], items: Iterator[Any], most: int) -> Iterator[Any]:
    """Yield the results in the order of the items; at most so many are begun and not yet yielded."""
    numbered, idle, following = enumerate(items), list(pool), 0
    put_back: deque[tuple[int, Any]] = deque()
    busy: dict[Connection, tuple[int, Any, Process]] = {}
    finished: dict[int, _Answer] = {}
    deaths: Counter[int] = Counter()

    def assign() -> None:
        room = min(len(idle), most - len(busy) - len(finished))
        waiting = chain((put_back.popleft() for _ in range(len(put_back))), numbered)
        for number, item in islice(waiting, room):
            worker = idle.pop()
            busy[worker.pipe] = number, item, worker
            send(worker, cloudpickle.dumps(item))

    def take(number: int, item: Any, worker: Process) -> None:
        answer = _answer(worker)
        if answer.died:
            stop_process(worker)
            pool[pool.index(worker)] = worker = start()
            deaths[number] += 1
        if answer.died and deaths[number] < _MAX_DEATHS:
            put_back.append((number, item))
        else:
            finished[number] = answer
        idle.append(worker)

    assign()
    while busy or finished:
        ready = wait(list(busy), timeout=0 if following in finished else None)
        for pipe in [pipe for pipe in busy if pipe in ready]:
            take(*busy.pop(pipe))
        assign()  # before the caller goes on, so that no process waits for it
        if following in finished:
            yield finished.pop(following).result()
            following += 1
            assign()


def _answer(worker: Process) -> _Answer:
    try:
        kind, content = cloudpickle.loads(worker.pipe.recv_bytes())
    except (EOFError, ConnectionResetError):
        code = worker.process.wait(5)
        again = "run the same command again: what is finished is kept"
        return _Answer(error=RunError(f"a worker process died with exit code {code}; {again}"), died=True)
    if kind == "broken":
        return _Answer(error=RunError(f"a worker process cannot load its work: {content}"), died=True)
    return _Answer(error=content) if kind == "raised" else _Answer(content)


def _start_mapping(payload: bytes, threads: int) -> Process:
    worker = start_process(threads)
    send(worker, payload)
    return worker


def _listen(busy: list[_Worker], timeout: float) -> Iterator[list[Trial]]:
    left = max(0.0, min(worker.deadline for worker in busy) - time.monotonic())
    ready = wait([worker.process.pipe for worker in busy], timeout=min(left, 0.5))
    for worker in busy:
        if worker.process.pipe in ready:
            yield from _receive(worker, timeout)


def _receive(worker: _Worker, timeout: float) -> Iterator[list[Trial]]:
    """Take every message that has arrived from a worker."""
    try:
        while worker.process.pipe.poll():
            kind, content = worker.process.pipe.recv()
            if kind == "end":
                worker.done |= {trial.id for trial in content}
                yield content
            _note(worker, kind, content, timeout)
    except (EOFError, OSError):
        worker.process.process.wait(5)


def _note(worker: _Worker, kind: str, content: Any, timeout: float) -> None:
    """Write down what a worker says it is doing."""
    if kind == "prepare":
        worker.under_way, worker.drafts, worker.deadline = UnderWay(frozenset(content), prepared=True), [], _NEVER
    elif kind == "begin":
        ids = frozenset(trial.id for trial in content)
        worker.under_way, worker.drafts, worker.deadline = UnderWay(ids), content, time.monotonic() + timeout
    elif kind == "end":
        worker.under_way, worker.drafts, worker.deadline = UnderWay(), [], _NEVER
    elif kind == "ready":
        worker.ready, worker.deadline = True, _NEVER
    elif kind == "idle":
        worker.job, worker.under_way = None, UnderWay()
    elif kind == "died":
        worker.last_words = content
    elif kind == "stopped":
        raise StopRun(content)
    else:
        raise ModelError(f"cannot load a model: {content}")


def _recover(worker: _Worker, context: ScoringContext, timeout: float) -> tuple[list[Trial], Sequence[Job]]:
    """Return the cells that are lost for good and the jobs that are left after a hang or a crash."""
    job, hung = worker.job, not worker.last_words and worker.exit_code is None
    assert job is not None
    stop_process(worker.process)
    if not worker.ready and hung:
        raise ModelError("the models did not load in time; give them more with --load-timeout")
    if not worker.ready:
        return [], [job]
    left = (after_hang if hung else after_death)(job, frozenset(worker.done), worker.under_way)
    why = f"no answer within {timeout:g} s" if hung else _how(worker)
    return _given_up(worker, context, left.given_up, why), left.jobs


def _given_up(worker: _Worker, context: ScoringContext, cells: Sequence[Cell], why: str) -> list[Trial]:
    ids = {cell.id for cell in cells}
    if worker.drafts:
        return [replace(trial, reason=why) for trial in worker.drafts if trial.id in ids]
    assert worker.job is not None
    return failed_trials(worker.job, context, cells, f"{why} while the episode was decoded or perturbed")


def _how(worker: _Worker) -> str:
    return worker.last_words or f"the worker died with exit code {worker.exit_code}"


def _replace(pool: list[_Worker], index: int, start: Callable[[], _Worker], deaths: _Deaths) -> None:
    """Put a fresh worker in the place of one that is gone; one that was stopped because it hung is no death."""
    gone = pool[index]
    stop_process(gone.process)
    if gone.last_words or time.monotonic() <= gone.deadline:
        deaths.count(gone, _how(gone))
    pool[index] = start()


def _start_scoring(context: ScoringContext, load_timeout: float, threads: int) -> _Worker:
    models = {name: sealed(model) for name, model in context.models.items()}
    payload = cloudpickle.dumps(partial(serve_jobs, replace(context, models=models)))
    started = start_process(threads)
    send(started, payload)
    return _Worker(started, time.monotonic() + load_timeout)


def _assign(worker: _Worker, job: Job) -> None:
    worker.job, worker.done = job, set()
    with suppress(BrokenPipeError, ConnectionResetError):  # it died at once: its last words are still to be read
        worker.process.pipe.send(job)
