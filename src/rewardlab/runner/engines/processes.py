"""Worker processes: the only module that starts and ends them."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

_WORKER = "from rewardlab.runner.engines.worker_process import main; main()"
_END_SECONDS = 30.0  # a busy machine takes long to clear a process away, and how it ended is still to be known


@dataclass(frozen=True)
class Process:
    """A worker process and the pipe to it."""

    process: "subprocess.Popen[bytes]"
    pipe: Connection


def start_process(threads: int = 1, *, own_group: bool = True) -> Process:
    """Start a fresh interpreter: it inherits no threads, locks or devices, and never runs the user's script again.

    The workers share the cores: libraries that compute in threads are told how many are theirs. A process without a
    group of its own is ended together with the one that started it.
    """
    ours, theirs = Pipe()
    installed, here = import_path()
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _WORKER, str(theirs.fileno()), *here],
        pass_fds=[theirs.fileno()],
        env={"OMP_NUM_THREADS": str(threads), **os.environ, "PYTHONPATH": os.pathsep.join(installed)},
        process_group=0 if own_group else None,  # Ctrl-C is the parent's business
    )
    theirs.close()
    return Process(process, ours)


def import_path() -> tuple[list[str], list[str]]:
    """Return where this process looks for modules, the current folder apart, if it is among the places.

    A worker looks there last, and only once it has started: no file in the current folder takes the place of a module.
    """
    here = str(Path.cwd())
    installed = [place for place in sys.path if place not in ("", ".", here)]
    return installed, [here] * (len(installed) < len(sys.path))


def send(worker: Process, payload: bytes) -> None:
    """Send bytes to a worker; where it died, reading its answer will say so."""
    with suppress(BrokenPipeError, ConnectionResetError):
        worker.pipe.send_bytes(payload)


def await_end(worker: Process, seconds: float = _END_SECONDS) -> None:
    """Wait until a worker that has closed its pipe has ended; one that takes too long is killed."""
    try:
        worker.process.wait(seconds)
    except subprocess.TimeoutExpired:
        worker.process.kill()
        worker.process.wait()


def stop_process(worker: Process) -> None:
    """End a worker and every process it started; each worker is a group of its own."""
    worker.pipe.close()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(worker.process.pid, signal.SIGKILL)
    worker.process.wait()


def end_process(worker: Process) -> None:
    """End a worker that has no group of its own."""
    worker.pipe.close()
    worker.process.kill()
    worker.process.wait()
