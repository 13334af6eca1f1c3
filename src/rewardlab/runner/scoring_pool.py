"""The workers that score: what each is at, what is lost with one that dies or hangs, and when it is too much."""

import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rewardlab.core.errors import ModelError, StopRun
from rewardlab.core.trial import Trial
from rewardlab.runner.cell_scoring import Cell, Job, ScoringContext, failed_trials
from rewardlab.runner.engines.contract import Worker
from rewardlab.runner.lost_work import UnderWay, after_death, after_hang

_NEVER = float("inf")
_MAX_DEATHS = 3  # of workers that load the models, before it is an error


@dataclass
class ScoringWorker:
    """A worker that scores, and what it is doing right now."""

    worker: Worker
    load_timeout: float
    deadline: float = _NEVER
    ready: bool = False  # the models are loaded
    job: Job | None = None
    under_way: UnderWay = UnderWay()
    drafts: list[Trial] = field(default_factory=list)  # of the cells that a model scores right now
    done: set[str] = field(default_factory=set)
    last_words: str = ""

    @property
    def may_begin(self) -> bool:
        """Tell whether it can be given a job."""
        return self.job is None and self.worker.is_placed

    @property
    def died_idle(self) -> bool:
        """Tell whether it died between two jobs."""
        return self.ready and self.worker.death is not None

    @property
    def is_lost(self) -> bool:
        """Tell whether its job will not be finished: it died, or it takes too long."""
        ended = bool(self.last_words) or self.worker.death is not None or time.monotonic() > self.deadline
        return self.job is not None and ended

    @property
    def how_it_died(self) -> str:
        """Return its last words, or what it died with."""
        return self.last_words or f"the worker died with {self.worker.death}"

    def assign(self, job: Job) -> None:
        """Send it a job; where it died at once, its last words are still to be read."""
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
        """Write down what it says it is doing."""
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
        elif kind == "died":
            self.last_words = content
        elif kind == "stopped":
            raise StopRun(content)
        else:
            raise ModelError(f"cannot load a model: {content}")

    def recover(self, context: ScoringContext, timeout: float) -> tuple[list[Trial], Sequence[Job]]:
        """Return the cells that are lost for good and the jobs that are left after a hang or a crash."""
        job, hung = self.job, not self.last_words and self.worker.death is None
        assert job is not None
        self.worker.stop()
        if not self.ready and hung:
            raise ModelError("the models did not load in time; give them more with --load-timeout")
        if self.worker.machine_lost:  # no cell is to blame
            left = [cell for cell in job.cells if cell.id not in self.done]
            return [], [job.keep(left, job.deaths)] if left else []
        if not self.ready:
            return [], [job]
        recovery = (after_hang if hung else after_death)(job, frozenset(self.done), self.under_way)
        why = f"no answer within {timeout:g} s" if hung else self.how_it_died
        return self._given_up(context, recovery.given_up, why), recovery.jobs

    def _given_up(self, context: ScoringContext, cells: Sequence[Cell], why: str) -> list[Trial]:
        ids = {cell.id for cell in cells}
        if self.drafts:
            return [replace(trial, reason=why) for trial in self.drafts if trial.id in ids]
        assert self.job is not None
        return failed_trials(self.job, context, cells, f"{why} while the episode was decoded or perturbed")


@dataclass
class Deaths:
    """Counts the workers that died; too many of them end the run, with all that is finished kept."""

    most: int
    total: int = 0
    loading: int = 0  # one after the other

    def count(self, gone: ScoringWorker) -> None:
        """Count a death, or raise because it is one too many; one that was stopped or lost its machine is none."""
        if gone.worker.machine_lost or not (gone.last_words or time.monotonic() <= gone.deadline):
            return
        self.total += 1
        self.loading = 0 if gone.ready else self.loading + 1
        if self.loading >= _MAX_DEATHS:
            raise ModelError(f"{gone.how_it_died} while it loaded the models")
        if self.total > self.most:
            why = "see whether memory is short (fewer --workers) or a model crashes, or allow more with --max-restarts"
            raise StopRun(f"worker processes died {self.total} times, at last so: {gone.how_it_died}; {why}")
