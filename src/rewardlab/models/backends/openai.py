"""`openai:MODEL@URL`: prompts are sent concurrently, and no prompt is paid for twice."""

import asyncio
import json
import os
import re
import time
from base64 import b64encode
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import SplitResult

import numpy as np

from rewardlab.core.episode import Frames
from rewardlab.core.errors import ModelError, PlanError, StopRun, require_packages
from rewardlab.core.limits import ANSWER_CHARACTERS
from rewardlab.core.records import parse_json
from rewardlab.core.seeding import digest
from rewardlab.core.settings import Help
from rewardlab.core.trial import Failure, ScoreInfo
from rewardlab.models.contract import (
    SPEED,
    Budget,
    Pairs,
    all_settings,
    identity,
    question_key,
    read_arguments,
    read_url,
    shown_options,
)
from rewardlab.models.ledger import Ledger
from rewardlab.models.vlm import AnswerFormat, Completion, Image, NamedVlm, Prompt, VlmBackend, choice_probs

if TYPE_CHECKING:
    from rewardlab.models.backends.http_client import HttpClient


# Options that clients of servers share; the key is never among them, only the name of the variable that holds it.

Send = Annotated[Literal["images", "video"], Help("images: each frame as a JPEG; video: one mp4")]
Concurrency = Annotated[int, Help("concurrent requests"), SPEED]
Retries = Annotated[int, Help("attempts beyond the first"), SPEED]
Timeout = Annotated[float, Help("seconds for one attempt"), SPEED]
Deadline = Annotated[float, Help("seconds for one batch with all attempts; keep it below --timeout"), SPEED]
KeyEnv = Annotated[str, Help("environment variable that holds the key; it may be unset"), SPEED]


def check_requests(concurrency: int, retries: int, timeout: float, deadline: float, key_env: str) -> None:
    """Raise PlanError if one of the shared options has no meaning."""
    if not re.fullmatch(r"[A-Za-z_]\w*", key_env):  # not shown: it may be the key itself
        raise PlanError("option key_env must be the name of an environment variable, such as OPENAI_API_KEY")
    if concurrency < 1 or timeout <= 0 or deadline <= 0 or retries < 0:
        raise PlanError("concurrency must be at least 1, timeout and deadline above 0, retries not negative")


def read_key(key_env: str) -> str:
    """Return the key from the environment, empty where there is none, as for most local servers."""
    key = os.environ.get(key_env, "").strip()
    if not all("!" <= letter <= "~" for letter in key):
        raise PlanError(f"the key in {key_env} has a space or a character outside ASCII; set it again")
    return key


def split_address(argument: str, example: str) -> tuple[str, SplitResult]:
    """Return the model and the address of `MODEL@URL`."""
    model, _, url = re.sub(r"@(?=https?://)", "\n", argument, count=1).partition("\n")
    return model, read_url(url if model else "", example)


@dataclass(frozen=True)
class OpenAIOptions:
    """Options of `openai:`."""

    send: Send = "images"
    logprobs: Annotated[
        Literal["auto", "on", "off"], Help("ask for log-probabilities: auto (where the server gives them), on or off")
    ] = "auto"
    concurrency: Concurrency = 32
    retries: Retries = 6
    timeout: Timeout = 60.0
    deadline: Deadline = 110.0
    input_price: Annotated[float, Help("price of a million input tokens; negative if unknown"), SPEED] = -1.0
    output_price: Annotated[float, Help("price of a million output tokens; negative if unknown"), SPEED] = -1.0
    key_env: KeyEnv = "OPENAI_API_KEY"

    def __post_init__(self) -> None:
        check_requests(self.concurrency, self.retries, self.timeout, self.deadline, self.key_env)


