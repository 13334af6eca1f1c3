"""A worker process: what `processes` starts; it is sent what to do once, then serves the pipe to its parent."""

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from rewardlab.core.errors import RunError
from rewardlab.evaluation.engines.contract import Serve, Service, Tell


def main() -> None:
    """Serve the pipe whose number is the first argument until the parent closes it; the others are import paths."""
    sys.path += sys.argv[2:]
    if sys.platform == "linux":  # end this process when its parent is killed, so that no orphan goes on working
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
    import cv2  # here, for the actors of a cluster import this module and show no picture

    os.dup2(2, 1)  # stdout belongs to the command: what a model prints goes to stderr
    cv2.setNumThreads(1)
    pipe = Connection(int(sys.argv[1]))
    try:
        serve: Callable[[Connection], None] = cloudpickle.loads(pipe.recv_bytes())
    except (EOFError, OSError):  # an OSError in the middle of the message
        return
    serve(pipe)


def serve_pipe(payload: bytes, pipe: Connection) -> None:
    """Begin the pickled work, and answer the messages that come through the pipe until it is closed."""
    try:
        serve: Serve = cloudpickle.loads(payload)
    except Exception as error:
        pipe.send(("broken", str(error)))
        return
    service = serve(pipe.send_bytes)
    while service is not None:
        try:
            message = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        if not service.answer(message):
            return


def serve_items(work: Callable[[Any], object], tell: Tell) -> Service:
    """Answer each item with what the work makes of it, or with the error it raised."""

    def answer(message: bytes) -> bool:
        item = cloudpickle.loads(message)
        try:
            done = cloudpickle.dumps(("done", work(item)))
        except Exception as error:  # whatever it is, the parent raises it
            error.add_note("in a worker process:\n" + traceback.format_exc())
            try:
                done = cloudpickle.dumps(("raised", error))
                cloudpickle.loads(done)
            except Exception:  # an error that cannot be sent is told in words
                done = cloudpickle.dumps(("raised", RunError(f"{type(error).__name__}: {error}")))
        tell(done)
        return True

    return Service(answer)
