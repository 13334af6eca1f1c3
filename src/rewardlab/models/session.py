"""`rewardlab.connect`: a live session on a reward server, for the loop that moves a robot."""

import io
import json
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rewardlab.core.episode import Frames
from rewardlab.core.errors import DataError, ModelError, PlanError, StopRun, require_packages
from rewardlab.core.records import parse_json
from rewardlab.core.trial import Answer
from rewardlab.models.contract import read_url
from rewardlab.models.remote import TOKEN_HINT, answer_of, read_health, read_token

if TYPE_CHECKING:
    from rewardlab.models.backends.http_client import HttpClient, Result

_CLOSE_SECONDS = 2.0  # a server that is gone does not hold up the end of an episode
_MOST_BYTES = 16_000_000  # of frames in one request
_NOT_FOUND = 404


def connect(
    url: str, instruction: str, *, fps: float = 10.0, score_every: int | None = 1, timeout: float = 30.0
) -> "LiveSession":
    """Open a live session on a reward server: the clip of one episode, which grows while the robot moves.

    `fps` is the frame rate of the frames to come. After every `score_every` frames `add` returns the answer; with None
    only `score` does. `timeout` bounds each call in seconds, with all its retries. The token of the server is read from
    REWARDLAB_TOKEN. Needs the extra `api`.

    A server that cannot be reached, or that has closed the session, is a ModelError; frames that it cannot take are a
    DataError.
    """
    read_url(url, "the address of a reward server such as http://localhost:8000")
    if not instruction.strip():
        raise PlanError("the instruction is empty; say what the robot was asked to do")
    if timeout <= 0:
        raise PlanError(f"timeout must be above 0, got {timeout:g}")
    require_packages("rewardlab.connect", "httpx2", extra="api")
    from rewardlab.models.backends.http_client import HttpClient, Request, RetryPolicy, run_async

    url = url.rstrip("/")
    read_health(url)  # tells at once that nothing answers there; a request that fails later is sent again
    client = HttpClient(RetryPolicy(timeout=timeout), read_token(), TOKEN_HINT, understood=True)
    body = json.dumps({"instruction": instruction, "fps": fps, "score_every": score_every}).encode()
    try:
        opened = run_async(client.send(Request(f"{url}/v1/sessions", url, body), _read, time.monotonic() + timeout))
    except StopRun as error:
        raise ModelError(str(error)) from None
    return LiveSession(client, f"{url}/v1/sessions/{opened['session']}", timeout)


class LiveSession:
    """An open session; `connect` makes it, the end of a `with` block closes it. `frames` counts what the server has."""

    def __init__(self, client: "HttpClient", url: str, timeout: float) -> None:
        self.frames = 0
        self._client, self._url, self._timeout = client, url, timeout
        self._shape: tuple[int, ...] = ()  # of a frame
        self._unconfirmed: Frames | None = None  # sent, but no answer came: the server may have them or not
        self._ended = ""  # why no more calls can be made

    def add(self, frames: Frames) -> Answer | None:
        """Add a frame, uint8 (H, W, 3), or several, (T, H, W, 3); return the answer if one is due, else None.

        Frames of an `add` that ended in a ModelError go out again with the next: the clip has each of them once.
        """
        pixels = np.asarray(frames)
        pixels = pixels[None] if pixels.ndim == 3 else pixels
        if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[-1] != 3 or not pixels.size:
            given = f"{pixels.dtype} {np.shape(frames)}"
            raise DataError(f"frames must be uint8 of shape (H, W, 3) or (T, H, W, 3), got {given}")
        if self._shape not in ((), pixels.shape[1:]):
            raise DataError(f"the frames of this session are {self._shape}, got {pixels.shape[1:]}")
        return self._append(pixels if self._unconfirmed is None else np.concatenate([self._unconfirmed, pixels]))

    def score(self) -> Answer:
        """Return the answer to the clip so far: a Score, or a Failure with the reason."""
        if self._unconfirmed is not None:
            self._append(self._unconfirmed)
        if not self.frames:
            raise DataError("this session has no frames yet; add some first")
        return answer_of(self._call(_read), self.frames)

    def instruct(self, instruction: str) -> None:
        """Ask for something else from now on: the clip so far is scored by the new instruction, as `add` answers next.

        Frames of an `add` that ended in a ModelError go out before.
        """
        if not instruction.strip():
            raise PlanError("the instruction is empty; say what the robot was asked to do")
        if self._unconfirmed is not None:
            self._append(self._unconfirmed)
        self._call(_read, "/instruction", json.dumps({"instruction": instruction}).encode(), "PUT")

    def close(self) -> None:
        """Close the session; the server forgets its frames. A server that is gone is not waited for."""
        if not self._ended:
            with suppress(ModelError):
                self._call(lambda _: None, method="DELETE", timeout=min(self._timeout, _CLOSE_SECONDS))
            self._ended = "this session is closed; open another with rewardlab.connect"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _append(self, pixels: Frames) -> Answer | None:
        from rewardlab.models.backends.http_client import RejectedRequest

        answer, step = None, max(1, _MOST_BYTES // pixels[0].nbytes)
        for start in range(0, len(pixels), step):
            part, buffer = pixels[start : start + step], io.BytesIO()
            np.lib.format.write_array(buffer, part, allow_pickle=False)
            try:
                reply = self._call(_read, f"/frames?at={self.frames}", buffer.getvalue())
            except RejectedRequest as error:
                raise DataError(str(error)) from None
            except ModelError:
                self._unconfirmed = pixels[start:]
                raise
            self._shape, self._unconfirmed = pixels.shape[1:], None
            self.frames += len(part)
            answer = answer_of(reply, self.frames) if "level" in reply or "failure" in reply else answer
        return answer

    def _call(
        self,
        read: "Callable[[bytes], Result]",
        path: str = "",
        body: bytes | None = None,
        method: str = "",
        timeout: float | None = None,
    ) -> "Result":
        from rewardlab.models.backends.http_client import FatalStatus, Request, run_async

        if self._ended:
            raise ModelError(self._ended)
        request = Request(self._url + path, self._url, body, "application/octet-stream", method)
        try:
            return run_async(self._client.send(request, read, time.monotonic() + (timeout or self._timeout)))
        except StopRun as error:
            if not isinstance(error, FatalStatus) or error.status != _NOT_FOUND:
                raise ModelError(str(error)) from None
            self._ended = "the server no longer has this session: it was restarted, or closed the session after ten "
            self._ended += "idle minutes to make room; open another with rewardlab.connect"
            raise ModelError(self._ended) from None


def _read(body: bytes) -> dict[str, Any]:
    """Return what the server says of a session; ValueError if it does not."""
    reply = parse_json(body)
    if not isinstance(reply, dict) or "session" not in reply:
        raise ValueError("expected a JSON object with the session")
    return reply
