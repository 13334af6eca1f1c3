"""The first answers of a run: small jobs, one at a time, until every judged model has answered or the run ends.

A model that cannot answer at all is so found out at the price of a few cells, whatever the batch and the workers.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from rewardlab.analysis.failure_reasons import reason_kind
from rewardlab.core.errors import StopRun
from rewardlab.core.trial import Trial
from rewardlab.runner.cell_scoring import Job

_LONGEST = 5  # times the failures allowed: cells that are dropped or cannot be prepared tell nothing of a model


class FirstAnswers:
    """Counts the failures alike that the answers of each judged model begin with; `most` of them end the run."""

    def __init__(self, judged: Collection[str], most: int) -> None:
        self.most = most
        self.untried = set(judged) if most else set()
        self._reasons: dict[str, str] = {}
        self._alike: Counter[str] = Counter()
        self._handed_out: Counter[str] = Counter()

    def first_part(self, job: Job, batch: int) -> tuple[Job, tuple[Job, ...]]:
        """Return the part of a job that may be asked now, and the rest: no untried model is asked more than allowed."""
        self.untried &= {cell.model for cell in job.cells}
        room = min((self.most - self._alike[model] for model in self.untried), default=0)
        asked: Counter[str] = Counter()
        for place, cell in enumerate(job.cells):
            asked[cell.model] += cell.model in self.untried
            if asked[cell.model] > min(batch, room):
                rest = job.keep(job.cells[place:], job.deaths)
                return self._hand_out(job.keep(job.cells[:place], job.deaths)), (rest,)
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
        self._handed_out.update(cell.model for cell in job.cells)
        self.untried = {model for model in self.untried if self._handed_out[model] <= _LONGEST * self.most}
        return job
