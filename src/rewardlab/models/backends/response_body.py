"""The body of an HTTP answer, counted as it arrives, so that no server can fill the memory of this process."""

from contextlib import aclosing
from http.cookiejar import CookieJar
from typing import Any

import httpx2

from rewardlab.core.bounded_json import parse_json
from rewardlab.core.errors import ModelError
from rewardlab.core.limits import BODY_MB

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


async def read_error(response: httpx2.Response) -> str:
    """Return the beginning of what the server sent with an error, as text whatever it holds."""
    return (await _read_up_to(response, _ERROR_BYTES))[:_ERROR_BYTES].decode("utf-8", "replace")


def error_message(text: str) -> str:
    """Return what the server says went wrong."""
    try:
        said = parse_json(text)
    except ValueError:
        return text
    error = said.get("error", said) if isinstance(said, dict) else said
    return str(error.get("message", error) if isinstance(error, dict) else error)


async def _read_up_to(response: httpx2.Response, most: int) -> bytes:
    """Return the body, or somewhat more than `most` bytes of it; the rest is never read."""
    body = bytearray()  # not a list of chunks: millions of them, of two bytes each, would be far more than they hold
    async with aclosing(response.aiter_raw()) as stream:
        async for chunk in stream:
            body += chunk
            if len(body) > most:
                break
    return bytes(body)
