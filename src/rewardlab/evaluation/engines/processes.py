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

_WORKER = (  # Ctrl-C is the parent's business
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "from rewardlab.evaluation.engines.worker_process import main; main()"
)
_END_SECONDS = 30.0  # a busy machine takes long to clear a process away, and how it ended is still to be known


@dataclass(frozen=True)
class Process:
    """A worker process and the pipe to it."""

    process: "subprocess.Popen[bytes]"
    pipe: Connection
    own_group: bool = True
    is_placed: bool = True
    machine_lost: bool = False

    @property
    def exit_reason(self) -> str | None:
        """Return the exit code of the process once it has ended."""
        code = self.process.poll()
        return None if code is None else f"exit code {code}"

    def send(self, message: bytes) -> None:
        """Send a message; where the process has exited, reading its answer will say so."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send_bytes(message)

    def receive(self, seconds: float = 0.0) -> list[bytes]:
        """Return the messages in the pipe, waiting so long for the first; at its end the process is waited for."""
        found: list[bytes] = []
        try:
            while self.pipe.poll(0 if found else seconds):
                found.append(self.pipe.recv_bytes())
        except (EOFError, OSError):
            self.await_end()
        return found

    def await_end(self, seconds: float = _END_SECONDS) -> None:
        """Wait until a process that has closed its pipe has ended; one that takes too long is killed."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """End the process; where it has a group of its own, with every process that it started."""
        self.pipe.close()
        with suppress(ProcessLookupError, PermissionError):
            if self.own_group:
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
        self.process.wait()


def start_process(threads: int = 1, *, own_group: bool = True) -> Process:
    """Start a fresh interpreter: it inherits no threads, locks or devices, and never runs the user's script again.

    The workers share the cores: libraries that compute in threads are told how many are theirs. A process without a
    group of its own is ended together with the one that started it.
    """
    ours, theirs = Pipe()
    here = str(Path.cwd())
    installed = [place for place in sys.path if place not in ("", ".", here)]
    last = [here] * (len(installed) < len(sys.path))  # so that no file of the current folder takes a module's place
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _WORKER, str(theirs.fileno()), *last],
        pass_fds=[theirs.fileno()],
        env={"OMP_NUM_THREADS": str(threads), **os.environ, "PYTHONPATH": os.pathsep.join(installed)},
        process_group=0 if own_group else None,
    )
    theirs.close()
    return Process(process, ours, own_group)


def start_worker(payload: bytes, threads: int) -> Process:
    """Start a process and send it its work."""
    process = start_process(threads)
    process.send(cloudpickle.dumps(partial(serve_pipe, payload)))
    return process


class ProcessEngine:
    """Work in processes of this machine, one per core: what crashes or hangs there leaves the command alone."""

    cores = os.cpu_count() or 1

    def start(self, payload: bytes, threads: int) -> Worker:
        """Start a fresh interpreter with its work."""
        return start_worker(payload, threads)

    def wait(self, workers: Sequence[Worker], timeout: float | None) -> None:
        """Wait for the pipes; one that is closed counts too."""
        wait([worker.pipe for worker in workers if isinstance(worker, Process)], timeout)

    def close(self) -> None:
        """Do nothing: every worker was stopped by whom it was started."""
