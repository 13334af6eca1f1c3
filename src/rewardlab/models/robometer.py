"""`robometer:URL`: a model held by a server that speaks Robometer's HTTP protocol, such as Robometer's own.

The protocol is that of `robometer/evals/eval_server.py` and `scripts/example_inference.py` (github.com/robometer, MIT):
`GET /model_info`, and samples to `POST /evaluate_batch_npy`, a form with arrays as .npy files, or to
`POST /evaluate_batch`, JSON with nested lists. `rewardlab serve` speaks it too (serving/robometer_endpoints.py).
"""

import io
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from rewardlab.core.episode import Episode, Frames, level_of_fraction
from rewardlab.core.errors import ModelError, StopRun, require_packages
from rewardlab.core.records import parse_json
from rewardlab.core.seeding import digest
from rewardlab.core.settings import Help
from rewardlab.core.trial import Answer, Failure, Score
from rewardlab.models.backends.openai import Concurrency, Deadline, KeyEnv, Retries, Timeout, check_requests, read_key
from rewardlab.models.contract import (
    CONNECT_SECONDS,
    ModelEntry,
    ModelString,
    NamedModel,
    all_settings,
    canonical_name,
    identity,
    read_arguments,
    read_url,
    shown_options,
)

if TYPE_CHECKING:
    from rewardlab.models.backends.http_client import HttpClient, Question, Request

_HINT = "is it the address of a Robometer server?"
_ROUNDING = 1e-3  # that a fraction may lie outside 0 to 1
_MAX_REASON = 400  # characters of why a server gives no answer
_FRAMES = "sample_0_trajectory_frames"  # the name of the frames in a form


@dataclass(frozen=True)
class RobometerOptions:
    """Options of `robometer:`."""

    dialect: Annotated[
        Literal["npy", "json"], Help("npy: a form with the frames as .npy; json: the frames as nested lists")
    ] = "npy"
    frame_steps: Annotated[bool, Help("score the clip up to each frame (use_frame_steps)")] = False
    level: Annotated[
        Literal["progress", "success"], Help("1 + 4 x progress, or 1 + 4 x P(success), both of the last frame")
    ] = "progress"
    concurrency: Concurrency = 8
    retries: Retries = 6
    timeout: Timeout = 60.0
    deadline: Deadline = 110.0
    key_env: KeyEnv = "ROBOMETER_TOKEN"

    def __post_init__(self) -> None:
        check_requests(self.concurrency, self.retries, self.timeout, self.deadline, self.key_env)


