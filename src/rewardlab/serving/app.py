"""The reward server's application: every router around one server's state, behind the limits on requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError

from rewardlab.core import __version__
from rewardlab.core.limits import REQUEST_MB
from rewardlab.models.remote import read_token
from rewardlab.serving import endpoints, robometer_endpoints, session_endpoints
from rewardlab.serving.batching import Batcher, BatchingSettings, ServedModel
from rewardlab.serving.http import BodyLimit, RequestLimits, error_handlers
from rewardlab.serving.memory import MemoryBudget
from rewardlab.serving.sessions import SessionStore
from rewardlab.serving.state import RewardServer, ServerMetrics
from rewardlab.serving.uploads import ClipDecoder

_REASONS = {
    404: "there is no such address here; /docs lists them all",
    405: "this address does not allow that method; /docs lists the methods of each",
}


def create_server(
    served: ServedModel, frames: str, root: Path | None, batching: BatchingSettings, sessions: int
) -> RewardServer:
    """Return the state of a server that holds this model."""
    metrics = ServerMetrics()
    batcher = Batcher(served, batching, metrics.observe_batch)
    memory = MemoryBudget()
    store = SessionStore(sessions, memory)
    memory.reclaim = store.close_idle
    server = RewardServer(batcher, store, ClipDecoder(frames, root), metrics, memory)
    metrics.gauge("rewardlab_pending_clips", "clips that wait or are scored", lambda: batcher.pending)
    metrics.gauge("rewardlab_sessions", "sessions that are open", lambda: len(server.sessions))
    metrics.gauge("rewardlab_memory_bytes", "bytes held for requests, connections and sessions", lambda: memory.held)
    return server


def create_app(server: RewardServer, host: str) -> RequestLimits:
    """Return the ASGI application; it requires the token of the environment, if there is one."""
    handlers = error_handlers(_REASONS, RequestValidationError)
    app = FastAPI(
        title="rewardlab",
        version=__version__,
        lifespan=_lifespan,
        exception_handlers=handlers,
        docs_url=None,  # FastAPI's own page loads its scripts from the internet
        redoc_url=None,
        openapi_tags=[{"name": name} for name in ("Clips", "Live sessions", "Server", "Clients of Robometer")],
    )
    app.state.server = server
    for module in (endpoints, session_endpoints, robometer_endpoints):
        app.include_router(module.router)
    body, open_paths = BodyLimit(REQUEST_MB, "MB", 1_000_000), frozenset(("/", "/docs", "/health", *endpoints.ASSETS))
    observe = server.metrics.observe_request
    return RequestLimits(app, read_token(), body, open_paths, host, observe=observe, memory=server.memory)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    server: RewardServer = app.state.server
    running = asyncio.create_task(server.batcher.run())
    yield
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    server.batcher.close()
