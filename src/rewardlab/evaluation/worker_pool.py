"""`run_jobs`: workers that score, deadlines, recovery; `engines.ordered_map` maps other work over workers."""

import logging
import pickle
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from typing import Any

import cloudpickle

from rewardlab.core.errors import ModelError, StopRun
from rewardlab.core.settings import Execution, Scoring
from rewardlab.core.terminal import one_line
from rewardlab.core.trial import Trial
from rewardlab.evaluation.display import reason_kind
from rewardlab.evaluation.engines import open_engine
from rewardlab.evaluation.engines.contract import Engine, Worker
from rewardlab.evaluation.isolated_model import pickle_model
from rewardlab.evaluation.plan import Job, PlannedTrial, ScoringContext
from rewardlab.evaluation.scoring import failed_trials, serve_jobs

_NEVER = float("inf")
_LOAD_SECONDS = 900.0  # that models may take to load
_MAX_WORKER_FAILURES = 3  # of workers that load the models, before it is an error


# What a crash or a hang costs: retry, bisect, fail only the offending trial.


@dataclass(frozen=True)
class UnderWay:
    """The trials that a worker is at: those a model scores, or those of one episode or condition that it prepares.

    Those that are prepared together cannot be told apart: they are one suspect.
    """

    trials: frozenset[str] = frozenset()
    prepared: bool = False


@dataclass(frozen=True)
class Recovery:
    """What is left after a worker exited: jobs to do, and trials that are given up."""

    jobs: tuple[Job, ...]
    given_up: tuple[PlannedTrial, ...] = ()


def retry_after_failure(job: Job, done: frozenset[str], under_way: UnderWay) -> Recovery:
    """Retry what a worker exited on, alone; trials that no split can part are given up at the second exit.

    Of a batch nobody knows which trial it was: the job is retried after the first exit, for a memory killer strikes
    anyone, and the batch is bisected after the next, until the offending trial is alone.
    """
    left = tuple(trial for trial in job.trials if trial.id not in done)
    suspects = tuple(trial for trial in left if trial.id in under_way.trials) or left
    others = tuple(trial for trial in left if trial not in suspects)
    rest = (job.keep(others, exits=0),) if others else ()
    if not left:
        return Recovery(())
    if len(suspects) == 1 or under_way.prepared:
        if job.exits and not others:
            return Recovery((), suspects)
        return Recovery((*rest, job.keep(suspects, exits=1)))
    if job.exits == 0:
        return Recovery((job.keep(left, exits=1),))
    middle = len(suspects) // 2
    halves = suspects[:middle], suspects[middle:]
    return Recovery((*rest, *(job.keep(half, exits=int(len(half) > 1)) for half in halves)))


def after_hang(job: Job, done: frozenset[str], under_way: UnderWay) -> Recovery:
    """Give up a trial that hangs alone; of several, each is asked alone from now on: waiting again for all is dear."""
    left = tuple(trial for trial in job.trials if trial.id not in done)
    suspects = tuple(trial for trial in left if trial.id in under_way.trials)
    others = tuple(trial for trial in left if trial not in suspects)
    if len(suspects) > 1 and not under_way.prepared:
        return Recovery((replace(job.keep(left, exits=job.exits), alone=job.alone | under_way.trials),))
    return Recovery((job.keep(others, exits=job.exits),) if others else (), suspects)


# The first answers of a run: small jobs, one at a time, until every evaluated model has answered or the run ends.
#
# A model that cannot answer at all is so found out at the price of a few trials, whatever the batch and the workers.

_LONGEST = 5  # times the failures allowed: trials that are dropped or cannot be prepared tell nothing of a model


class FirstAnswers:
    """Counts the failures alike that the answers of each evaluated model begin with; `most` of them end the run."""

    def __init__(self, evaluated: Collection[str], most: int) -> None:
        self.most = most
        self.untried = set(evaluated) if most else set()
        self._reasons: dict[str, str] = {}
        self._alike: Counter[str] = Counter()
        self._handed_out: Counter[str] = Counter()

    def first_part(self, job: Job, batch: int) -> tuple[Job, tuple[Job, ...]]:
        """Return the part of a job that may be asked now, and the rest: no untried model is asked more than allowed."""
        self.untried &= {trial.model for trial in job.trials}
        room = min((self.most - self._alike[model] for model in self.untried), default=0)
        asked: Counter[str] = Counter()
        rest: tuple[Job, ...] = ()
        for place, trial in enumerate(job.trials):
            asked[trial.model] += trial.model in self.untried
            if asked[trial.model] > min(batch, room):
                rest, job = (job.keep(job.trials[place:], job.exits),), job.keep(job.trials[:place], job.exits)
                break
        self._handed_out.update(trial.model for trial in job.trials)
        self.untried = {model for model in self.untried if self._handed_out[model] <= _LONGEST * self.most}
        return job, rest

    def count(self, trials: Sequence[Trial]) -> None:
        """Count answers in the order in which they come; raise StopRun at the last failure that is allowed."""
        for trial in trials:
            if trial.model not in self.untried or trial.status == "dropped" or not trial.frames_hash:
                continue
            reason = trial.reason or ""
            first = self._reasons.setdefault(trial.model, reason)
            if trial.status == "scored" or trial.info.abstained or reason_kind(reason) != reason_kind(first):
                self.untried.discard(trial.model)
                continue
            self._alike[trial.model] += 1
            if self._alike[trial.model] >= self.most:
                raise StopRun(
                    f"the first {self.most:,} answers of {trial.model} all failed alike: {first}; correct it and add "
                    "--retry-failures, or allow more with --max-failures"
                )