@dataclass(frozen=True)
class Robometer:
    """Asks a Robometer server for progress and success, one clip a request.

    Clips of different lengths in one request would be padded by the server, and nothing in its answer tells which
    numbers are padding.
    """

    url: str
    served: str  # what the server said of its model at the start
    options: RobometerOptions = RobometerOptions()
    connect_seconds: float = CONNECT_SECONDS

    @cached_property
    def client(self) -> "HttpClient":
        """Return the connections to the server, which has answered before."""
        from rewardlab.models.backends.http_client import HttpClient, RetryPolicy

        chosen = self.options
        policy = RetryPolicy(chosen.concurrency, chosen.retries, chosen.timeout, self.connect_seconds)
        return HttpClient(policy, read_key(chosen.key_env), _HINT, understood=True)

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return progress per frame and a level; a Failure for each episode where the server gave none."""
        from rewardlab.models.backends.http_client import run_async

        return run_async(self._ask(episodes, time.monotonic() + self.options.deadline))

    async def _ask(self, episodes: Sequence[Episode], deadline: float) -> list[Answer]:
        from rewardlab.models.backends.http_client import Request, send_each

        info = f"{self.url}/model_info"
        try:
            served = await self.client.send(Request(info, info), read_model_info, deadline)
        except ModelError as error:
            return [Failure(str(error))] * len(episodes)
        if served != self.served:
            raise StopRun(f"{self.url} holds another model than when the run began; start a run of its own for it")
        questions = [self._question(episode) for episode in episodes]
        return await send_each(self.client, questions, self.options.concurrency, deadline)

    def _question(self, episode: Episode) -> "Question":
        from rewardlab.models.backends.http_client import Question

        return Question(partial(self._request, episode), partial(read_reply, frames=len(episode.clip), by=self.options))

    def _request(self, episode: Episode) -> "Request":
        from rewardlab.models.backends.http_client import Request

        if self.options.dialect == "npy":
            body, kind = pack_form(episode, frame_steps=self.options.frame_steps)
            return Request(f"{self.url}/evaluate_batch_npy", digest(body), body, kind)
        body = pack_json(episode, frame_steps=self.options.frame_steps)
        return Request(f"{self.url}/evaluate_batch", digest(body), body)


def pack_json(episode: Episode, *, frame_steps: bool) -> bytes:
    """Return the body of a request in JSON."""
    sample = _sample(episode, episode.frames.tolist())
    return json.dumps({"samples": [sample], "use_frame_steps": frame_steps}).encode()


def pack_form(episode: Episode, *, frame_steps: bool) -> tuple[bytes, str]:
    """Return the form of a request, and its content type."""
    frames = _npy(episode.frames)
    boundary = f"rewardlab-{digest(frames)}"
    sample = json.dumps(_sample(episode, {"__numpy_file__": _FRAMES}))
    fields = {"sample_0": sample, "use_frame_steps": "true" if frame_steps else "false"}
    parts = [
        f'--{boundary}\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'.encode()
        for name, text in fields.items()
    ]
    file = (
        f'--{boundary}\r\ncontent-disposition: form-data; name="{_FRAMES}"; filename="{_FRAMES}.npy"\r\n'
        "content-type: application/octet-stream\r\n\r\n"
    )
    body = b"".join([*parts, file.encode(), frames, f"\r\n--{boundary}--\r\n".encode()])
    return body, f"multipart/form-data; boundary={boundary}"


def _sample(episode: Episode, frames: object) -> dict[str, object]:
    trajectory = {
        "frames": frames,
        "frames_shape": list(episode.frames.shape),
        "task": episode.instruction,
        "id": "0",
        "metadata": {"subsequence_length": len(episode.clip)},
        "video_embeddings": None,
    }
    return {"sample_type": "progress", "trajectory": trajectory}


def _npy(frames: Frames) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, frames, allow_pickle=False)
    return buffer.getvalue()


def read_reply(body: bytes, frames: int, by: RobometerOptions) -> Answer:
    """Return the answer of a reply; ValueError if it is none, as where it was cut short."""
    reply = parse_json(body, allow_nonfinite=True)  # NaN is an answer, and a wrong one: asking again brings no other
    if not isinstance(reply, dict) or "outputs_progress" not in reply:
        raise ValueError("expected a JSON object with outputs_progress")
    failures = reply.get("failures")  # of a rewardlab server, which says why a model gave no answer
    if isinstance(failures, list) and failures and isinstance(failures[0], str):
        return Failure(failures[0][:_MAX_REASON])
    try:
        progress = _fractions(reply["outputs_progress"], "progress_pred")
        if len(progress) != frames:
            raise ModelError(
                f"expected {frames} numbers of progress, one per frame, got {len(progress)}; if the server drops "
                "frames, show it fewer with --frames, or ask with frame_steps=yes"
            )
        if by.level == "progress":
            return Score(level_of_fraction(progress[-1]), progress=progress)
        success = _fractions(reply.get("outputs_success"), "success_probs")
        return Score(level_of_fraction(success[-1]), progress=progress)
    except ModelError as error:
        return Failure(str(error))


def _fractions(head: Any, name: str) -> tuple[float, ...]:
    """Return the numbers of the one clip that a head gives; ModelError where it gives none, or no fractions."""
    lists = head.get(name) if isinstance(head, dict) else None
    values = lists[0] if isinstance(lists, list) and len(lists) == 1 else None
    if not isinstance(values, list) or not values:
        raise ModelError(f"the server gives no {name} for the clip")
    for value in values:
        sound = isinstance(value, int | float) and not isinstance(value, bool)
        if not sound or not -_ROUNDING <= value <= 1 + _ROUNDING:
            raise ModelError(f"{name} must be numbers from 0 to 1, got {str(value)[:40]!r}")
    return tuple(min(max(float(value), 0.0), 1.0) for value in values)


def read_model_info(body: bytes) -> str:
    """Return the digest of what a server says of its model; ValueError if it is no Robometer server."""
    info = parse_json(body)
    if not isinstance(info, dict) or not isinstance(info.get("model_path"), str):
        raise ValueError("expected a Robometer server, whose /model_info names a model_path")
    # a rewardlab server has a fingerprint; Robometer's own tells classes and counts of parameters, not the weights
    known = {key: info.get(key) for key in ("model_path", "fingerprint", "model_architecture")}
    return digest(json.dumps(known, sort_keys=True))


def _name(string: ModelString) -> NamedModel:
    read_url(string.argument, "robometer:URL such as robometer:http://localhost:8000")
    require_packages("robometer:", "httpx2", extra="api")
    from rewardlab.models.backends.http_client import ask_what_is_served

    given: dict[str, Any] = read_arguments(string.name, RobometerOptions, string.options)
    options, url = RobometerOptions(**given), string.argument.rstrip("/")
    key = read_key(options.key_env)
    served = ask_what_is_served("Robometer", url, "model_info", read_model_info, key, _HINT)
    return NamedModel(
        canonical_name(string, shown_options(RobometerOptions, given)),
        identity("robometer", all_settings(RobometerOptions, given), served),
        False,
        lambda budget: Robometer(url, served, options, budget.connect_seconds),
        server=url,
    )


ROBOMETER = ModelEntry(
    "a model on a server with Robometer's protocol; robometer:http://host:8000",
    _name,
    (RobometerOptions,),
)
