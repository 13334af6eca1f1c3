"""`pooling:MODEL@URL`: a reward or classification head behind vLLM's pooling endpoint.

The protocol is vLLM's Pooling API (docs.vllm.ai, Pooling models; Apache-2.0): `POST /pooling` with `model`, `messages`
as for chat completions, `encoding_format` and perhaps `task`; the reply has one `data[0].data`, the numbers of a head:
one list for the prompt (`classify`), or one list per token (`token_classify`).
"""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rewardlab.core.episode import LEVELS, Episode, level_of_fraction
from rewardlab.core.errors import ModelError, PlanError, require_packages
from rewardlab.core.records import parse_json
from rewardlab.core.seeding import digest
from rewardlab.core.settings import Help
from rewardlab.core.trial import Answer, Failure, Score, ScoreInfo
from rewardlab.models.backends.openai import (
    Concurrency,
    Deadline,
    KeyEnv,
    Retries,
    Send,
    Timeout,
    check_requests,
    message_content,
    read_key,
    read_usage,
    split_address,
)
from rewardlab.models.contract import (
    Budget,
    ModelEntry,
    ModelString,
    NamedModel,
    all_settings,
    canonical_name,
    identity,
    read_arguments,
    shown_options,
)
from rewardlab.models.vlm import Image, Part, Prompt, clip_video

if TYPE_CHECKING:
    from rewardlab.models.backends.http_client import HttpClient, Question, Request

_PLACE = "{instruction}"
_ROUNDING = 1e-3  # by which probabilities may miss a sum of 1, and a reward its range


@dataclass(frozen=True)
class PoolingOptions:
    """Options of `pooling:`."""

    send: Send = "images"
    order: Annotated[Literal["video_first", "text_first"], Help("which comes first in the prompt, video or text")] = (
        "video_first"
    )
    text: Annotated[str, Help("the text of the prompt, with {instruction} in it")] = _PLACE
    after_frame: Annotated[str, Help("text after each frame, such as the token that a process reward model reads")] = ""
    task: Annotated[
        Literal["auto", "classify", "token_classify"], Help("the pooling task asked for; auto: the server's default")
    ] = "auto"
    rows: Annotated[
        Literal["last", "frames"],
        Help("for numbers per token: last takes the last token; frames takes one per frame shown, as progress"),
    ] = "last"
    low: Annotated[float, Help("for heads with a single number: the reward of a clip in which nothing is done")] = 0.0
    high: Annotated[float, Help("for heads with a single number: the reward of a task that is done")] = 1.0
    concurrency: Concurrency = 32
    retries: Retries = 6
    timeout: Timeout = 60.0
    deadline: Deadline = 110.0
    key_env: KeyEnv = "VLLM_API_KEY"

    def __post_init__(self) -> None:
        check_requests(self.concurrency, self.retries, self.timeout, self.deadline, self.key_env)
        if _PLACE not in self.text:
            raise PlanError(f"option text must have {_PLACE} in it, got {self.text[:60]!r}")
        if self.after_frame and self.send == "video":
            raise PlanError("option after_frame needs send=images: a video has no place for text between its frames")
        if not self.low < self.high:
            raise PlanError(f"option low must be below high, got {self.low:g} and {self.high:g}")


@dataclass(frozen=True)
class Pooling:
    """Asks one model of one server for the numbers of its head, one clip a request."""

    model: str
    url: str  # of the endpoint
    options: PoolingOptions
    budget: Budget = Budget()

    @cached_property
    def client(self) -> "HttpClient":
        """Return the connections to the server."""
        from rewardlab.models.backends.http_client import HttpClient, RetryPolicy

        chosen = self.options
        policy = RetryPolicy(chosen.concurrency, chosen.retries, chosen.timeout, self.budget.connect_seconds)
        hint = f"check the model's name, the address, and the key in {chosen.key_env}"
        return HttpClient(policy, read_key(chosen.key_env), hint)

    def score(self, episodes: Sequence[Episode]) -> list[Answer]:
        """Return what the head's numbers mean; a Failure for each episode where there are none, or others."""
        from rewardlab.models.backends.http_client import run_async, send_each

        deadline = time.monotonic() + self.options.deadline
        questions = [self._question(episode) for episode in episodes]
        return run_async(send_each(self.client, questions, self.options.concurrency, deadline))

    def _question(self, episode: Episode) -> "Question":
        from rewardlab.models.backends.http_client import Question

        return Question(partial(self._request, episode), partial(read_reply, frames=len(episode.clip), by=self.options))

    def _request(self, episode: Episode) -> "Request":
        from rewardlab.models.backends.http_client import Request

        content = message_content(_prompt(episode, self.options), as_video=self.options.send == "video")
        task = {} if self.options.task == "auto" else {"task": self.options.task}
        settings = json.dumps({"model": self.model, "encoding_format": "float", **task})
        body = f'{settings[:-1]}, "messages": [{{"role": "user", "content": {content}}}]}}'.encode()
        return Request(self.url, digest(body), body)


