"""Work in processes of this machine, one per core: what crashes or hangs there leaves the command alone."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait

import cloudpickle

from rewardlab.runner.engines.contract import Worker
from rewardlab.runner.engines.processes import Process, await_end, send, start_process, stop_process
from rewardlab.runner.engines.worker_process import serve_pipe


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
