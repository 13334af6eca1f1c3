"""The HTTP skeleton: token, limits, same origin, headers, errors as JSON, `serve_until_stopped`."""

import asyncio
import json
import re
import resource
import secrets
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import uvicorn
from pydantic import ValidationError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.protocol import State

from rewardlab.core.errors import DataError, RunError
from rewardlab.core.limits import REQUEST_MB, REQUEST_SECONDS, Limit
from rewardlab.serving.listening import RequestRejected, address, is_loopback, listen
from rewardlab.serving.memory import MemoryBudget, MemoryShare

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

ErrorHandler = Callable[[Request, Any], Coroutine[Any, Any, Response]]

PAGE_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'"
_MOST_HEADER_BYTES = 1 << 16
_POLICY_VIOLATION, _TOO_BIG, _TRY_AGAIN_LATER = 1008, 1009, 1013  # why a WebSocket is closed
_MOST_CLOSE_REASON = 120  # characters
_MOST_FRAGMENTS, _FRAGMENT_BYTES = (
    10_000,
    64,
)  # frames of one message of a WebSocket, and what each takes beside its content
_MOST_UNREAD_BYTES = 16_000_000  # answers that a client of a WebSocket does not read
_MOST_CONNECTIONS = 4_096
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


def server_config(app: "RequestLimits", *, drain: int, websockets: bool) -> uvicorn.Config:
    """Return how uvicorn serves: bounded headers and messages; at the end, `drain` seconds for requests under way."""
    return uvicorn.Config(
        app,
        http=TimeoutProtocol,
        ws=partial(CountedWebSocket, app.memory) if websockets else "none",  # type: ignore[arg-type]
        ws_max_size=REQUEST_MB.in_bytes,
        ws_per_message_deflate=False,  # a few KB could unpack to the longest message
        backlog=max(1, most_connections() // 4),  # asyncio accepts so many in a row before any is counted
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
            parts = [f"{'.'.join(map(str, each['loc'])) or 'the body'}: {each['msg']}" for each in error.errors()[:3]]
            return error_json(422, "; ".join(parts).encode("utf-8", "replace").decode()[:400])
        return error_json(503 if isinstance(error, RunError) else 422, str(error))

    return dict.fromkeys((HTTPException, RequestRejected, DataError, RunError, *invalid), handle)


def error_json(status: int, reason: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return the answer to a request that failed; text that is not Unicode is replaced."""
    return JSONResponse({"error": reason.encode("utf-8", "replace").decode()}, status, headers)


def most_connections() -> int:
    """Return how many connections are served at once: half the file descriptors, for those being refused need some."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else min(_MOST_CONNECTIONS, max(1, soft // 2))


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
    host: str  # the address it listens on
    observe: Callable[[str, int, float], None] = lambda *_: None  # called after each request: route, status, seconds
    memory: MemoryBudget = field(default_factory=MemoryBudget)

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
        memory = scope["memory"] = MemoryShare(self.memory)
        try:
            self._require_token(scope)
            self._require_own_page(scope)
            body = await self._body(scope, receive, memory)
            await self.app(scope, _replay(body, receive), send)
        except RequestRejected as error:
            await error_json(error.status, str(error), error.headers | {"connection": "close"})(scope, receive, send)
        finally:
            memory.give_back()

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._require_token(scope)
            self._require_own_page(scope)
        except RequestRejected as error:
            await send(
                {"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": str(error)[:_MOST_CLOSE_REASON]}
            )
            return
        memory = scope["memory"] = MemoryShare(self.memory)
        try:
            await self.app(scope, receive, send)
        finally:
            memory.give_back()

    def _require_token(self, scope: Scope) -> None:
        if not self.token or (scope["type"] == "http" and scope["path"] in self.open_paths):
            return
        given = header(scope, b"authorization")
        if not secrets.compare_digest(given, f"Bearer {self.token}".encode()):
            raise RequestRejected(401, "this server needs the header `Authorization: Bearer TOKEN`")

    def _require_own_page(self, scope: Scope) -> None:
        """Reject the pages of other sites, also under a name of theirs that leads here (DNS rebinding)."""
        host, advice = header(scope, b"host"), "open the address that the server printed"
        name = re.sub(rb":[0-9]*\Z", b"", host).strip(b"[]").lower().decode("latin-1")
        if is_loopback(self.host) and name not in ("localhost", "127.0.0.1", "::1", self.host):
            raise RequestRejected(400, f"this server is reached as {self.host}, not by the Host header sent; {advice}")
        if scope["type"] == "http" and scope["path"] in self.open_paths:
            return
        own = (b"", b"http://" + host, b"https://" + host)  # a proxy in front of this server may add TLS
        if header(scope, b"origin") not in own or header(scope, b"sec-fetch-site") not in _OWN_PAGES:
            raise RequestRejected(403, f"requests from other sites are rejected; {advice}")

    async def _body(self, scope: Scope, receive: Receive, memory: MemoryShare) -> bytes:
        """Return the body, counted as it arrives; a Content-Length above the limit is rejected at once."""
        length = header(scope, b"content-length")
        if length.isdigit() and int(length[:20]) > self.body.in_bytes:
            raise self.body.rejection()
        chunks: list[bytes] = []
        more, read, most = True, 0, self.body.in_bytes
        try:
            async with asyncio.timeout(REQUEST_SECONDS.value):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RequestRejected(400, "the connection was closed before the request was complete")
                    chunks.append(message.get("body", b""))
                    read += len(chunks[-1])
                    more = bool(message.get("more_body"))
                    if read > most:
                        raise self.body.rejection()
                    memory.take(len(chunks[-1]))
        except TimeoutError:
            raise RequestRejected(408, f"the request did not arrive within {REQUEST_SECONDS.value} s") from None
        return b"".join(chunks)


class TimeoutProtocol(HttpToolsProtocol):
    """HTTP/1.1 of uvicorn, with limits on the header of a request: its length and the time it takes to arrive."""

    header_timer: asyncio.TimerHandle | None = None
    upgraded = False  # to a WebSocket, which has a protocol of its own
    warned = False  # that there are too many connections, once for all
    not_body = 0  # bytes of the request so far beyond its body, less what framing may add to that

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first header."""
        super().connection_made(transport)
        most = most_connections()
        if len(self.connections) > most:
            if not TimeoutProtocol.warned:
                TimeoutProtocol.warned = True
                self.logger.warning("more than %d connections: further ones get status 503; raise `ulimit -n`", most)
            self._close(503, "Service Unavailable", f"this server has {most} connections already; try again later")
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


class CountedWebSocket(WebSocketsSansIOProtocol):
    """WebSockets of uvicorn, whose messages are part of the memory of the server until the application is done."""

    def __init__(self, memory: MemoryBudget, **settings: Any) -> None:
        super().__init__(**settings)
        self.memory = MemoryShare(memory)
        self.unread = deque[int]()  # bytes of each message that waits for the application
        self.in_hand = 0  # bytes of the message that the application has
        self.timer: asyncio.TimerHandle | None = None  # of a message that is incomplete

    def data_received(self, data: bytes) -> None:
        """Take more of a message; where the memory is full, close the connection with a reason."""
        if self.transport.get_write_buffer_size() > _MOST_UNREAD_BYTES:  # it sends pings and reads no pongs
            return self.transport.abort()
        try:
            self.memory.take(len(data))
        except RequestRejected as error:
            return self._refuse(_TRY_AGAIN_LATER, str(error))
        super().data_received(data)
        self._settle()

    def handle_text(self, event: Frame) -> None:
        """Begin a text; the parser, which keeps the last frame, keeps an empty one."""
        super().handle_text(event)
        event.data = b""

    def handle_bytes(self, event: Frame) -> None:
        """Begin a binary message."""
        super().handle_bytes(event)
        event.data = b""

    def handle_cont(self, event: Frame) -> None:
        """Take the next frame of a message."""
        super().handle_cont(event)
        event.data = b""
        if len(self.frames) > _MOST_FRAGMENTS:
            self._refuse(_TOO_BIG, f"a message of more than {_MOST_FRAGMENTS:,} frames; send fewer, larger ones")

    def send_receive_event_to_app(self) -> None:
        """Queue a message, and note its size."""
        size, queued = sum(map(len, self.frames)), self.queue.qsize()
        super().send_receive_event_to_app()
        if self.queue.qsize() > queued:
            self.unread.append(size)
        self._stop_timer()

    async def receive(self) -> Any:
        """Give the application the next message; it is done with the one before."""
        self.in_hand = 0
        self._settle()
        message = await super().receive()
        if message["type"] == "websocket.receive":
            self.in_hand = self.unread.popleft()
        self._settle()
        return message

    async def run_asgi(self) -> None:
        """Run the application, and drop what it has not read."""
        await super().run_asgi()
        self.queue, self.in_hand = asyncio.Queue(), 0
        self.unread.clear()
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop a message that did not arrive as a whole: the garbage collector may not come for long."""
        super().connection_lost(exc)
        self.conn.parser.close()
        self.conn.reader.buffer.clear()
        self.frames = []
        self._settle()

    def _refuse(self, code: int, reason: str) -> None:
        if self.conn.state is State.OPEN:
            self.conn.fail(code, reason[:_MOST_CLOSE_REASON])
            self.handle_parser_exception()
        else:
            self.transport.close()

    def _settle(self) -> None:
        """Give back all but what is still held; the rest of a message must come in time."""
        part = len(self.conn.reader.buffer) + sum(len(frame) + _FRAGMENT_BYTES for frame in self.frames)
        self.memory.give_back(max(0, self.memory.held - part - sum(self.unread) - self.in_hand))
        if not part or self.read_paused:
            self._stop_timer()
        elif self.timer is None:
            reason = f"the message did not arrive within {REQUEST_SECONDS.value} s"
            self.timer = self.loop.call_later(REQUEST_SECONDS.value, self._refuse, _POLICY_VIOLATION, reason)

    def _stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


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
