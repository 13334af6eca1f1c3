"""`remote:URL`, and what travels between server and client; the server uses the same functions."""

import asyncio
import io
import json
import os
import re
import threading
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from rewardlab.core.episode import Clip, Episode, in_memory
from rewardlab.core.errors import DataError, ModelError, PlanError, StopRun, require_packages
from rewardlab.core.limits import INSTRUCTION_CHARACTERS
from rewardlab.core.records import parse_json, parsed_bytes
from rewardlab.core.seeding import digest
from rewardlab.core.settings import Help
from rewardlab.core.trial import Answer, Failure, Score, failure_of, info_from_json, info_to_json, validate_answer
from rewardlab.models.contract import (
    SPEED,
    ModelEntry,
    ModelString,
    NamedModel,
    canonical_name,
    identity,
    read_arguments,
    read_url,
)

if TYPE_CHECKING:
    from rewardlab.models.backends.http_client import HttpClient


TOKEN_VARIABLE = "REWARDLAB_TOKEN"


def read_token() -> str:
    """Return the token; empty where none is set."""
    return os.environ.get(TOKEN_VARIABLE, "").strip()


# What travels between a rewardlab server and its clients; both ends use these functions.
#
# `POST /score` carries a NumPy `.npz` archive, stored without compression and without pickles: `episodes`, the UTF-8
# bytes of a JSON list of `{"instruction", "fps"}`, and per episode N the arrays `frames_N` (uint8, T x H x W x 3) and
# `positions_N` (T; when each frame is shown, counted in frames of the camera's stream: int64 where they come evenly,
# float64 where each comes at its own time; position / fps is the time in seconds). The answer is JSON,
# `{"fingerprint": TEXT, "answers": [...]}`, one answer per episode: `{"level", "probabilities", "progress", "raw",
# "info"}`, or `{"failure": REASON, "raw", "info"}`; `info` may be absent. `GET /health` answers
# `{"protocol": 1, "name": TEXT, "fingerprint": TEXT}`.

PROTOCOL = 1
EPISODES_TYPE = "application/x-rewardlab-episodes"
_MAX_NAME = 200  # letters of a server's name and of its fingerprint
_MAX_REASON = 400  # letters of why there is no answer
_ENTRY_BYTES = 2_000  # that Python takes for one entry of an archive, beside its content
_HEADER_BYTES = 1 << 16  # of a .npy file, more than numpy reads of a header
# Python 3.11 may raise SystemError where two threads read literals at once and one collects garbage meanwhile
# (python/cpython#106905).
_READING_HEADER = threading.Lock()


@dataclass(frozen=True)
class Health:
    """Which model a server holds; the fingerprint changes with its weights."""

    name: str
    fingerprint: str


def pack_episodes(episodes: Sequence[Episode]) -> bytes:
    """Return what a model may see of the episodes as the body of a request."""
    described = [{"instruction": episode.instruction, "fps": episode.clip.fps} for episode in episodes]
    arrays: dict[str, NDArray[Any]] = {"episodes": np.frombuffer(json.dumps(described).encode(), dtype=np.uint8)}
    for index, episode in enumerate(episodes):
        arrays |= {f"frames_{index}": episode.frames, f"positions_{index}": episode.clip.positions}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
    return buffer.getvalue()


def unpack_episodes(body: bytes, take: Callable[[int], None] = lambda _: None) -> list[Episode]:
    """Return the episodes of a request; a body that is not one is a DataError.

    `take` is called with the bytes that the next step needs, and may raise to prevent it.
    """
    take(len(body) + directory_bytes(body))
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            entries = archive.infolist()
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise ValueError("the archive is compressed")
            if sum(entry.file_size for entry in entries) > len(body):  # entries may also lie over each other
                raise ValueError("the archive claims to hold more than its own length")
            arrays = {entry.filename.removesuffix(".npy"): array_of_npy(archive.read(entry)) for entry in entries}
        text = arrays["episodes"].tobytes()
        take(parsed_bytes(text))
        described = parse_json(text)
        return [_episode(each, arrays, index) for index, each in enumerate(described)]
    except (zipfile.BadZipFile, OSError, KeyError, TypeError, ValueError, EOFError, RuntimeError, MemoryError) as error:
        why = str(error)[:_MAX_REASON]
        raise DataError(f"the request holds no episodes as an uncompressed .npz archive ({why})") from error


