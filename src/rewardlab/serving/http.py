"""The HTTP skeleton: token, limits, same origin, headers, errors as JSON, `serve_until_stopped`."""

import asyncio
import json
import secrets
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import uvicorn
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rewardlab.core.errors import DataError, RunError
from rewardlab.core.limits import REQUEST_MB, REQUEST_SECONDS, SERVER_MB, Limit
from rewardlab.serving.listening import RequestRejected, address, is_loopback, listen

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

ErrorHandler = Callable[[Request, Any], Coroutine[Any, Any, Response]]

PAGE_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'"
_MOST_HEADER_BYTES = 1 << 16
_IDLE_SECONDS = 75  # longer than clients keep idle connections, so that none is closed while they send the next request
_OWN_PAGES = (b"", b"none", b"same-origin")  # Sec-Fetch-Site of our page, of an address that was typed, of programs


def serve_until_stopped(config: uvicorn.Config, host: str, port: int, started: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; `started` is called with the URL in the event loop, once the server answers."""
    with listen(host, port) as listening:
        for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises what it caught again once it has drained
            signal.signal(number, lambda *_: None)
        server = uvicorn.Server(config)

        async def run() -> None:
            task = asyncio.create_task(server.serve([listening]))
            while not server.started and not task.done():
                await asyncio.sleep(0.01)
            if server.started:
                started(address(host, listening))
            await task

        asyncio.run(run())


def server_config(app: App, *, drain: int, websockets: bool) -> uvicorn.Config:
    """Return how uvicorn serves: bounded headers and messages; at the end, `drain` seconds for requests under way."""
    return uvicorn.Config(
        app,
        http=TimeoutProtocol,
        ws="websockets-sansio" if websockets else "none",
        ws_max_size=REQUEST_MB.in_bytes,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=drain,
        log_level="warning",
        access_log=False,
        server_header=False,
    )


def error_handlers(reasons: Mapping[int, str], *invalid: Any) -> dict[Any, ErrorHandler]:
    """Return the handlers that answer every error with JSON.

    `reasons` replaces the text of errors of the router; `invalid` are more errors with pydantic's list of `errors()`.
    """
    invalid = (ValidationError, *invalid)

    async def handle(_request: Request, error: Any) -> JSONResponse:
        if isinstance(error, HTTPException):
            reason = reasons.get(error.status_code, str(error.detail))
            return error_json(error.status_code, reason, error.headers)
        if isinstance(error, RequestRejected):
            return error_json(error.status, str(error), error.headers)
        if isinstance(error, invalid):  # said without quoting any of the request
            parts = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:3]]
            return error_json(422, "; ".join(parts).encode("utf-8", "replace").decode()[:400])
        return error_json(503 if isinstance(error, RunError) else 422, str(error))

    return dict.fromkeys((HTTPException, RequestRejected, DataError, RunError, *invalid), handle)


def error_json(status: int, reason: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return the answer to a request that failed; text that is not Unicode is replaced."""
    return JSONResponse({"error": reason.encode("utf-8", "replace").decode()}, status, headers)


def allow_local_names(app: Starlette, host: str) -> None:
    """On loopback, reject requests with another Host header: a web page elsewhere could use one (DNS rebinding)."""
    if is_loopback(host) and ":" not in host:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=["localhost", "127.0.0.1", host])


@dataclass(frozen=True)
class BodyLimit:
    """The longest body of a request: a limit, and the unit in which it is counted."""

    limit: Limit
    unit: str
    unit_bytes: int

    @property
    def in_bytes(self) -> int:
        """Return the most bytes."""
        return self.limit.value * self.unit_bytes

    def rejection(self) -> RequestRejected:
        """Return the error for a longer body."""
        return RequestRejected(413, f"the request is too long, in {self.unit} {self.limit.describe()}")


