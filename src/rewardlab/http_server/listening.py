"""Where a server listens: an address nobody else reaches by default, and one sentence where it cannot be had."""

import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING

from rewardlab.core.errors import PlanError

if TYPE_CHECKING:  # settings read this module, also where no server is installed
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