def directory_bytes(archive: bytes | memoryview) -> int:
    """Return the most memory, in bytes, that the directory of a zip archive takes once it is read."""
    return _ENTRY_BYTES * sum(1 for _ in re.finditer(b"PK\x01\x02", archive))


def array_of_npy(data: bytes | memoryview) -> NDArray[Any]:
    """Return the array of a .npy file as a view of its bytes, so that only what is there is taken in."""
    file = io.BytesIO(data[:_HEADER_BYTES])
    try:
        version = np.lib.format.read_magic(file)
        read_header = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}[version[0]]
        with _READING_HEADER:
            shape, fortran, dtype = read_header(file)
    except Exception as error:  # the header is a Python literal, and reading one may raise nearly anything
        raise ValueError(f"an array with a header that cannot be read: {type(error).__name__}") from error
    if any(type(size) is not int or size < 0 for size in shape):  # True is an int as well
        raise ValueError(f"an array of shape {shape}")
    return np.frombuffer(data, dtype, offset=file.tell()).reshape(shape, order="F" if fortran else "C")


def _episode(described: dict[str, Any], arrays: dict[str, NDArray[Any]], index: int) -> Episode:
    source = in_memory(arrays[f"frames_{index}"])
    positions, fps = arrays[f"positions_{index}"], float(described["fps"])
    known = positions.dtype in (np.int64, np.float64) and positions.shape == (source.count,)
    if not known or not 0 < fps < np.inf:
        raise ValueError(f"episode {index} must have {source.count} positions and a frame rate above 0")
    if not (np.diff(positions, prepend=0) >= 0).all() or not np.isfinite(positions[-1]):
        raise ValueError(f"the positions of episode {index} must rise from 0 on")
    instruction = described["instruction"]
    if not isinstance(instruction, str) or len(instruction) > INSTRUCTION_CHARACTERS.value:
        raise ValueError(f"the instruction of episode {index} must be a text, {INSTRUCTION_CHARACTERS.describe()}")
    return Episode("", instruction, Clip(source, np.arange(source.count), positions, fps))


def pack_answers(answers: Sequence[Answer], fingerprint: str) -> bytes:
    """Return the answers as the body of a reply."""
    rows = [
        ({"failure": answer.reason, "raw": answer.raw} if isinstance(answer, Failure) else vars(answer))
        | {"info": info_to_json(answer.info)}
        for answer in answers
    ]
    return json.dumps({"fingerprint": fingerprint, "answers": rows}).encode()


def unpack_answers(body: bytes, frame_counts: Sequence[int]) -> tuple[list[Answer], str]:
    """Return the answers, each checked against its number of frames, and the fingerprint, else ValueError."""
    reply = parse_json(body)
    if not isinstance(reply, dict) or not isinstance(reply.get("answers"), list):
        raise ValueError("expected a JSON object with a list of answers")
    if len(reply["answers"]) != len(frame_counts):
        raise ValueError(f"expected {len(frame_counts)} answers, got {len(reply['answers'])}")
    answers = [answer_of(row, frames) for row, frames in zip(reply["answers"], frame_counts, strict=True)]
    return answers, str(reply.get("fingerprint"))


def answer_of(row: Any, frames: int) -> Answer:
    """Return one answer of a reply, checked against its number of frames; a Failure says what is wrong with it."""
    if not isinstance(row, dict):
        return Failure(f"expected an answer as a JSON object, got {type(row).__name__}")
    raw = row.get("raw")
    try:
        info = info_from_json(row.get("info"))
    except ModelError as error:
        return failure_of(error, with_type=False)
    given = (
        Failure(str(row["failure"]), raw, info)
        if "failure" in row
        else Score(row.get("level", "missing"), row.get("probabilities"), row.get("progress"), raw, info)
    )
    answer = validate_answer(given, frames)
    return replace(answer, reason=answer.reason[:_MAX_REASON]) if isinstance(answer, Failure) else answer


def pack_health(health: Health) -> bytes:
    """Return the answer to `GET /health`."""
    return json.dumps({"protocol": PROTOCOL, **asdict(health)}).encode()


