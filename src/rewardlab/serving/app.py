"""The application: every endpoint around one server's state, behind the limits on requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import JSONResponse

from rewardlab.core import __version__
from rewardlab.core.errors import DataError
from rewardlab.core.limits import REQUEST_MB
from rewardlab.models.remote import read_token
from rewardlab.serving import endpoints, robometer_endpoints, session_endpoints
from rewardlab.serving.batching import Batcher, BatchingSettings, ServedModel
from rewardlab.serving.http import BodyLimit, RequestLimits, validation_sentence
from rewardlab.serving.listening import RequestRejected, ServePlan, is_loopback
from rewardlab.serving.sessions import SessionStore
from rewardlab.serving.state import RewardServer, ServerMetrics
from rewardlab.serving.uploads import ClipDecoder

_PLAIN_REASONS = {
    404: "there is no such address here; /docs lists them all",
    405: "this address is not called by that method; /docs lists how each is called",
}


def create_server(plan: ServePlan, served: ServedModel) -> RewardServer:
    """Return the state of a server that holds this model."""
    metrics = ServerMetrics()
    settings = BatchingSettings(plan.max_batch, plan.max_wait / 1000, plan.queue)
    batcher = Batcher(served, settings, metrics.observe_batch)
    server = RewardServer(batcher, SessionStore(plan.sessions), ClipDecoder(plan.frames, plan.root), metrics)
    metrics.gauge("rewardlab_pending_clips", "clips that wait or are scored", lambda: batcher.pending)
    metrics.gauge("rewardlab_sessions", "sessions that are open", lambda: len(server.sessions))
    return server


def create_app(plan: ServePlan, server: RewardServer) -> RequestLimits:
    """Return the ASGI application."""
    app = FastAPI(title="rewardlab", version=__version__, lifespan=_lifespan)
    app.state.server = server
    for module in (endpoints, session_endpoints, robometer_endpoints, endpoints):
        app.include_router(module.router)
    app.add_exception_handler(RequestRejected, _refused)
    app.add_exception_handler(DataError, _bad_data)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    if is_loopback(plan.host) and ":" not in plan.host:  # a page from elsewhere must not reach it by another name
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=["localhost", "127.0.0.1", plan.host])
    body = BodyLimit(REQUEST_MB, "MB", 1_000_000)
    return RequestLimits(app, read_token(), body, frozenset(("/", "/health")), server.metrics.observe_request)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    server: RewardServer = app.state.server
    running = asyncio.create_task(server.batcher.run())
    yield
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    server.batcher.close()


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestRejected)
    return JSONResponse({"error": str(error)}, error.status, error.headers)


async def _bad_data(request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error).encode("utf-8", "replace").decode()}, 422)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return JSONResponse({"error": validation_sentence(error.errors())}, 422)


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    said = _PLAIN_REASONS.get(error.status_code, str(error.detail))
    return JSONResponse({"error": said}, error.status_code, error.headers)
