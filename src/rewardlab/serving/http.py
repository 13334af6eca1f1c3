"""The HTTP skeleton: token, limits, same origin, headers, errors as JSON, `serve_until_stopped`."""

import asyncio
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rewardlab.core.limits import REQUEST_SECONDS, SERVER_MB, Limit
from rewardlab.serving.listening import RequestRejected

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_MOST_HEADER_BYTES = 1 << 16


def ignore_request(route: str, status: int, seconds: float) -> None:
    """Count nothing, for servers without metrics."""


@dataclass(frozen=True)
class BodyLimit:
    """The longest body of a request: a limit, counted in a unit of so many bytes."""

    limit: Limit
    unit: str
    unit_bytes: int

    @property
    def in_bytes(self) -> int:
        """Return the most bytes."""
        return self.limit.value * self.unit_bytes

    def refusal(self) -> RequestRejected:
        """Return why a longer body is refused."""
        return RequestRejected(413, f"the request is too long, in {self.unit} {self.limit.describe()}")


@dataclass(eq=False)
class RequestLimits:
    """An ASGI application around another: it reads the whole body within the limits, or refuses with a reason."""

    app: App
    token: str
    body: BodyLimit
    open_paths: frozenset[str]  # what holds nothing by itself is shown without a token
    observe: Callable[[str, int, float], None] = ignore_request  # route, status and seconds of each request
    held: int = 0  # bytes of all bodies that are here now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
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
            body = await self._body(scope, receive)
            held = len(body)
            await self.app(scope, _replay(body, receive), send)
        except RequestRejected as refused:
            await _refuse(send, refused)
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
            raise RequestRejected(401, "this server wants `Authorization: Bearer TOKEN`")

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """Return the body, counted as it arrives: no claimed length is believed, but one too long is refused."""
        if (
            header(scope, b"content-length").isdigit()
            and int(header(scope, b"content-length")[:20]) > self.body.in_bytes
        ):
            raise self.body.refusal()
        chunks: list[bytes] = []
        try:
            async with asyncio.timeout(REQUEST_SECONDS.value):
                await self._fill(chunks, receive)
        except TimeoutError:
            self.held -= sum(map(len, chunks))
            raise RequestRejected(408, f"the request did not arrive within {REQUEST_SECONDS.value} s") from None
        except RequestRejected:
            self.held -= sum(map(len, chunks))
            raise
        return b"".join(chunks)

    async def _fill(self, chunks: list[bytes], receive: Receive) -> None:
        more, length, most, most_held = True, 0, self.body.in_bytes, SERVER_MB.in_bytes
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestRejected(400, "the connection was closed before the request was whole")
            chunks.append(message.get("body", b""))
            length += len(chunks[-1])
            self.held += len(chunks[-1])
            more = bool(message.get("more_body"))
            if length > most:
                raise self.body.refusal()
            if self.held > most_held:
                raise RequestRejected(503, "the requests under way fill the memory of this server; ask again later", 1)


class TimeoutProtocol(HttpToolsProtocol):
    """HTTP/1.1 as uvicorn speaks it, with bounds on the header of a request: the time it takes, and its length."""

    header_timer: asyncio.TimerHandle | None = None
    upgraded = False  # to a WebSocket, which has a protocol of its own
    not_body = 0  # bytes of the request so far beyond its body, less what framing may add to that

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first header."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take more of a request; the timer runs only while its header is not whole."""
        self.not_body += len(data)
        super().data_received(data)
        if self.not_body > _MOST_HEADER_BYTES and not self.upgraded:
            self._refuse(431, "Request Header Fields Too Large", "the header of the request is too long")
        self._watch()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body; where it comes in chunks, their lengths come between."""
        self.not_body -= len(body) + len(body) // 4
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Count the next request from nothing."""
        self.not_body = 0
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection on; a WebSocket may be silent for as long as it likes."""
        self.upgraded = True
        self._stop_timer()
        super().handle_websocket_upgrade()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.upgraded or (self.cycle is not None and not self.cycle.response_complete):
            self._stop_timer()
        elif self.header_timer is None and not self.transport.is_closing():
            self.header_timer = self.loop.call_later(REQUEST_SECONDS.value, self._give_up)

    def _stop_timer(self) -> None:
        if self.header_timer is not None:
            self.header_timer.cancel()
            self.header_timer = None

    def _give_up(self) -> None:
        self.header_timer = None
        if self.cycle is None or self.cycle.response_complete:
            self._refuse(408, "Request Timeout", "the header of the request did not arrive in time")

    def _refuse(self, status: int, phrase: str, reason: str) -> None:
        """Close the connection, with a reason where no answer is under way."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            body = json.dumps({"error": reason}).encode()
            head = f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\nconnection: close\r\n"
            self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        self.transport.close()


def header(scope: Scope, name: bytes) -> bytes:
    """Return a header of a request, empty where it has none."""
    return next((bytes(value) for key, value in scope["headers"] if key == name), b"")


async def whole_body(request: Request) -> bytes:
    """Return the body of a request that came through the limits, which have put it together; nothing is copied."""
    body: bytes = (await request.receive())["body"]
    return body


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a channel that gives the body once, and then what the connection says."""
    chunks = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> MutableMapping[str, Any]:
        return chunks.pop() if chunks else await receive()

    return replay


async def _refuse(send: Send, refused: RequestRejected) -> None:
    body = json.dumps({"error": str(refused)}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    pairs = [(name.encode(), value.encode()) for name, value in (headers | refused.headers).items()]
    await send({"type": "http.response.start", "status": refused.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


# What a request says that its body is, and one sentence for what is wrong inside.


def media_type(request: Request) -> str:
    """Return the content type without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def validation_sentence(errors: Any) -> str:
    """Return what is wrong with a request, without a word of the request itself."""
    parts = [f"{'.'.join(str(step) for step in error['loc'])}: {error['msg']}" for error in errors[:3]]
    return "; ".join(parts).encode("utf-8", "replace").decode()[:400]


# Which pages may ask: only the one that this server sent itself.

_OWN_PAGES = (b"", b"none", b"same-origin")  # Sec-Fetch-Site of our page, of an address that was typed, of programs


def same_origin_only(app: App, open_paths: frozenset[str]) -> App:
    """Return the application without requests that a page from elsewhere makes; links to open paths are followed."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in open_paths:
            _require_own_page(scope)
        await app(scope, receive, send)

    return guarded


def _require_own_page(scope: Scope) -> None:
    origin, host = header(scope, b"origin"), header(scope, b"host")
    own = (b"", b"http://" + host, b"https://" + host)  # TLS may stand in front of this server
    if origin not in own or header(scope, b"sec-fetch-site") not in _OWN_PAGES:
        raise RequestRejected(
            403, "only the page of this server may ask; open the address that `rewardlab data verify` prints"
        )


# Headers that every answer of an application carries.


class WithHeaders:
    """Adds headers to the answers of the application inside."""

    def __init__(self, app: App, headers: Mapping[str, str]) -> None:
        self.app, self.headers = app, headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self.headers)
            await send(message)

        await self.app(scope, receive, send_with_headers)
