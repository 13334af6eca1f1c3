"""One HTTP server: kept connections, retries, bounded bodies; imports httpx2."""

import asyncio
import logging
import re
import socket
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from http.cookiejar import CookieJar
from itertools import count
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2

from rewardlab.core.errors import ModelError, NoServerError, StopRun
from rewardlab.core.limits import BODY_MB
from rewardlab.core.records import parse_json
from rewardlab.core.seeding import rng_for
from rewardlab.core.trial import Answer, Failure
from rewardlab.models.contract import CONNECT_SECONDS

NO_ENCODING = {"accept-encoding": "identity"}  # nothing is decompressed here, so nothing can grow on the way in
_ERROR_BYTES = 64_000  # of the body of an error that are read; its message stands at the beginning


class NoCookies(CookieJar):
    """A jar that keeps nothing: a server cannot make every later request longer."""

    def extract_cookies(self, response: Any, request: Any) -> None:
        """Take no cookie out of an answer."""


async def read_answer(response: httpx2.Response) -> bytes:
    """Return the body of an answer; ModelError where it is compressed or longer than the limit."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise ModelError(f"the server compressed its answer ({encoding[:40]}), though it was asked not to")
    most = BODY_MB.in_bytes
    body = await _read_up_to(response, most)
    if len(body) > most:
        raise ModelError(f"the server's answer is longer than {BODY_MB.value:,} MB, {BODY_MB.describe()}")
    return body


async def _read_up_to(response: httpx2.Response, most: int) -> bytes:
    """Return the body, or somewhat more than `most` bytes of it; the rest is never read."""
    body = bytearray()  # not a list of chunks: millions of them, of two bytes each, would be far more than they hold
    async with aclosing(response.aiter_raw()) as stream:
        async for chunk in stream:
            body += chunk
            if len(body) > most:
                break
    return bytes(body)


Result = TypeVar("Result")

_FIRST_DELAY, _MAX_DELAY = 0.5, 20.0  # seconds between two attempts; doubled each time
_ANSWERED = {200, 201, 204}
_RETRIED_STATUSES = {408, 409, 425, 429, 500, 502, 503, 504, 529}
_FATAL_STATUSES = {301, 302, 303, 307, 308, 401, 402, 403, 404, 405}  # another episode would fare no better
_FATAL_MESSAGES = {  # what some servers say of an empty account, a wrong key or a wrong model
    429: re.compile("insufficient_quota"),
    400: re.compile(r"api[ _-]?key|not a valid model|model .{0,80}(not found|not exist)", re.IGNORECASE),
    500: re.compile(r"(image|video) input is not supported"),  # llama.cpp with a model of text alone
}
_REPORT_SECONDS = 1.0
_KNOCK_SECONDS = 0.2  # between two connections that are tried
_MAX_MESSAGE = 400  # letters of what a server says that are kept
_MIN_SECRET = 8  # shorter keys, such as EMPTY for a local server, are no secret


@dataclass(frozen=True)
class RetryPolicy:
    """Limits of requests to a server: concurrent requests, attempts beyond the first, seconds for one attempt.

    A server that was never reached and refuses connections is given up after `connect_seconds`.
    """

    concurrency: int = 32
    retries: int = 6
    timeout: float = 60.0
    connect_seconds: float = CONNECT_SECONDS


@dataclass(frozen=True)
class Request:
    """One request; `sent` is called whenever it goes out and may raise StopRun, `refused` if that cost nothing."""

    url: str
    name: str  # seeds the jitter of the waiting times
    body: bytes | None = None
    content_type: str = "application/json"
    method: str = ""  # default: GET without a body, POST with one
    sent: Callable[[], None] = lambda: None
    refused: Callable[[], None] = lambda: None


class RejectedRequest(ModelError):
    """The server answered with a status that another attempt would not change."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"the server answered {status}: {said}")
        self.status = status