def unpack_health(body: bytes) -> Health:
    """Return which model a server holds; ValueError if it is no rewardlab server of this protocol."""
    reply = parse_json(body)
    if not isinstance(reply, dict) or reply.get("protocol") != PROTOCOL or not reply.get("fingerprint"):
        raise ValueError(f"expected a rewardlab server that speaks protocol {PROTOCOL}")
    health = Health(str(reply.get("name")), str(reply["fingerprint"]))
    if max(len(health.name), len(health.fingerprint)) > _MAX_NAME:
        raise ValueError(f"expected a name and a fingerprint of at most {_MAX_NAME} letters")
    return health


_TOO_LARGE = 413
TOKEN_HINT = f"is the address right, and the token in {TOKEN_VARIABLE}?"


@dataclass(frozen=True)
class Remote:
    """Sends episodes to a server and returns its answers, as long as it holds the model it held at the start."""

    url: str
    fingerprint: str  # of the model that the server held at the start
    timeout: Annotated[float, Help("seconds for one batch with all its attempts; keep it below --timeout"), SPEED] = (
        100.0
    )
    retries: Annotated[int, Help("attempts beyond the first"), SPEED] = 4

    def __post_init__(self) -> None:
        if self.timeout <= 0 or self.retries < 0:
            given = f"{self.timeout:g} and {self.retries}"
            raise PlanError(f"option timeout must be above 0 and retries not negative, got {given}")

    @cached_property
    def client(self) -> "HttpClient":
        """Return the connections to the server."""
        from rewardlab.models.backends.http_client import HttpClient, RetryPolicy

        policy = RetryPolicy(retries=self.retries, timeout=self.timeout)
        return HttpClient(policy, read_token(), TOKEN_HINT, understood=True)

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the server's answers; a Failure for each episode where it gave none."""
        from rewardlab.models.backends.http_client import run_async

        return run_async(self._ask(episodes, time.monotonic() + self.timeout))

    async def score_async(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return the same from asynchronous code, whose loop goes on while the server works."""
        from rewardlab.models.backends.http_client import start_async

        return await asyncio.wrap_future(start_async(self._ask(episodes, time.monotonic() + self.timeout)))

    async def _ask(self, episodes: Sequence[Episode], deadline: float) -> list[Answer]:
        """Return the answers; where a request is larger than the server takes, its halves are sent one by one."""
        from rewardlab.models.backends.http_client import RejectedRequest, Request

        url, body = self.url, pack_episodes(episodes)
        frame_counts = [len(episode.clip) for episode in episodes]
        request = Request(f"{url}/score", digest(body), body, EPISODES_TYPE)
        try:
            reply = await self.client.send(request, lambda data: unpack_answers(data, frame_counts), deadline)
        except ModelError as error:
            if isinstance(error, RejectedRequest) and error.status == _TOO_LARGE and len(episodes) > 1:
                half = len(episodes) // 2
                return [
                    answer for part in (episodes[:half], episodes[half:]) for answer in await self._ask(part, deadline)
                ]
            return [Failure(str(error))] * len(episodes)
        answers, fingerprint = reply
        if fingerprint != self.fingerprint:
            raise StopRun(f"{url} holds another model than when the run began; start a run of its own for it")
        return answers


def read_health(url: str) -> Health:
    """Return which model the server at this address holds; ModelError if none answers there."""
    from rewardlab.models.backends.http_client import ask_what_is_served

    return ask_what_is_served("rewardlab", url, "health", unpack_health, read_token(), TOKEN_HINT)


def _name(string: ModelString) -> NamedModel:
    read_url(string.argument, "remote:URL such as remote:http://localhost:8000")
    require_packages("remote:", "httpx2", extra="api")
    given: dict[str, Any] = read_arguments(string.name, _SETTINGS, string.options)
    _SETTINGS(**given)  # a wrong value is said before the server is asked
    url = string.argument.rstrip("/")
    served = read_health(url).fingerprint  # other weights at the same address are another model
    return NamedModel(
        canonical_name(string, ()),
        identity("remote", {}, served),
        False,
        lambda _: Remote(url, served, **given),
        server=url,
    )


_SETTINGS = partial(Remote, "", "")
REMOTE = ModelEntry("a model on a rewardlab server; remote:http://host:8000", _name, (_SETTINGS,))
