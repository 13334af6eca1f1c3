"""What a crash or a hang costs: retry, bisect, fail only the offending trial; stop where all first answers fail."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from rewardlab.core.errors import StopRun
from rewardlab.core.trial import Trial
from rewardlab.evaluation.display import reason_kind
from rewardlab.evaluation.plan import Job, PlannedTrial


@dataclass(frozen=True)
class UnderWay:
    """The trials that a worker is at: those a model scores, or those of one episode or condition that it prepares.

    Those that are prepared together cannot be told apart: they are one suspect.
    """

    trials: frozenset[str] = frozenset()
    prepared: bool = False


@dataclass(frozen=True)
class Recovery:
    """What is left after a death: jobs to do, and trials that are given up."""

    jobs: tuple[Job, ...]
    given_up: tuple[PlannedTrial, ...] = ()


def retry_after_failure(job: Job, done: frozenset[str], under_way: UnderWay) -> Recovery:
    """Ask again what a worker died of, alone; trials that no split can part are given up when they die a second time.

    Of a batch nobody knows which trial it was: the job is put back at its first death, for a memory killer strikes
    anyone, and the batch is halved at the next, until the poison is alone.
    """
    left = tuple(trial for trial in job.trials if trial.id not in done)
    suspects = tuple(trial for trial in left if trial.id in under_way.trials) or left
    others = tuple(trial for trial in left if trial not in suspects)
    rest = (job.keep(others, deaths=0),) if others else ()
    if not left:
        return Recovery(())
    if len(suspects) == 1 or under_way.prepared:
        if job.deaths and not others:
            return Recovery((), suspects)
        return Recovery((*rest, job.keep(suspects, deaths=1)))
    if job.deaths == 0:
        return Recovery((job.keep(left, deaths=1),))
    return Recovery((*rest, *(job.keep(half, deaths=int(len(half) > 1)) for half in _halves(suspects))))


def after_hang(job: Job, done: frozenset[str], under_way: UnderWay) -> Recovery:
    """Give up a trial that hangs alone; of several, each is asked alone from now on: waiting again for all is dear."""
    left = tuple(trial for trial in job.trials if trial.id not in done)
    suspects = tuple(trial for trial in left if trial.id in under_way.trials)
    others = tuple(trial for trial in left if trial not in suspects)
    if len(suspects) > 1 and not under_way.prepared:
        return Recovery((replace(job.keep(left, deaths=job.deaths), alone=job.alone | under_way.trials),))
    return Recovery((job.keep(others, deaths=job.deaths),) if others else (), suspects)


def _halves(trials: Sequence[PlannedTrial]) -> tuple[tuple[PlannedTrial, ...], tuple[PlannedTrial, ...]]:
    middle = len(trials) // 2
    return tuple(trials[:middle]), tuple(trials[middle:])


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
        for place, trial in enumerate(job.trials):
            asked[trial.model] += trial.model in self.untried
            if asked[trial.model] > min(batch, room):
                rest = job.keep(job.trials[place:], job.deaths)
                return self._hand_out(job.keep(job.trials[:place], job.deaths)), (rest,)
        return self._hand_out(job), ()

    def count(self, trials: Sequence[Trial]) -> None:
        """Count answers in the order in which they come; raise StopRun at the last failure that is allowed."""
        for trial in trials:
            if trial.model in self.untried and trial.status != "dropped" and trial.frames_hash:
                self._count(trial)

    def _count(self, trial: Trial) -> None:
        reason = trial.reason or ""
        first = self._reasons.setdefault(trial.model, reason)
        if trial.status == "scored" or reason_kind(reason) != reason_kind(first):
            self.untried.discard(trial.model)
            return
        self._alike[trial.model] += 1
        if self._alike[trial.model] >= self.most:
            raise StopRun(
                f"the first {self.most:,} answers of {trial.model} all failed alike: {first}; correct it and add "
                "--retry-failures, or allow more with --max-failures"
            )

    def _hand_out(self, job: Job) -> Job:
        self._handed_out.update(trial.model for trial in job.trials)
        self.untried = {model for model in self.untried if self._handed_out[model] <= _LONGEST * self.most}
        return job
