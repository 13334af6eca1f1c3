"""Engines: where work runs. All of them give the same results, bit for bit."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import cloudpickle

from rewardlab.core.errors import require_packages
from rewardlab.core.settings import Execution
from rewardlab.evaluation.engines.contract import Engine, Serve, Service, Worker
from rewardlab.evaluation.engines.processes import ProcessEngine


class LocalWorker:
    """Does what it is sent when somebody asks what came of it."""

    is_placed = True
    machine_lost = False

    def __init__(self, payload: bytes) -> None:
        self._serve: Serve | None = cloudpickle.loads(payload)
        self._service: Service | None = None
        self._inbox: deque[bytes] = deque()
        self._outbox: list[bytes] = []

    @property
    def exit_reason(self) -> str | None:
        """Return that the work has ended, if it has."""
        return "exit code 0" if self._serve is None and self._service is None else None

    def send(self, message: bytes) -> None:
        """Keep a message for later."""
        self._inbox.append(message)

    def receive(self) -> list[bytes]:
        """Do the work that waits, and return what it told."""
        if self._serve is not None:
            serve, self._serve = self._serve, None
            self._service = serve(self._outbox.append)
        while self._service is not None and self._inbox:
            if not self._service.answer(self._inbox.popleft()):
                self.stop()
        told, self._outbox[:] = list(self._outbox), []
        return told

    def stop(self) -> None:
        """Let go of the models."""
        if self._service is not None:
            self._service.close()
        self._serve = self._service = None


class LocalEngine:
    """Work in the command itself, one thing after the other: for a debugger, and where processes cannot be started.

    A model that hangs or crashes takes the command with it, and one from outside can change what others compute.
    """

    cores = 1

    def start(self, payload: bytes, _threads: int) -> Worker:
        """Keep the work; it begins when something is received."""
        return LocalWorker(payload)

    def wait(self, workers: Sequence[Worker], timeout: float | None) -> None:
        """Return at once: receiving does the work."""

    def close(self) -> None:
        """Do nothing."""


@contextmanager
def open_engine(settings: Execution, *, local_only: bool = False) -> Iterator[Engine]:
    """Give the engine that the settings name, and close it afterwards; `local_only` keeps all work on this machine."""
    engine: Engine
    if settings.engine == "ray":
        require_packages("--engine ray", "ray", extra="ray")
        from rewardlab.evaluation.engines.ray_cluster import RayEngine

        engine = RayEngine(settings, local_only=local_only)
    else:
        engine = LocalEngine() if settings.engine == "local" else ProcessEngine()
    try:
        yield engine
    finally:
        engine.close()
