"""Where a server may listen, and why a request is rejected; importable without the extra `serve`."""

import socket
from ipaddress import ip_address

from rewardlab.core.errors import PlanError, RewardlabError

_MOST_PORT = 65_535
PACKAGES = ("fastapi", "uvicorn", "python_multipart", "websockets", "prometheus_client")


class RequestRejected(RewardlabError):
    """A request that gets an HTTP error: its status, the reason, and after how many seconds to try again."""

    def __init__(self, status: int, reason: str, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after = retry_after

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of the answer."""
        return {} if self.retry_after is None else {"retry-after": str(self.retry_after)}


def require_port(port: int) -> None:
    """Raise PlanError if a number is not a port."""
    if not 0 <= port <= _MOST_PORT:
        raise PlanError(f"port must be from 0 to {_MOST_PORT}, got {port}")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Return the socket to serve on; PlanError if the address is not available."""
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
    """Return the URL of what is served on a socket."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listening.getsockname()[1]}"
