"""The scoring of jobs in a worker process: the models are built once, then each job is scored as it comes."""

from multiprocessing.connection import Connection

from rewardlab.core.errors import StopRun, WorkerDied
from rewardlab.models.composite import build_all
from rewardlab.runner.cell_scoring import Listeners, ScoringContext, score_job
from rewardlab.runner.model_process import start_model


def serve_jobs(context: ScoringContext, pipe: Connection) -> None:
    """Say when the models are loaded, then score the jobs that come and send their trials."""
    try:
        models = build_all(context.models, context.budget, start_model)
    except WorkerDied as death:
        pipe.send(("died", str(death)))
        return
    except Exception as error:
        pipe.send(("broken", str(error)))
        return
    pipe.send(("ready", None))
    tell = Listeners(
        prepare=lambda cells: pipe.send(("prepare", [cell.id for cell in cells])),
        begin=lambda drafts: pipe.send(("begin", drafts)),
        end=lambda trials: pipe.send(("end", trials)),
    )
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            score_job(job, context, models, tell)
        except StopRun as stop:
            pipe.send(("stopped", str(stop)))
            return
        except WorkerDied as death:  # this process goes too: there is one way to come back from a death
            pipe.send(("died", str(death)))
            return
        pipe.send(("idle", None))