class FatalStatus(StopRun):
    """The server answered with a status after which no other request would fare better."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status


class _TransientError(Exception):
    """An attempt failed in a way that may pass; `stops` if all attempts failing so ends the run."""

    def __init__(
        self,
        why: str,
        *,
        stops: bool = False,
        unreadable: bool = False,
        broken: bool = False,
        refused: bool = False,
        wait: float | None = None,
    ) -> None:
        super().__init__(why)
        self.stops = stops
        self.unreadable = unreadable
        self.broken = broken  # status 500
        self.refused = refused  # no connection was made
        self.wait = wait  # what the server asks for, in seconds


class HttpClient:
    """Requests to one server. The secret goes out in the headers and is redacted from all that is said of replies."""

    def __init__(
        self, policy: RetryPolicy, secret: str = "", hint: str = "is the address right?", *, understood: bool = False
    ) -> None:
        self._policy = policy
        self._secret = secret
        self._hint = hint
        limits = httpx2.Limits(max_connections=policy.concurrency, max_keepalive_connections=policy.concurrency)
        headers = NO_ENCODING | ({"authorization": f"Bearer {secret}"} if secret else {})
        self._client = httpx2.AsyncClient(limits=limits, headers=headers, cookies=NoCookies(), timeout=None)
        weakref.finalize(self, _close, self._client).atexit = False
        self._understood = understood  # whether an answer of the server was ever read
        self._reached = False  # whether the server ever answered anything
        self._told = 0.0  # when a retry was last reported
        self._not_before = 0.0  # when a server asks for a pause every request waits, not only the one that was told

    def redact(self, text: str) -> str:
        """Return the text without the secret."""
        return text.replace(self._secret, "[key]") if len(self._secret) >= _MIN_SECRET else text

    def redact_bytes(self, body: bytes) -> bytes:
        """Return the body without the secret."""
        return body.replace(self._secret.encode(), b"[key]") if len(self._secret) >= _MIN_SECRET else body

    def excerpt(self, text: str) -> str:
        """Return the beginning of a text in one line, without the secret."""
        return self.redact(" ".join(text.split()))[:_MAX_MESSAGE]  # in this order: half a secret is one too

    async def send(self, request: Request, read: Callable[[bytes], Result], deadline: float) -> Result:
        """Return what `read` makes of the answer; where it raises ValueError, as for one cut short, it is sent again.

        Not so where no answer of this server was ever read: that is no accident, and would be paid for again. A
        500 that such a server repeats in the same words is final too.
        Where no attempt succeeds before the deadline a ModelError says why; a StopRun if no other request would.
        """
        rng = rng_for(0, "waiting", request.name)
        fault = _TransientError("there was no time left to ask")
        said, begun = "", time.monotonic()
        for attempt in count():
            await asyncio.sleep(max(0.0, min(self._not_before, deadline) - time.monotonic()))
            if time.monotonic() >= deadline:
                break
            request.sent()
            try:
                answer = read(await self._attempt(request, deadline))
                self._understood = True
                return answer
            except ValueError as error:
                fault = _TransientError(f"the answer cannot be read: {error}", unreadable=True)
            except _TransientError as error:
                fault = error
            wait = min(_FIRST_DELAY * 2**attempt, _MAX_DELAY) * (0.5 + rng.random())
            wait = wait if fault.wait is None else fault.wait + 0.1 * wait
            spent = attempt >= self._policy.retries
            if fault.refused and not self._reached:
                asked_to_wait = self._policy.connect_seconds > CONNECT_SECONDS
                late = time.monotonic() + wait > begun + self._policy.connect_seconds
                spent = late or (spent and not asked_to_wait)
            if spent or time.monotonic() + wait > deadline:
                break
            self._report_retry(str(fault), attempt + 1)
            if fault.wait is not None:
                self._not_before = time.monotonic() + fault.wait
            await asyncio.sleep(wait)
            if (fault.unreadable or (fault.broken and said == str(fault))) and not self._understood:
                break
            said = str(fault)
        later = "; run the same command again later" if fault.stops and not fault.refused else ""
        raise (StopRun if fault.stops else ModelError)(self.excerpt(str(fault)) + later)

    def _report_retry(self, why: str, attempt: int) -> None:
        """Warn that a request is sent again; once a second at most, for many requests fail together."""
        if time.monotonic() - self._told > _REPORT_SECONDS and self._reached:
            self._told = time.monotonic()
            logging.getLogger("rewardlab").warning(
                "%s; retrying (%d of %d)", self.excerpt(why), attempt, self._policy.retries
            )

    async def _attempt(self, request: Request, deadline: float) -> bytes:
        seconds = min(self._policy.timeout, deadline - time.monotonic())
        method, headers = ("GET", {}) if request.body is None else ("POST", {"content-type": request.content_type})
        sent = self._client.stream(request.method or method, request.url, content=request.body, headers=headers)
        try:
            async with asyncio.timeout(seconds), sent as response:
                self._reached = True
                if response.status_code in _ANSWERED:
                    return await read_answer(response)
                said = (await _read_up_to(response, _ERROR_BYTES))[:_ERROR_BYTES].decode("utf-8", "replace")
        except TimeoutError:
            self._reached = True
            raise _TransientError(f"no answer within {seconds:.0f} s") from None
        except (httpx2.ConnectError, httpx2.UnsupportedProtocol) as error:
            request.refused()
            why = f"cannot connect to {request.url} ({error}); is the server running, and the address right?"
            raise _TransientError(why, stops=True, refused=True) from None
        except httpx2.RequestError as error:
            raise _TransientError(f"the connection broke: {type(error).__name__} {error}") from None
        request.refused()
        raise self._error_of(request.url, response, said)

    def _error_of(self, url: str, response: httpx2.Response, body: str) -> Exception:
        """Return what a status other than 200 means: for the run, for this request, or for this attempt only."""
        status, message = response.status_code, body
        with suppress(ValueError):  # most servers send a JSON object with the message in it
            sent = parse_json(body)
            error = sent.get("error", sent) if isinstance(sent, dict) else sent
            message = str(error.get("message", error) if isinstance(error, dict) else error)
        said = self.excerpt(message)
        fatal = _FATAL_MESSAGES.get(status)
        if status in _FATAL_STATUSES or (fatal and fatal.search(body[:2000])):
            return FatalStatus(status, f"{url} answered {status}: {said}; {self._hint}")
        if status in _RETRIED_STATUSES:
            why, wait = f"the server answered {status}: {said}", _retry_after(response.headers)
            return _TransientError(why, stops=status == 429, broken=status == 500, wait=wait)
        return RejectedRequest(status, said)


def wait_for_server(url: str, seconds: float) -> None:
    """Return once the address accepts a connection; NoServerError where it refuses them for so long.

    Whatever else may be wrong with an address is left to the first request.
    """
    parts, deadline = urlsplit(url), time.monotonic() + seconds
    host = parts.hostname or ""
    if parts.scheme in getproxies() and not proxy_bypass(host):
        return
    while True:
        try:
            socket.create_connection((host, parts.port or {"http": 80}.get(parts.scheme, 443)), timeout=seconds).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() >= deadline:
                why = f"cannot connect to {url} (connection refused); is the server running, and the address right?"
                raise NoServerError(why) from None
            time.sleep(_KNOCK_SECONDS)
        except OSError:
            return


@dataclass(frozen=True)
class Question:
    """A request about one clip, made in a thread when its turn comes, and how its reply is read."""

    request: Callable[[], Request]
    read: Callable[[bytes], Answer]


async def send_each(
    client: HttpClient, questions: Sequence[Question], concurrency: int, deadline: float
) -> list[Answer]:
    """Return the answer to each question, a Failure with the reason where there is none; a StopRun ends them all."""
    slots, stops = asyncio.Semaphore(concurrency), list[StopRun]()

    async def ask(question: Question) -> Answer:
        async with slots:
            if stops:
                return Failure(str(stops[0]))
            try:
                request = await asyncio.to_thread(question.request)
                answer = await client.send(request, lambda body: question.read(client.redact_bytes(body)), deadline)
                return replace(answer, reason=client.redact(answer.reason)) if isinstance(answer, Failure) else answer
            except StopRun as stop:
                stops.append(stop)
                return Failure(str(stop))
            except ModelError as error:
                return Failure(str(error))

    answers = await asyncio.gather(*map(ask, questions))
    if stops:
        raise stops[0]
    return answers


def ask_what_is_served(
    kind: str, url: str, page: str, read: Callable[[bytes], Result], secret: str, hint: str
) -> Result:
    """Return what `read` makes of the page on which a server of this kind says which model it holds."""
    client = HttpClient(RetryPolicy(retries=1, timeout=10.0), secret, hint)
    try:
        wait_for_server(url, CONNECT_SECONDS)
        return run_async(client.send(Request(f"{url}/{page}", url), read, time.monotonic() + 20.0))
    except (ModelError, StopRun) as error:
        error_kind = NoServerError if isinstance(error, NoServerError) else ModelError
        raise error_kind(f"no {kind} server answers at {url}: {error}") from error


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    """Run asynchronous work to its end from ordinary code, on the one loop of this process that keeps connections."""
    return start_async(work).result()


def start_async(work: Coroutine[Any, Any, Result]) -> "Future[Result]":
    """Start asynchronous work on that loop and return what its result will be."""
    return asyncio.run_coroutine_threadsafe(work, _loop())


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="rewardlab http", daemon=True).start()
    return loop


def _close(client: httpx2.AsyncClient) -> None:
    asyncio.run_coroutine_threadsafe(client.aclose(), _loop())


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a Retry-After header asks for, as a number or as a date by the server's own clock."""
    asked = headers.get("retry-after", "")
    with suppress(ValueError):
        return max(0.0, float(asked))
    try:
        until = parsedate_to_datetime(asked)
        now = parsedate_to_datetime(headers["date"]) if "date" in headers else datetime.now(UTC)
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None
