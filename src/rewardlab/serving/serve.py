"""Command `serve`: signature, checks, load and reload the model."""

import asyncio
import signal
import socket
import sys

import uvicorn

from rewardlab.core.errors import RewardlabError
from rewardlab.core.limits import REQUEST_MB
from rewardlab.core.terminal import loading, one_line
from rewardlab.serving.app import create_app, create_server
from rewardlab.serving.batching import load_served_model
from rewardlab.serving.http import TimeoutProtocol
from rewardlab.serving.listening import IDLE_SECONDS, ServePlan, address, listen, wait_until_started
from rewardlab.serving.state import RewardServer

# How long a thread may run Python before another that waits takes over. The model's threads need it only for a moment
# between two long calculations, and would wait 5 ms each time for the thread that speaks HTTP.
_SWITCH_SECONDS = 0.0003


def serve(plan: ServePlan) -> None:
    """Serve the model; return when everything that was asked before SIGTERM or Ctrl-C is answered."""
    with loading(f"loading {plan.model}"):
        served = load_served_model(plan.model)
    with listen(plan.host, plan.port) as listening:
        for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises what it caught again once it has drained
            signal.signal(number, lambda *_: None)
        sys.setswitchinterval(_SWITCH_SECONDS)
        asyncio.run(_run(plan, create_server(plan, served), listening))


def server_config(plan: ServePlan, server: RewardServer) -> uvicorn.Config:
    """Return how uvicorn serves: bounded headers and messages, and time to answer what is under way at the end."""
    return uvicorn.Config(
        create_app(plan, server),
        host=plan.host,
        port=plan.port,
        http=TimeoutProtocol,
        ws="websockets-sansio",
        ws_max_size=REQUEST_MB.in_bytes,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=plan.drain,
        log_level="warning",
        access_log=False,
        server_header=False,
    )


async def _run(plan: ServePlan, server: RewardServer, listening: socket.socket) -> None:
    running = uvicorn.Server(server_config(plan, server))
    reload = lambda: _keep(asyncio.create_task(_reload(plan, server)))
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    task = asyncio.create_task(running.serve([listening]))
    if await wait_until_started(running, task):
        print(one_line(f"serving {server.batcher.served.name} at {address(plan.host, listening)}"), flush=True)
    await task


async def _reload(plan: ServePlan, server: RewardServer) -> None:
    try:
        await server.batcher.reload(lambda: load_served_model(plan.model))
        print(one_line(f"loaded {plan.model} again"), flush=True)
    except RewardlabError as error:
        print(one_line(f"rewardlab: the model stays as it is: {error}"), file=sys.stderr, flush=True)


_KEPT: set["asyncio.Task[None]"] = set()


def _keep(task: "asyncio.Task[None]") -> None:
    """Hold on to a task until it is done: the event loop itself does not."""
    _KEPT.add(task)
    task.add_done_callback(_KEPT.discard)
