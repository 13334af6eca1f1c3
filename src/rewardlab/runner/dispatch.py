"""Where work runs: `run_jobs` scores on workers of an engine, and survives models that hang, crash or are killed.

`map_items` is an ordered map over workers of an engine (`ItemWorkers` are kept for several); over threads it is
`thread_map.map_threads`.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TypeVar

import cloudpickle

from rewardlab.core.trial import Trial
from rewardlab.runner.cell_scoring import Job, ScoringContext
from rewardlab.runner.engines import open_engine
from rewardlab.runner.engines.contract import Engine, EngineSettings
from rewardlab.runner.first_answers import FirstAnswers
from rewardlab.runner.item_workers import AHEAD, ItemWorkers
from rewardlab.runner.model_process import sealed
from rewardlab.runner.scoring_pool import Deaths, ScoringWorker
from rewardlab.runner.scoring_settings import ScoringSettings
from rewardlab.runner.scoring_worker import serve_jobs

Item = TypeVar("Item")
Result = TypeVar("Result")

__all__ = ["ItemWorkers", "map_items", "run_jobs"]
_LOOK_SECONDS = 0.5  # how often deadlines are looked at


@dataclass
class _Pool:
    """The workers of a run, and how one takes the place of another."""

    engine: Engine
    start: Callable[[], ScoringWorker]
    deaths: Deaths
    workers: list[ScoringWorker]

    @property
    def is_busy(self) -> bool:
        """Tell whether a worker has a job."""
        return any(worker.job is not None for worker in self.workers)

    def replace(self, index: int) -> None:
        """Put a fresh worker in the place of one that is gone."""
        gone = self.workers[index]
        gone.worker.stop()
        self.deaths.count(gone)
        self.workers[index] = self.start()

    def listen(self, timeout: float) -> Iterator[list[Trial]]:
        """Yield what the workers tell, after waiting for it a little; those without a place are heard too."""
        heard = [worker for worker in self.workers if worker.job is not None or not worker.worker.is_placed]
        left = max(0.0, min(worker.deadline for worker in heard) - time.monotonic())
        self.engine.wait([worker.worker for worker in heard], min(left, _LOOK_SECONDS))
        for worker in heard:
            yield from worker.receive(timeout)

    def stop(self) -> None:
        """End every worker."""
        for worker in self.workers:
            worker.worker.stop()


def run_jobs(
    jobs: Iterable[Job], context: ScoringContext, workers: int, settings: ScoringSettings
) -> Iterator[list[Trial]]:
    """Yield trials as they are finished; only a cell whose model hangs or dies of it alone becomes a Failure.

    Where none is finished for half a second, none are yielded, so that who keeps them can write those before.
    """
    paid = any(model.server for model in context.models.values())  # what they cost is written down in the run folder
    with open_engine(settings.engine_settings, at_home=paid) as engine:
        source = iter(jobs)
        queue = deque(islice(source, workers or engine.cores))  # the rest is made when it is needed
        payload, threads = _scoring_payload(context), max(1, engine.cores // max(len(queue), 1))
        start: Callable[[], ScoringWorker] = lambda: ScoringWorker(
            engine.start(payload, threads), settings.load_timeout
        )
        pool = _Pool(engine, start, Deaths(settings.max_restarts), [start() for _ in queue])
        first = FirstAnswers(context.judged, settings.max_failures)
        try:
            while _assign_jobs(pool, _Jobs(queue, source, first, context.batch)):
                yield from _counted(pool.listen(settings.timeout), first)
                yield from _counted(_recovered(pool, context, queue, settings.timeout), first)
                yield []
        finally:
            pool.stop()


@dataclass
class _Jobs:
    """The jobs that wait, those still to be made, and how much of one may be asked now."""

    queue: deque[Job]
    source: Iterator[Job]
    first: FirstAnswers
    batch: int

    def any_for(self, pool: _Pool) -> bool:
        """Tell whether there is a job to begin now: until every judged model has answered, one at a time."""
        if not self.queue:
            self.queue.extend(islice(self.source, 1))  # jobs may be made of what came out of earlier ones
        return bool(self.queue) and not (self.first.untried and pool.is_busy)

    def take(self) -> Job:
        """Return the next job."""
        if not self.first.untried:
            self.queue.extend(islice(self.source, 1))
            return self.queue.popleft()
        job, rest = self.first.first_part(self.queue.popleft(), self.batch)
        self.queue.extendleft(rest)
        self.queue.extend(islice(self.source, 1 - len(rest)))
        return job


def _assign_jobs(pool: _Pool, jobs: _Jobs) -> bool:
    """Give jobs to the workers that have none; False when there is nothing left to do."""
    for index, worker in enumerate(pool.workers):
        if worker.may_begin and jobs.any_for(pool):
            if worker.died_idle:
                pool.replace(index)
            if pool.workers[index].may_begin:  # a fresh one may have to wait for room on a cluster
                pool.workers[index].assign(jobs.take())
    return pool.is_busy or jobs.any_for(pool)


def _recovered(pool: _Pool, context: ScoringContext, queue: deque[Job], timeout: float) -> Iterator[list[Trial]]:
    """Replace workers that are lost, put their jobs back, and yield the trials of cells that are given up."""
    for index, worker in enumerate(pool.workers):
        if worker.is_lost:
            yield from worker.receive(timeout)  # its last words may still be on their way
        if worker.is_lost:
            trials, rest = worker.recover(context, timeout)
            pool.replace(index)
            queue.extendleft(reversed(rest))
            yield trials


def _counted(batches: Iterable[list[Trial]], first: FirstAnswers) -> Iterator[list[Trial]]:
    """Yield the trials, so that they are kept, and then count them."""
    for trials in batches:
        yield trials
        first.count(trials)


def _scoring_payload(context: ScoringContext) -> bytes:
    models = {name: sealed(model) for name, model in context.models.items()}
    payload: bytes = cloudpickle.dumps(partial(serve_jobs, replace(context, models=models)))
    return payload


def map_items(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int,
    settings: EngineSettings = EngineSettings(),  # noqa: B008 - it is frozen
    *,
    ahead: int = AHEAD,
) -> Iterator[Result]:
    """Yield what a function makes of each item, in order, whichever worker of an engine makes it; 0 is one per core.

    The function is sent to each worker once, so it may carry what all items need. No more than `ahead` items more
    than there are workers are begun before their turn. An item whose worker dies is put back, and is an error when it
    has died of it three times. With one process, or one item, the work is done here.
    """
    with ItemWorkers(work, workers, settings, ahead=ahead) as pool:
        yield from pool.map(items)
