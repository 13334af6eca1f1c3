"""Processes of this machine: start, talk, end."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

import cloudpickle

from rewardlab.evaluation.engines.contract import Worker
from rewardlab.evaluation.engines.worker_process import serve_pipe

_WORKER = "from rewardlab.evaluation.engines.worker_process import main; main()"
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


# Work in processes of this machine, one per core: what crashes or hangs there leaves the command alone.


@dataclass(frozen=True)
class ProcessWorker:
    """A worker process and the pipe to it."""

    process: Process
    is_placed: bool = True
    machine_lost: bool = False

    @property
    def death(self) -> str | None:
        """Return the exit code of the process once it has ended."""
        code = self.process.process.poll()
        return None if code is None else f"exit code {code}"

    def send(self, message: bytes) -> None:
        """Send a message through the pipe."""
        send(self.process, message)

    def receive(self) -> list[bytes]:
        """Return what is in the pipe; where it is closed, the process is waited for."""
        return received(self.process)

    def stop(self) -> None:
        """End the process and every one that it started."""
        stop_process(self.process)


class ProcessEngine:
    """Starts processes on this machine."""

    cores = os.cpu_count() or 1

    def start(self, payload: bytes, threads: int) -> Worker:
        """Start a fresh interpreter with its work."""
        return ProcessWorker(start_worker(payload, threads))

    def wait(self, workers: Sequence[Worker], timeout: float | None) -> None:
        """Wait for the pipes; one that is closed counts too."""
        wait([worker.process.pipe for worker in workers if isinstance(worker, ProcessWorker)], timeout)

    def close(self) -> None:
        """Do nothing: every worker was stopped by whom it was started."""


def start_worker(payload: bytes, threads: int) -> Process:
    """Start a process and send it its work."""
    process = start_process(threads)
    send(process, cloudpickle.dumps(partial(serve_pipe, payload)))
    return process


def received(process: Process, seconds: float = 0.0) -> list[bytes]:
    """Return the messages in the pipe, waiting so long for the first; at its end the process is waited for."""
    found: list[bytes] = []
    try:
        while process.pipe.poll(0 if found else seconds):
            found.append(process.pipe.recv_bytes())
    except (EOFError, OSError):
        await_end(process)
    return found
