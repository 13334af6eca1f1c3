"""Where a server may listen, and why a request is rejected; importable without the extra."""

import socket
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from rewardlab.core.errors import PlanError, RewardlabError
from rewardlab.core.old_settings import setting
from rewardlab.data.video import frame_policy
from rewardlab.models.remote import TOKEN_VARIABLE, read_token

if TYPE_CHECKING:
    import asyncio

    import uvicorn


IDLE_SECONDS = 75  # longer than clients keep idle connections, so that none is closed while they send the next request
_MOST_PORT = 65_535


def is_loopback(host: str) -> bool:
    """Tell whether nobody but this machine reaches an address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def require_port(port: int) -> None:
    """Raise PlanError where a number is no port."""
    if not 0 <= port <= _MOST_PORT:
        raise PlanError(f"port must be from 0 to {_MOST_PORT}, got {port}")


def listen(host: str, port: int) -> socket.socket:
    """Return the socket to serve on; an address that cannot be had is said in one sentence."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise PlanError(f"cannot listen on {host}:{port} ({error.strerror}); choose another --port") from None
    # Connections inherit it. asyncio sets it only on sockets that name TCP, which these do not: without it the second
    # part of every answer waits for the client to acknowledge the first, 40 ms on Linux.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def address(host: str, listening: socket.socket) -> str:
    """Return the address of what is served on a socket."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listening.getsockname()[1]}"


async def wait_until_started(server: "uvicorn.Server", task: "asyncio.Task[None]") -> bool:
    """Return once the server answers, or once it has ended without."""
    from asyncio import sleep  # here: commands that serve nothing read this module too

    while not server.started and not task.done():
        await sleep(0.01)
    return server.started


# Why a request is refused: each reason knows its HTTP status.


class RequestRejected(RewardlabError):
    """A request that is not answered; the client is told the status and the reason."""

    def __init__(self, status: int, reason: str, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after = retry_after  # seconds

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that go with it."""
        return {} if self.retry_after is None else {"retry-after": str(self.retry_after)}


@dataclass(frozen=True)
class ServePlan:
    """Serve a model over HTTP: clips, batches and live sessions, with dynamic batching and a bounded queue."""

    model: str = setting("model to serve, e.g. pocket", positional=True)
    host: str = setting(
        f"address to listen on; one that others can reach needs a token in {TOKEN_VARIABLE}", "127.0.0.1"
    )
    port: int = setting("port to listen on; 0 takes a free one", 8000)
    root: Path | None = setting("folder below which requests may name clips; without it none may", None)
    frames: str = setting("frames of a video that are shown: uniform:N, fps:X or all", "uniform:16")
    max_batch: int = setting("clips that are scored together at most", 32)
    max_wait: float = setting("milliseconds that a clip waits for others at most, to be scored with them", 5.0)
    queue: int = setting("clips that wait or are scored at most; more are refused with 503", 128)
    sessions: int = setting("live sessions at most", 64)
    drain: int = setting("seconds for requests under way to be answered after SIGTERM", 30)

    def __post_init__(self) -> None:
        frame_policy(self.frames)
        require_port(self.port)
        if min(self.max_batch, self.queue, self.sessions, self.drain) < 1 or self.max_wait < 0:
            raise PlanError("max-batch, queue, sessions and drain must be at least 1, and max-wait not negative")
        if self.root is not None and not self.root.is_dir():
            raise PlanError(f"--root must be a folder, got {self.root}")
        if not is_loopback(self.host) and not read_token():
            raise PlanError(f"{self.host} can be reached by others; set a token in {TOKEN_VARIABLE} first")