def name_openai(argument: str, pairs: Pairs, also: Collection[str] = ()) -> NamedVlm:
    """Resolve `MODEL@URL` without a request; which weights the server runs is unknown."""
    given: dict[str, Any] = read_arguments("openai", OpenAIOptions, pairs, also)
    options = OpenAIOptions(**given)
    model, parts = split_address(argument, "openai:MODEL@URL such as openai:judge@http://localhost:8000/v1")
    path = parts.path.rstrip("/") or "/v1"
    if not path.endswith("/chat/completions"):
        path += "/chat/completions"
    require_packages("openai:", "httpx2", extra="api")
    read_key(options.key_env)
    address = parts._replace(path=path, fragment="").geturl()
    return NamedVlm(
        identity("openai", all_settings(OpenAIOptions, given), model, address),
        lambda budget: OpenAIEndpoint(model, address, options, budget),
        shown_options(OpenAIOptions, given),
        server=address,
    )


OPENAI = VlmBackend(
    "a vision-language model behind an OpenAI-compatible endpoint; openai:MODEL@URL, the key in OPENAI_API_KEY",
    name_openai,
    (OpenAIOptions,),
)


# The chat-completions protocol: the request for a prompt, and how its reply is parsed.

MAX_TOP_LOGPROBS = 20  # the most log-probabilities per token that OpenAI and vLLM return
_JPEG_QUALITY = 95  # high, so that what a perturbation did to the pixels survives
_ROUNDING = 1e-3  # rounding may lift a log-probability this far above 0
_MAX_LISTED = 200  # alternatives per position, and characters per token; more is invalid
_MAX_FINISH = 40  # characters kept of a finish reason
_LOG_OF_ZERO = -9999.0  # vLLM's log of 0: JSON has no infinity
_OPENING_WINDOW = 200  # characters before a choice that are searched for its opening
TOO_LONG = "too long"  # finish reason of a reply whose text exceeds the limit


@dataclass(frozen=True)
class RequestFormat:
    """What differs between servers: log-probabilities per token, the name of the length limit, a fixed temperature."""

    top_logprobs: int = 0
    limit: str = "max_tokens"
    greedy: bool = True  # whether temperature 0 is requested


@dataclass(frozen=True)
class ChatReply:
    """The reply of a server: its text, its finish reason, and log-probabilities if there are any.

    `first` are those of the first token, `digit` those at the position of the choice, such as the digit after
    `ANSWER:`; ledger files use these names as keys. Without a text, `finish` is the reason.
    """

    text: str | None
    finish: str = ""
    first: dict[str, float] | None = None
    digit: dict[str, float] | None = None


Usage = tuple[int | None, int | None]  # input and output tokens, None if not reported


def request_body(model: str, content: str, max_tokens: int, form: RequestFormat) -> bytes:
    """Return the JSON of one request; the content is JSON already."""
    settings: dict[str, Any] = {"model": model, form.limit: max_tokens}
    if form.greedy:
        settings["temperature"] = 0
    if form.top_logprobs:
        settings |= {"logprobs": True, "top_logprobs": form.top_logprobs}
    return f'{json.dumps(settings)[:-1]}, "messages": [{{"role": "user", "content": {content}}}]}}'.encode()


def fallback_format(form: RequestFormat, rejection: str, *, needs_logprobs: bool) -> RequestFormat | None:
    """Return the format to try after a rejected request, None if there is none left."""
    if form.limit == "max_tokens" and "max_completion_tokens" in rejection:
        return replace(form, limit="max_completion_tokens")
    if form.greedy and "temperature" in rejection:
        return replace(form, greedy=False)
    # some servers give 5, some none
    fewer = {MAX_TOP_LOGPROBS: 5} if needs_logprobs else {MAX_TOP_LOGPROBS: 5, 5: 0}
    return replace(form, top_logprobs=fewer[form.top_logprobs]) if form.top_logprobs in fewer else None


def message_content(prompt: Prompt, *, as_video: bool) -> str:
    """Return the parts of a prompt as JSON: frames as JPEG, or videos as mp4."""
    content: list[str] = []  # JSON written by hand: images in base64 are nearly all of it and need no escaping
    for part in prompt.parts:
        if isinstance(part, str):
            content.append(json.dumps({"type": "text", "text": part}))
        elif isinstance(part, Image):
            content.append(_image_part(part.frame))
        elif as_video and len(part.frames) > 1:
            from rewardlab.core.video_encoding import encode_bytes

            content.append(_url_part("video_url", "video/mp4", encode_bytes(part.frames, part.fps, crf=18)))
        else:
            content += [_image_part(frame) for frame in part.frames]
    return f"[{', '.join(content)}]"


