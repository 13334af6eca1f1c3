"""What an engine is: a place where workers run; each is sent its work once, then answers messages with messages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Tell = Callable[[bytes], None]


@dataclass(frozen=True)
class Service:
    """What a worker does: `answer` takes a message and says whether more may come; `close` lets go of what it holds."""

    answer: Callable[[bytes], bool]
    close: Callable[[], None] = lambda: None


Serve = Callable[[Tell], Service | None]  # begins the work, such as loading models; None where that failed


class Worker(Protocol):
    """Something that works beside the command, and may crash."""

    @property
    def is_placed(self) -> bool:
        """Tell whether it runs somewhere, or ended; on a full cluster a worker waits for room."""

    @property
    def exit_reason(self) -> str | None:
        """Return how it ended, such as `exit code 9`; None while it runs."""

    @property
    def machine_lost(self) -> bool:
        """Tell whether it is gone because the machine is, which no work of it is to blame for."""

    def send(self, message: bytes) -> None:
        """Send a message; to a worker that has exited, nothing is sent."""

    def receive(self) -> list[bytes]:
        """Return the messages that have arrived."""

    def stop(self) -> None:
        """End it and every process that it started."""


class Engine(Protocol):
    """Starts workers and waits for them."""

    @property
    def cores(self) -> int:
        """Return how many workers there are where nobody says how many."""

    def start(self, payload: bytes, threads: int) -> Worker:
        """Start a worker with a pickled `Serve`; libraries that compute in threads are told how many are theirs."""

    def wait(self, workers: Sequence[Worker], timeout: float | None) -> None:
        """Return when one of the workers has something to receive, was placed or exited, or when time is up."""

    def close(self) -> None:
        """Let go of the place."""
