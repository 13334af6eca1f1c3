"""The scoring of jobs in a worker: the models are built once, then each job is scored as it comes."""

import pickle
from collections.abc import Callable
from functools import partial

from rewardlab.core.errors import StopRun, WorkerDied
from rewardlab.models.composite import build_all
from rewardlab.runner.cell_scoring import Job, Listeners, ScoringContext, score_job
from rewardlab.runner.engines.contract import Service, Tell
from rewardlab.runner.engines.processes import Process, end_process
from rewardlab.runner.model_process import start_model

Say = Callable[[str, object], None]


def serve_jobs(context: ScoringContext, tell: Tell) -> Service | None:
    """Say when the models are loaded, then score the jobs that come and tell their trials."""
    say: Say = lambda kind, content: tell(pickle.dumps((kind, content)))
    started: list[Process] = []  # of models from outside
    try:
        models = build_all(context.models, context.budget, partial(start_model, started=started))
    except Exception as error:
        _end(started)
        say("died" if isinstance(error, WorkerDied) else "broken", str(error))
        return None
    say("ready", None)
    listeners = Listeners(
        prepare=lambda cells: say("prepare", [cell.id for cell in cells]),
        begin=lambda drafts: say("begin", drafts),
        end=lambda trials: say("end", trials),
    )
    score = lambda job: score_job(job, context, models, listeners)
    return Service(partial(_answer, score, say), partial(_end, started))


def _answer(score: Callable[[Job], None], say: Say, message: bytes) -> bool:
    """Score one job; a worker whose model stopped the run, or died, takes no other."""
    try:
        score(pickle.loads(message))
    except StopRun as stop:
        say("stopped", str(stop))
        return False
    except WorkerDied as death:  # this process goes too: there is one way to come back from a death
        say("died", str(death))
        return False
    say("idle", None)
    return True


def _end(started: list[Process]) -> None:
    for process in started:
        end_process(process)