@dataclass
class ScoringWorker:
    """A worker that scores, and what it is doing right now."""

    worker: Worker
    load_timeout: float
    deadline: float = _NEVER
    ready: bool = False  # the models are loaded
    job: Job | None = None
    under_way: UnderWay = UnderWay()
    drafts: list[Trial] = field(default_factory=list)  # of the trials that a model scores right now
    done: set[str] = field(default_factory=set)
    exit_message: str = ""

    @property
    def may_begin(self) -> bool:
        """Tell whether it can be given a job."""
        return self.job is None and self.worker.is_placed

    @property
    def is_lost(self) -> bool:
        """Tell whether its job will not be finished: it exited, or it takes too long."""
        ended = bool(self.exit_message) or self.worker.exit_reason is not None or time.monotonic() > self.deadline
        return self.job is not None and ended

    @property
    def exit_reason(self) -> str:
        """Return why it exited, in its own words where it left any."""
        return self.exit_message or f"the worker process ended with {self.worker.exit_reason}"

    def assign(self, job: Job) -> None:
        """Send it a job; where it exits at once, its message is still to be read."""
        self.job, self.done = job, set()
        if not self.ready:
            self.deadline = time.monotonic() + self.load_timeout  # it has a place, so it is loading
        self.worker.send(pickle.dumps(job))

    def receive(self, timeout: float) -> Iterator[list[Trial]]:
        """Take every message that has arrived, and yield the trials among them."""
        for message in self.worker.receive():
            kind, content = pickle.loads(message)
            if kind == "end":
                self.done |= {trial.id for trial in content}
                yield content
            self._note(kind, content, timeout)

    def _note(self, kind: str, content: Any, timeout: float) -> None:
        """Note what it reports to be doing."""
        if kind == "prepare":
            self.under_way, self.drafts, self.deadline = UnderWay(frozenset(content), prepared=True), [], _NEVER
        elif kind == "begin":
            ids = frozenset(trial.id for trial in content)
            self.under_way, self.drafts, self.deadline = UnderWay(ids), content, time.monotonic() + timeout
        elif kind == "end":
            self.under_way, self.drafts, self.deadline = UnderWay(), [], _NEVER
        elif kind == "ready":
            self.ready, self.deadline = True, _NEVER
        elif kind == "idle":
            self.job, self.under_way = None, UnderWay()
        elif kind == "exited":
            self.exit_message = content
        elif kind == "note":
            logging.getLogger("rewardlab").warning("%s", one_line(content))
        elif kind == "stopped":
            raise StopRun(content)
        else:
            raise ModelError(f"cannot load a model: {content}")

    def recover(self, context: ScoringContext, timeout: float) -> tuple[list[Trial], Sequence[Job]]:
        """Return the trials that are lost for good and the jobs that are left after a hang or a crash."""
        job, hung = self.job, not self.exit_message and self.worker.exit_reason is None
        assert job is not None
        self.worker.stop()
        if not self.ready and hung:
            raise ModelError("the models did not load in time; give them more with --load-timeout")
        if self.worker.machine_lost:  # no trial is to blame
            left = [trial for trial in job.trials if trial.id not in self.done]
            return [], [job.keep(left, job.exits)] if left else []
        if not self.ready:
            return [], [job]
        recovery = (after_hang if hung else retry_after_failure)(job, frozenset(self.done), self.under_way)
        why = f"no answer within {timeout:g} s" if hung else self.exit_reason
        if self.drafts:
            ids = {each.id for each in recovery.given_up}
            return [replace(draft, reason=why) for draft in self.drafts if draft.id in ids], recovery.jobs
        why += " while the episode was decoded or perturbed"
        return failed_trials(job, context, recovery.given_up, why), recovery.jobs