def _url_part(name: str, mime_type: str, data: bytes) -> str:
    return f'{{"type": "{name}", "{name}": {{"url": "data:{mime_type};base64,{b64encode(data).decode()}"}}}}'


def _image_part(frame: Frames) -> str:
    import cv2

    _, data = cv2.imencode(".jpg", cv2.cvtColor(frame, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    return _url_part("image_url", "image/jpeg", bytes(data))


def parse_reply(data: bytes, answer: AnswerFormat | None) -> tuple[ChatReply, Usage]:
    """Parse the reply of a server; ValueError if it is not a JSON object, or only an error."""
    payload = parse_json(data, allow_nonfinite=True)
    if not isinstance(payload, dict):
        raise ValueError(f"expected a JSON object, got {type(payload).__name__}")
    choices = payload.get("choices")
    if not choices and payload.get("error"):
        raise ValueError(f"the server sent an error: {payload['error']}")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    tokens = list(_tokens(choice))
    text, finish = _text(choice.get("message")), choice.get("finish_reason")
    if not isinstance(finish, str) or not finish:
        finish = "unknown" if choices else "no choices"
    if text is not None and len(text) > ANSWER_CHARACTERS.value:
        text, finish = None, TOO_LONG
    first = tokens[0][1] if tokens else None
    reply = ChatReply(text, finish[:_MAX_FINISH], first, _choice_logprobs(tokens, answer) if answer else None)
    return reply, read_usage(payload.get("usage"))


def reply_from_ledger(record: Any) -> ChatReply | None:
    """Return the reply that a ledger holds; None if it is invalid or too long."""
    try:
        reply = ChatReply(**record)
        places = [place for place in (reply.first, reply.digit) if place is not None]
        sound = all(_logprob(value) <= _ROUNDING for place in places for value in place.values())
    except (TypeError, ValueError, AttributeError):
        return None
    texts = isinstance(reply.finish, str) and (reply.text is None or isinstance(reply.text, str))
    return reply if sound and texts and len(reply.text or "") <= ANSWER_CHARACTERS.value else None


def _text(message: Any) -> str | None:
    """Return the text of a message, or of its refusal."""
    if not isinstance(message, dict):
        return None
    content = message.get("content")
    if isinstance(content, list):  # some servers send a list of parts
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    text = content or message.get("refusal")
    return text if isinstance(text, str) else None


def _tokens(choice: dict[str, Any]) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each token, and the log-probabilities at its position; stop at the first invalid entry."""
    try:
        for entry in choice["logprobs"]["content"]:
            listed = [entry, *entry["top_logprobs"][:_MAX_LISTED]]
            yield _token(entry), {_token(t): _logprob(t["logprob"]) for t in listed}
    except (KeyError, TypeError, ValueError):
        return


def _token(entry: dict[str, Any]) -> str:
    token = str(entry["token"])
    if len(token) > _MAX_LISTED:
        raise ValueError(f"expected a token, got {len(token):,} characters")
    return token


def _logprob(value: Any) -> float:
    if not float(value) <= _ROUNDING:
        raise ValueError(f"expected the logarithm of a probability, got {value}")
    return max(float(value), _LOG_OF_ZERO)


def _choice_logprobs(tokens: list[tuple[str, dict[str, float]]], answer: AnswerFormat) -> dict[str, float] | None:
    """Return the log-probabilities at the position of the first choice after the opening."""
    written, opening = "", answer.written_opening
    for token, top in tokens:
        if token.strip() in answer.choices and opening.search(written[-_OPENING_WINDOW:]):
            return top
        written += token
    return None


def read_usage(usage: Any) -> Usage:
    """Return the tokens that a server counted."""
    if not isinstance(usage, dict):
        return None, None
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    read, wrote = (count if isinstance(count, int) and count >= 0 else None for count in counts)
    return read, wrote


# A vision-language model behind an OpenAI-compatible endpoint: prompts are sent concurrently, and each only once.

_ANSWER_TOKENS = 128  # a server cannot continue a prefilled reply, so it also writes the opening
_PaidReply = tuple[ChatReply | Failure, ScoreInfo]  # with its number of tokens and its cost


@dataclass(frozen=True, eq=False)
class _ChatRequest:
    """A prompt as it will be sent, and the key of its reply in the ledger."""

    key: str
    content: str
    max_tokens: int
    answer: AnswerFormat | None


class OpenAIEndpoint:
    """One model of one server, by the address of its chat completions; connections and ledger open on first use."""

    def __init__(self, model: str, url: str, options: OpenAIOptions, budget: Budget) -> None:
        if budget.max_cost is not None and min(options.input_price, options.output_price) < 0:
            raise PlanError(
                f"--max-cost needs the prices of {model}: add ?input_price=...&output_price=... per million tokens, "
                "0 where it costs nothing"
            )
        self._model, self._url, self._options, self._budget = model, url, options, budget
        self._key = read_key(options.key_env)
        self._format = RequestFormat(0 if options.logprobs == "off" else MAX_TOP_LOGPROBS)
        self._format_works = False  # whether the server has answered a request in this format

    @cached_property
    def _ledger(self) -> Ledger:
        return Ledger(self._budget, f"{self._model}@{self._url}")

    @cached_property
    def _client(self) -> "HttpClient":
        from rewardlab.models.backends.http_client import HttpClient, RetryPolicy

        chosen = self._options
        policy = RetryPolicy(chosen.concurrency, chosen.retries, chosen.timeout, self._budget.connect_seconds)
        hint = f"check the model's name, the address, and the key in {self._options.key_env}"
        return HttpClient(policy, self._key, hint)

    def complete(
        self, prompts: Sequence[Prompt], max_tokens: int, answer: AnswerFormat | None = None
    ) -> list[Completion | Failure]:
        """Return what the model writes after each prompt."""
        return [_completion(reply, usage) for reply, usage in self._chat(prompts, max_tokens, answer)]

    def answer_probs(self, prompts: Sequence[Prompt], answer: AnswerFormat) -> list[tuple[float, ...] | Failure]:
        """Return the probabilities of the choices where the model wrote one; 0 for a choice that is not listed."""
        none = f"the server gives no log-probabilities after {answer.opening.strip()!r}"
        return [
            reply
            if isinstance(reply, Failure)
            else choice_probs(reply.digit or {}, answer.choices) or Failure(none, reply.text)
            for reply, _ in self._chat(prompts, _ANSWER_TOKENS, answer)
        ]

    def continuation_logprob(self, prompts: Sequence[Prompt], continuation: str) -> list[float | Failure]:
        """Return the log-probability that each reply begins with this token; a Failure if it is not listed."""
        return [_first_token_logprob(reply, continuation.strip()) for reply, _ in self._chat(prompts, 1, None)]

    def _chat(self, prompts: Sequence[Prompt], max_tokens: int, answer: AnswerFormat | None) -> list[_PaidReply]:
        """Return the reply to each prompt and its price; a reply that was paid for before comes from the ledger."""
        from rewardlab.models.backends.http_client import run_async

        return run_async(self._chat_all(prompts, max_tokens, answer))

    async def _chat_all(
        self, prompts: Sequence[Prompt], max_tokens: int, answer: AnswerFormat | None
    ) -> list[_PaidReply]:
        """Send all prompts, within the limits; if the run must stop, requests already sent are awaited and stored."""
        replies: dict[int, _PaidReply] = {}
        stops: list[StopRun] = []
        slots = asyncio.Semaphore(self._options.concurrency)
        by_key: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # the same prompt waits for its reply
        deadline = time.monotonic() + self._options.deadline

        async def ask(index: int) -> None:
            try:
                request = await asyncio.to_thread(self._request, prompts[index], max_tokens, answer)
                async with slots, by_key[request.key]:
                    if not stops:
                        replies[index] = await self._reply(request, deadline), self._ledger.usage(request.key)
            except StopRun as stop:
                stops.append(stop)
            except Exception as error:  # the others are still awaited: they are paid for
                replies[index] = Failure(self._client.excerpt(f"{type(error).__name__}: {error}")), ScoreInfo()

        first = 0
        while first < len(prompts) and self._ledger.price_unknown and not stops:
            await ask(first)  # one at a time until the cost of a request is known
            first += 1
        await asyncio.gather(*map(ask, range(first, len(prompts))))
        if stops:
            raise stops[0]
        return [replies[index] for index in range(len(prompts))]

    def _request(self, prompt: Prompt, max_tokens: int, answer: AnswerFormat | None) -> _ChatRequest:
        content = message_content(prompt, as_video=self._options.send == "video")
        key = question_key(digest(self._url, self._model, max_tokens, self._options.logprobs, content))
        return _ChatRequest(key, content, max_tokens, answer)

    async def _reply(self, request: _ChatRequest, deadline: float) -> ChatReply | Failure:
        reply = reply_from_ledger(self._ledger.find(request.key))
        if reply is None:
            try:
                reply, usage = await self._send(request, deadline)
            except ModelError as error:
                return Failure(str(error))
            reply = ChatReply(**json.loads(self._client.redact(json.dumps(asdict(reply), ensure_ascii=False))))
            await self._ledger.keep(request.key, usage, _cost(usage, self._options), asdict(reply))
        if reply.finish == TOO_LONG:
            return Failure(f"the server's answer has too many characters, {ANSWER_CHARACTERS.describe()}")
        return reply

    async def _send(self, request: _ChatRequest, deadline: float) -> tuple[ChatReply, Usage]:
        """Send in the format known so far; if it is rejected, try the others and keep the one that works."""
        from rewardlab.models.backends.http_client import RejectedRequest, Request

        form = self._format
        while True:
            http = Request(
                self._url,
                request.key,
                request_body(self._model, request.content, request.max_tokens, form),
                sent=lambda: self._ledger.send(request.key),
                refused=lambda: self._ledger.refuse(request.key),
            )
            try:
                reply = await self._client.send(http, lambda data: parse_reply(data, request.answer), deadline)
            except RejectedRequest as rejection:
                other = None if form == self._format else self._format
                if not self._format_works:
                    needs_logprobs = self._options.logprobs == "on"
                    other = fallback_format(form, str(rejection), needs_logprobs=needs_logprobs)
                if other is None or rejection.status not in (400, 422):
                    raise
                form = other
            else:
                self._format, self._format_works = form, True
                return reply


def _cost(usage: Usage, options: OpenAIOptions) -> float | None:
    """Return the cost of a reply, None if its price or its tokens are unknown."""
    prices = (options.input_price, options.output_price)
    if prices == (0, 0):
        return 0.0
    if min(prices) < 0 or usage[0] is None or usage[1] is None:
        return None
    return (usage[0] * prices[0] + usage[1] * prices[1]) / 1e6


def _completion(reply: ChatReply | Failure, usage: ScoreInfo) -> Completion | Failure:
    if isinstance(reply, Failure):
        return replace(reply, info=usage)
    if reply.text is None:
        return Failure(f"missing answer: the server sent no text (it ended with {reply.finish!r})", info=usage)
    return Completion(reply.text, reply.finish, reply.digit, usage)


def _first_token_logprob(reply: ChatReply | Failure, token: str) -> float | Failure:
    if isinstance(reply, Failure):
        return reply
    if reply.first is None:
        return Failure("the server gives no log-probabilities of tokens, which this model needs")
    found = [logprob for listed, logprob in reply.first.items() if listed.strip() == token]
    if not found:
        return Failure(f"{token!r} is not among the {len(reply.first)} likeliest tokens that the server lists")
    return float(np.logaddexp.reduce(found))