def _prompt(episode: Episode, options: PoolingOptions) -> Prompt:
    shown: list[Part] = [clip_video(episode)]
    if options.after_frame:
        shown = [part for frame in episode.frames for part in (Image(frame), options.after_frame)]
    text = options.text.replace(_PLACE, episode.instruction)
    return Prompt((*shown, text) if options.order == "video_first" else (text, *shown))


def read_reply(body: bytes, frames: int, by: PoolingOptions) -> Answer:
    """Return the answer of a reply; ValueError if it is none, as where it was cut short."""
    reply = parse_json(body, allow_nonfinite=True)  # NaN is an answer, and a wrong one: asking again brings no other
    data = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(data, list):
        raise ValueError("expected a JSON object with a list of data")
    info = ScoreInfo(input_tokens=read_usage(reply.get("usage"))[0])
    try:
        if len(data) != 1 or not isinstance(data[0], dict):
            raise ModelError(f"expected the numbers of one prompt, got {len(data)}")
        rows = _rows(data[0].get("data"), by)
        if by.rows == "last":
            return _score(rows[-1], None, by, info)
        if len(rows) != frames:
            raise ModelError(f"expected {frames} lists of numbers, one per frame, got {len(rows)}")
        return _score(rows[-1], tuple(_fraction(row, by) for row in rows), by, info)
    except ModelError as error:
        return Failure(str(error), info=info)


def _rows(values: Any, by: PoolingOptions) -> list[list[float]]:
    """Return the lists of numbers of a head, at least one."""
    if isinstance(values, list) and values and not isinstance(values[0], list):
        values = [values] if by.rows == "last" else [[value] for value in values]
    if not isinstance(values, list) or not values or not all(isinstance(row, list) for row in values):
        raise ModelError(f"expected numbers, or a list of them per token, got {str(values)[:60]!r}")
    read = values[-1:] if by.rows == "last" else values
    return [[_number(value) for value in row] for row in read]


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ModelError(f"expected finite numbers, got {str(value)[:40]!r}")
    return float(value)


def _score(row: list[float], progress: tuple[float, ...] | None, by: PoolingOptions, info: ScoreInfo) -> Score:
    fraction = _fraction(row, by)
    if len(row) < len(LEVELS):
        return Score(level_of_fraction(fraction), progress=progress, info=info)
    probabilities = tuple(value / sum(row) for value in row)
    return Score(level_of_fraction(fraction), probabilities, progress, info=info)


def _fraction(row: list[float], by: PoolingOptions) -> float:
    """Return how much is done, from 0 to 1: a reward by its range, P(success), or the mean of five levels."""
    if len(row) == 1:
        fraction = (row[0] - by.low) / (by.high - by.low)
        if not -_ROUNDING <= fraction <= 1 + _ROUNDING:
            raise ModelError(
                f"expected a reward from {by.low:g} to {by.high:g}, got {row[0]:g}; set low and high to the range of "
                "this model's rewards"
            )
        return min(max(fraction, 0.0), 1.0)
    if len(row) not in (2, len(LEVELS)):
        raise ModelError(
            f"expected 1 number (a reward), 2 (probabilities of failure and success) or 5 (of the levels 1 to 5), "
            f"got {len(row)}; embeddings are no reward"
        )
    if min(row) < 0 or abs(sum(row) - 1) > _ROUNDING:
        raise ModelError(f"expected {len(row)} probabilities that sum to 1, got {', '.join(f'{v:.3g}' for v in row)}")
    return sum(place * value for place, value in enumerate(row)) / sum(row) / (len(row) - 1)


def _name(string: ModelString) -> NamedModel:
    """Resolve the string without a request; which weights the server runs is unknown."""
    given: dict[str, Any] = read_arguments(string.name, PoolingOptions, string.options)
    options = PoolingOptions(**given)
    model, parts = split_address(string.argument, "pooling:MODEL@URL such as pooling:judge@http://localhost:8000")
    require_packages("pooling:", "httpx2", extra="api")
    read_key(options.key_env)
    path = parts.path.rstrip("/")
    if not path.endswith("/pooling"):
        path = path.removesuffix("/v1") + "/pooling"  # vLLM has it beside /v1, not below
    address = parts._replace(path=path, fragment="").geturl()
    return NamedModel(
        canonical_name(string, shown_options(PoolingOptions, given)),
        identity("pooling", all_settings(PoolingOptions, given), model, address),
        False,
        lambda budget: Pooling(model, address, options, budget),
        prompt=lambda instruction: options.text.replace(_PLACE, instruction),
        server=address,
    )


POOLING = ModelEntry(
    "a reward or classification head behind vLLM's pooling endpoint; pooling:MODEL@URL, the key in VLLM_API_KEY",
    _name,
    (PoolingOptions,),
)