@dataclass
class WorkerFailures:
    """Counts the workers that exited; too many of them end the run, with all that is finished kept."""

    most: int
    total: int = 0
    loading: int = 0  # one after the other

    def count(self, gone: ScoringWorker) -> None:
        """Count an exit, or raise because it is one too many; one that was stopped or lost its machine is none."""
        if gone.worker.machine_lost or not (gone.exit_message or time.monotonic() <= gone.deadline):
            return
        self.total += 1
        self.loading = 0 if gone.ready else self.loading + 1
        if self.loading >= _MAX_WORKER_FAILURES:
            raise ModelError(f"{gone.exit_reason} while it loaded the models")
        if self.total > self.most:
            why = "see whether memory is short (fewer --workers) or a model crashes, or allow more with --max-restarts"
            raise StopRun(f"worker processes ended {self.total} times, the last time because {gone.exit_reason}; {why}")


_LOOK_SECONDS = 0.5  # how often deadlines are looked at


@dataclass
class _Pool:
    """The workers of a run, the jobs that wait, and those still to be made."""

    engine: Engine
    start: Callable[[], ScoringWorker]
    failures: WorkerFailures
    first: FirstAnswers
    queue: deque[Job]
    source: Iterator[Job]
    batch: int
    workers: list[ScoringWorker]

    def assign_jobs(self) -> bool:
        """Give jobs to the workers that have none; False when there is nothing left to do."""
        for index, worker in enumerate(self.workers):
            if worker.may_begin and self._has_job():
                if worker.ready and worker.worker.exit_reason is not None:  # between two jobs
                    self._replace(index)
                if self.workers[index].may_begin:  # a fresh one may have to wait for room on a cluster
                    self.workers[index].assign(self._take_job())
        return self._is_busy() or self._has_job()

    def _is_busy(self) -> bool:
        return any(worker.job is not None for worker in self.workers)

    def _has_job(self) -> bool:
        """Tell whether there is a job to begin now: until every evaluated model has answered, one at a time."""
        if not self.queue:
            self.queue.extend(islice(self.source, 1))  # jobs may be made of what came out of earlier ones
        return bool(self.queue) and not (self.first.untried and self._is_busy())

    def _take_job(self) -> Job:
        if not self.first.untried:
            self.queue.extend(islice(self.source, 1))
            return self.queue.popleft()
        job, rest = self.first.first_part(self.queue.popleft(), self.batch)
        self.queue.extendleft(rest)
        self.queue.extend(islice(self.source, 1 - len(rest)))
        return job

    def _replace(self, index: int) -> None:
        """Put a fresh worker in the place of one that is gone."""
        gone = self.workers[index]
        gone.worker.stop()
        self.failures.count(gone)
        self.workers[index] = self.start()

    def listen(self, timeout: float) -> Iterator[list[Trial]]:
        """Yield what the workers tell, after waiting for it a little; those without a place are heard too."""
        heard = [worker for worker in self.workers if worker.job is not None or not worker.worker.is_placed]
        left = max(0.0, min(worker.deadline for worker in heard) - time.monotonic())
        self.engine.wait([worker.worker for worker in heard], min(left, _LOOK_SECONDS))
        for worker in heard:
            yield from worker.receive(timeout)

    def recover(self, context: ScoringContext, timeout: float) -> Iterator[list[Trial]]:
        """Replace workers that are lost, put their jobs back, and yield the trials that are given up."""
        for index, worker in enumerate(self.workers):
            if worker.is_lost:
                yield from worker.receive(timeout)  # its last message may still be on its way
            if worker.is_lost:
                trials, rest = worker.recover(context, timeout)
                self._replace(index)
                self.queue.extendleft(reversed(rest))
                yield trials


def run_jobs(
    jobs: Iterable[Job], context: ScoringContext, execution: Execution, scoring: Scoring
) -> Iterator[list[Trial]]:
    """Yield trials as they are finished; only a trial on which a model alone hangs or crashes becomes a Failure.

    Where none is finished for half a second, none are yielded, so that who keeps them can write those before.
    """
    paid = any(model.server for model in context.models.values())  # what they cost is written down in the run folder
    with open_engine(execution, local_only=paid) as engine:
        source = iter(jobs)
        queue = deque(islice(source, execution.workers or engine.cores))  # the rest is made when it is needed
        models = {name: pickle_model(model) for name, model in context.models.items()}
        isolate = execution.engine != "local"
        payload = cloudpickle.dumps(partial(serve_jobs, replace(context, models=models), isolate=isolate))
        threads = max(1, engine.cores // max(len(queue), 1))
        load_timeout = scoring.load_timeout or _LOAD_SECONDS
        start: Callable[[], ScoringWorker] = lambda: ScoringWorker(engine.start(payload, threads), load_timeout)
        failures, first = WorkerFailures(scoring.max_restarts), FirstAnswers(context.evaluated, scoring.max_failures)
        pool = _Pool(engine, start, failures, first, queue, source, context.batch, [start() for _ in queue])
        try:
            while pool.assign_jobs():
                for trials in chain(pool.listen(scoring.timeout), pool.recover(context, scoring.timeout)):
                    yield trials  # so that they are kept, before they are counted
                    first.count(trials)
                yield []
        finally:
            for worker in pool.workers:
                worker.worker.stop()
