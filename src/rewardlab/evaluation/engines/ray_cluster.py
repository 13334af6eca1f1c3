"""Work on a Ray cluster: each worker is an actor that holds one worker process, wherever Ray finds room for it.

The process is what `processes` starts here, so that a model that crashes tells the same exit code on every engine, and
the actor lives on to tell it. Autoscaling is Ray's: a worker that finds no room waits for it.
"""

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray._private import ray_constants
from ray.exceptions import GetTimeoutError, RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rewardlab.core.errors import PlanError
from rewardlab.core.settings import Execution
from rewardlab.evaluation.engines.contract import Worker
from rewardlab.evaluation.engines.processes import start_worker

_POLL_SECONDS = 1.0  # an actor is asked again after this long without news
_STOP_SECONDS = 10.0  # that an actor has to end its process, before Ray ends both
_PREFIX = "REWARDLAB_"  # environment variables that hold on every machine of a run
_KILLED = "exit code -9"  # of a process whose actor was killed


class WorkerHost:
    """An actor: it starts the worker process on its machine and passes messages on; calls come one at a time."""

    def __init__(self, folder: str, places: Sequence[str], environment: Mapping[str, str]) -> None:
        os.environ.update(environment)
        if Path(folder).is_dir():  # relative paths of data mean the same as for the command
            os.chdir(folder)
        shared = [place for place in places if Path(place).exists()]  # where the command looks for modules
        sys.path[:] = [*shared, *(place for place in sys.path if place not in shared)]

    def begin(self, payload: bytes, threads: int) -> str:
        """Start the process, and return on which machine."""
        self._process = start_worker(payload, threads)
        return _this_machine()

    def send(self, message: bytes) -> None:
        """Pass a message on to the process."""
        self._process.send(message)

    def receive(self) -> tuple[list[bytes], int | None]:
        """Return what the process told, and its exit code once everything is told."""
        messages = self._process.receive(_POLL_SECONDS)
        return messages, None if messages else self._process.process.poll()

    def stop(self) -> None:
        """End the process and every one that it started."""
        self._process.stop()


class RayWorker:
    """The actor as the command sees it; at most one question to it is open, and none while a message is sent."""

    def __init__(self, actor: Any, idle: list[Any], payload: Any, threads: int) -> None:
        self._actor, self._idle = actor, idle
        self._placed: Any = actor.begin.remote(payload, threads)
        self._news: Any = None
        self._machine = ""
        self._stopped = False
        self.exit_reason: str | None = None
        self.machine_lost = False

    @property
    def is_placed(self) -> bool:
        """Tell whether the process was started, or never will be."""
        if self._placed is not None and _is_ready(self._placed):
            try:
                self._machine = ray.get(self._placed)
            except RayActorError as error:
                self._lose(error)
            self._placed = None
        return self._placed is None

    @property
    def open_question(self) -> Any:
        """Return what Ray is to wait for: the place, or news of the work."""
        if not self.is_placed:
            return self._placed
        if self._news is None and self.exit_reason is None:
            self._news = self._actor.receive.remote()
        return self._news

    def send(self, message: bytes) -> None:
        """Send a message; nobody waits for its arrival."""
        if self.exit_reason is None:
            self._actor.send.remote(message)

    def receive(self) -> list[bytes]:
        """Return the news that have come; where the actor is gone, its exit reason says how."""
        if self._news is None or not _is_ready(self._news):
            return []
        question, self._news = self._news, None
        try:
            messages, code = ray.get(question)
        except RayActorError as error:
            self._lose(error)
            return []
        if code is not None:
            self.exit_reason = f"exit code {code}"
        return list(messages)

    def stop(self) -> None:
        """End the process; the actor can hold another one, unless it does not answer: then Ray ends both."""
        stopped, self._stopped = self._stopped, True
        if stopped:
            return
        try:
            ray.get(self._actor.stop.remote(), timeout=_STOP_SECONDS if self.is_placed else 0)
            self._idle.append(self._actor)
        except (RayActorError, GetTimeoutError):
            ray.kill(self._actor)
        self.exit_reason = self.exit_reason or _KILLED

    def _lose(self, error: RayActorError) -> None:
        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        self.machine_lost = bool(self._machine) and self._machine not in alive
        why = " ".join(str(error).split())[:300]
        self.exit_reason = _KILLED if self._machine else f"an actor that could not be started: {why}"


class RayEngine:
    """Joins a Ray cluster, or starts one on this machine, and starts workers wherever there is room."""

    def __init__(self, settings: Execution, *, local_only: bool) -> None:
        self._gpus, self._local_only, self._joined = settings.gpus, local_only, not ray.is_initialized()
        if self._joined:
            _join(settings.address)
        self._payload: tuple[bytes, Any] = (b"", None)
        self._idle: list[Any] = []  # actors whose process has ended

    @property
    def cores(self) -> int:
        """Return how many workers there is room for: by GPUs where each takes a share of one, else by cores."""
        room = ray.cluster_resources()
        if self._gpus:
            return max(1, int(room.get("GPU", 0) / self._gpus))
        return max(1, int(room.get("CPU", 1)))

    def start(self, payload: bytes, threads: int) -> Worker:
        """Ask Ray for an actor; the work is in its object store once, and each machine fetches it once."""
        if self._payload[0] is not payload:
            self._payload = payload, ray.put(payload)
        if not self._idle:
            environment = {name: value for name, value in os.environ.items() if name.startswith(_PREFIX)}
            where = NodeAffinitySchedulingStrategy(_this_machine(), soft=False) if self._local_only else "SPREAD"
            host = ray.remote(WorkerHost).options(num_cpus=1, num_gpus=self._gpus, scheduling_strategy=where)
            self._idle.append(host.remote(str(Path.cwd()), sys.path, environment))
        return RayWorker(self._idle.pop(), self._idle, self._payload[1], threads)

    def wait(self, workers: Sequence[Worker], timeout: float | None) -> None:
        """Wait for a place or for news of one of the workers."""
        questions = [worker.open_question for worker in workers if isinstance(worker, RayWorker)]
        open_ones = [question for question in questions if question is not None]
        if len(open_ones) == len(questions) and open_ones:  # one without a question has exited: that is news
            ray.wait(open_ones, num_returns=1, timeout=timeout)

    def close(self) -> None:
        """Give the places back, and leave the cluster if this is who joined it."""
        for actor in self._idle:
            ray.kill(actor)
        if self._joined:
            ray.shutdown()


def _join(address: str | None) -> None:
    """Join the cluster, or start one; what workers write to their logs stays there, for the command has one display."""
    chosen = address or os.environ.get("RAY_ADDRESS") or "local"
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    several = ray_constants.ENABLE_RAY_CLUSTER  # whether another machine may join; where none may, loopback is used
    if chosen == "local":  # nobody outside this machine reaches it
        options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        ray.init(address=chosen, **options)
    except Exception as error:  # a plain one where a busy machine starts no cluster within Ray's 30 s
        why = " ".join(str(error).split())[:300]
        raise PlanError(
            f"cannot join the Ray cluster {chosen!r}: {why}; see `ray status`, and that RAY_AUTH_MODE=token and "
            "RAY_AUTH_TOKEN_PATH are set where the cluster asks for a token"
        ) from error
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = several


def _is_ready(question: Any) -> bool:
    ready, _ = ray.wait([question], timeout=0)
    return bool(ready)


def _this_machine() -> str:
    return str(ray.get_runtime_context().get_node_id())