@dataclass(eq=False)
class RequestLimits:
    """An ASGI application around another: checks token and origin, and reads the whole body within the limits."""

    app: App
    token: str
    body: BodyLimit
    open_paths: frozenset[str]  # pages without data: they need no token, and other sites may link to them
    same_origin: bool = False  # reject requests from the pages of other sites
    observe: Callable[[str, int, float], None] = lambda *_: None  # called after each request: route, status, seconds
    held: int = 0  # bytes of all bodies in memory now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or reject it."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] == "websocket":
            return await self._websocket(scope, receive, send)
        started, status = time.perf_counter(), [0]

        async def counted_send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
            await send(message)

        try:
            await self._http(scope, receive, counted_send)
        finally:
            route = scope.get("route")
            name = route.path if route is not None else "refused" if status[0] >= 400 else "other"
            self.observe(name, status[0], time.perf_counter() - started)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        held = 0
        try:
            self._require_token(scope)
            if self.same_origin and scope["path"] not in self.open_paths:
                origin, host = header(scope, b"origin"), header(scope, b"host")
                own = (b"", b"http://" + host, b"https://" + host)  # a proxy in front of this server may add TLS
                if origin not in own or header(scope, b"sec-fetch-site") not in _OWN_PAGES:
                    advice = "open the address that the server printed"
                    raise RequestRejected(403, f"requests from other sites are rejected; {advice}")
            body = await self._body(scope, receive)
            held = len(body)
            await self.app(scope, _replay(body, receive), send)
        except RequestRejected as error:
            await error_json(error.status, str(error), error.headers | {"connection": "close"})(scope, receive, send)
        finally:
            self.held -= held

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._require_token(scope)
        except RequestRejected:
            await send({"type": "websocket.close", "code": 1008, "reason": "a bearer token is needed"})
            return
        await self.app(scope, receive, send)

    def _require_token(self, scope: Scope) -> None:
        if not self.token or (scope["type"] == "http" and scope["path"] in self.open_paths):
            return
        given = header(scope, b"authorization")
        if not secrets.compare_digest(given, f"Bearer {self.token}".encode()):
            raise RequestRejected(401, "this server needs the header `Authorization: Bearer TOKEN`")

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """Return the body, counted as it arrives; a Content-Length above the limit is rejected at once."""
        length = header(scope, b"content-length")
        if length.isdigit() and int(length[:20]) > self.body.in_bytes:
            raise self.body.rejection()
        chunks: list[bytes] = []
        more, read, most, most_held = True, 0, self.body.in_bytes, SERVER_MB.in_bytes
        try:
            async with asyncio.timeout(REQUEST_SECONDS.value):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RequestRejected(400, "the connection was closed before the request was complete")
                    chunks.append(message.get("body", b""))
                    read += len(chunks[-1])
                    self.held += len(chunks[-1])
                    more = bool(message.get("more_body"))
                    if read > most:
                        raise self.body.rejection()
                    if self.held > most_held:
                        full = "the requests under way fill the memory of this server; try again later"
                        raise RequestRejected(503, full, 1)
        except TimeoutError:
            self.held -= read
            raise RequestRejected(408, f"the request did not arrive within {REQUEST_SECONDS.value} s") from None
        except BaseException:
            self.held -= read
            raise
        return b"".join(chunks)


class TimeoutProtocol(HttpToolsProtocol):
    """HTTP/1.1 of uvicorn, with limits on the header of a request: its length and the time it takes to arrive."""

    header_timer: asyncio.TimerHandle | None = None
    upgraded = False  # to a WebSocket, which has a protocol of its own
    not_body = 0  # bytes of the request so far beyond its body, less what framing may add to that

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first header."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take more of a request; the timer runs only while its header is incomplete."""
        self.not_body += len(data)
        super().data_received(data)
        if self.not_body > _MOST_HEADER_BYTES and not self.upgraded:
            self._close(431, "Request Header Fields Too Large", "the header of the request is too long")
        self._watch()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body; between chunks stand their lengths."""
        self.not_body -= len(body) + len(body) // 4
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Count the next request from zero."""
        self.not_body = 0
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection on without a timer: a WebSocket may be idle."""
        self.upgraded = True
        self._stop_timer()
        super().handle_websocket_upgrade()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.upgraded or (self.cycle is not None and not self.cycle.response_complete):
            self._stop_timer()
        elif self.header_timer is None and not self.transport.is_closing():
            self.header_timer = self.loop.call_later(REQUEST_SECONDS.value, self._time_out)

    def _stop_timer(self) -> None:
        if self.header_timer is not None:
            self.header_timer.cancel()
            self.header_timer = None

    def _time_out(self) -> None:
        self.header_timer = None
        if self.cycle is None or self.cycle.response_complete:
            self._close(408, "Request Timeout", "the header of the request did not arrive in time")

    def _close(self, status: int, phrase: str, reason: str) -> None:
        """Close the connection, with a reason if no answer is under way."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            body = json.dumps({"error": reason}).encode()
            head = f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\nconnection: close\r\n"
            self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        self.transport.close()


def header(scope: Scope, name: bytes) -> bytes:
    """Return a header of a request, empty if it has none."""
    return next((bytes(value) for key, value in scope["headers"] if key == name), b"")


async def whole_body(request: Request) -> bytes:
    """Return the body of a request, which RequestLimits has read already; nothing is copied."""
    body: bytes = (await request.receive())["body"]
    return body


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a channel that gives the body once, and then the messages of the connection."""
    chunks = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> MutableMapping[str, Any]:
        return chunks.pop() if chunks else await receive()

    return replay


def media_type(request: Request) -> str:
    """Return the content type without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


class WithHeaders:
    """Adds headers to every answer of the application inside."""

    def __init__(self, app: App, headers: Mapping[str, str]) -> None:
        self.app, self.headers = app, headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self.headers)
            await send(message)

        await self.app(scope, receive, send_with_headers)
