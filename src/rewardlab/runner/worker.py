"""A worker process: builds the models once, then scores the jobs that come through its pipe."""

import ctypes
import signal
import sys
from multiprocessing.connection import Connection

import cloudpickle
import cv2

from rewardlab.core.errors import StopRun
from rewardlab.models.composite import build_all
from rewardlab.runner.score import Bench, score_job


def main() -> None:
    """Serve the pipe whose number is the first argument until the parent closes it."""
    _die_with_parent()
    cv2.setNumThreads(1)
    pipe = Connection(int(sys.argv[1]))
    try:
        bench: Bench = cloudpickle.loads(pipe.recv_bytes())
        models = build_all(bench.models, bench.budget)
    except EOFError:
        return
    except Exception as error:
        pipe.send(("broken", f"cannot load a model: {error}"))
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
                bench,
                models,
                begin=lambda drafts: pipe.send(("begin", drafts)),
                end=lambda trials: pipe.send(("end", trials)),
            )
        except StopRun as stop:
            pipe.send(("stopped", str(stop)))
            return
        pipe.send(("idle", None))


def _die_with_parent() -> None:
    """Ask Linux to end this process when its parent is killed, so that no orphan goes on scoring."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG


if __name__ == "__main__":
    main()
