"""The scoring of jobs in a worker process: the models are built once, then each job is scored as it comes."""

from multiprocessing.connection import Connection

from rewardlab.core.errors import StopRun
from rewardlab.models.composite import build_all
from rewardlab.runner.cell_scoring import ScoringContext, score_job


def serve_jobs(context: ScoringContext, pipe: Connection) -> None:
    """Say when the models are loaded, then score the jobs that come and send their trials."""
    try:
        models = build_all(context.models, context.budget)
    except Exception as error:
        pipe.send(("broken", str(error)))
        return
    pipe.send(("ready", None))
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            score_job(
                job,
                context,
                models,
                begin=lambda drafts: pipe.send(("begin", drafts)),
                end=lambda trials: pipe.send(("end", trials)),
            )
        except StopRun as stop:
            pipe.send(("stopped", str(stop)))
            return
        pipe.send(("idle", None))
