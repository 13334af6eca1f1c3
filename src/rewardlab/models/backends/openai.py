"""`openai:MODEL@URL`: options, entry, many prompts at once, none paid for twice."""

import asyncio
import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from rewardlab.core.errors import ModelError, PlanError, StopRun, require_packages
from rewardlab.core.limits import ANSWER_CHARACTERS
from rewardlab.core.seeding import digest
from rewardlab.core.settings import Help
from rewardlab.core.trial import Failure, ScoreInfo
from rewardlab.models.backends.chat_completions import (
    MAX_TOP_LOGPROBS,
    TOO_LONG,
    ChatReply,
    RequestFormat,
    Usage,
    fallback_format,
    known_reply,
    message_content,
    parse_reply,
    request_body,
)
from rewardlab.models.contract import Budget
from rewardlab.models.external import SPEED, all_settings, identity, read_arguments, shown_options
from rewardlab.models.ledger import Ledger
from rewardlab.models.model_string import Pairs, read_url
from rewardlab.models.vlm import (
    AnswerFormat,
    Completion,
    NamedVlm,
    Prompt,
    VisionLanguageModel,
    VlmBackend,
    choice_probs,
)

if TYPE_CHECKING:
    from rewardlab.models.backends.http_client import RejectedRequest


@dataclass(frozen=True)
class OpenAIOptions:
    """Options of `openai:`; the key is never among them, only the name of the environment variable that holds it."""

    send: Annotated[Literal["images", "video"], Help("images: each frame as a JPEG; video: one mp4")] = "images"
    logprobs: Annotated[
        Literal["auto", "on", "off"], Help("ask for log-probabilities: auto (where the server gives them), on or off")
    ] = "auto"
    concurrency: Annotated[int, Help("requests under way at once"), SPEED] = 32
    retries: Annotated[int, Help("attempts beyond the first"), SPEED] = 6
    timeout: Annotated[float, Help("seconds for one attempt"), SPEED] = 60.0
    deadline: Annotated[float, Help("seconds for one batch with all attempts; keep it below --timeout"), SPEED] = 110.0
    input_price: Annotated[float, Help("price of a million tokens read; below 0 where it is not known"), SPEED] = -1.0
    output_price: Annotated[
        float, Help("price of a million tokens written; below 0 where it is not known"), SPEED
    ] = -1.0
    key_env: Annotated[str, Help("environment variable that holds the key; it may be unset"), SPEED] = "OPENAI_API_KEY"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z_]\w*", self.key_env):  # not shown: it may be the key itself
            raise PlanError("option key_env must be the name of an environment variable, such as OPENAI_API_KEY")
        if self.concurrency < 1 or self.timeout <= 0 or self.deadline <= 0 or self.retries < 0:
            raise PlanError("concurrency must be at least 1, timeout and deadline above 0, retries not negative")

    def api_key(self) -> str:
        """Return the key from the environment, empty where there is none, as for most local servers."""
        key = os.environ.get(self.key_env, "").strip()
        if not all("!" <= letter <= "~" for letter in key):
            raise PlanError(f"the key in {self.key_env} holds a blank or a letter that no key has; set it again")
        return key


def name_openai(argument: str, pairs: Pairs, also: Collection[str] = ()) -> NamedVlm:
    """Return what `MODEL@URL` means; the server is not asked, and does not say what weights it holds."""
    given: dict[str, Any] = read_arguments("openai", OpenAIOptions, pairs, also)
    options = OpenAIOptions(**given)
    model, _, url = re.sub(r"@(?=https?://)", "\n", argument, count=1).partition("\n")
    parts = read_url(url if model else "", "openai:MODEL@URL such as openai:judge@http://localhost:8000/v1")
    path = parts.path.rstrip("/") or "/v1"
    if not path.endswith("/chat/completions"):
        path += "/chat/completions"
    require_packages("openai:", "httpx2", extra="api")
    options.api_key()
    address = parts._replace(path=path, fragment="").geturl()
    return NamedVlm(
        identity("openai", all_settings(OpenAIOptions, given), model, address),
        partial(_build, model, address, options),
        shown_options(OpenAIOptions, given),
        server=True,
    )


def _build(model: str, url: str, options: OpenAIOptions, budget: Budget) -> VisionLanguageModel:
    if budget.max_cost is not None and min(options.input_price, options.output_price) < 0:
        raise PlanError(
            f"--max-cost needs the prices of {model}: add ?input_price=...&output_price=... per million tokens, "
            "0 where it costs nothing"
        )
    return OpenAIEndpoint(model, url, options, budget)


OPENAI = VlmBackend(
    "a vision-language model behind an OpenAI-compatible endpoint; openai:MODEL@URL, the key in OPENAI_API_KEY",
    name_openai,
    (OpenAIOptions,),
)


# A vision-language model behind an OpenAI-compatible endpoint, asked many prompts at once and never twice the same.

_ANSWER_TOKENS = 128  # a server cannot be given the opening of the reply, so it writes up to the choice


_PaidReply = tuple[ChatReply | Failure, ScoreInfo]  # the info says how many tokens it took and what it cost


@dataclass(frozen=True, eq=False)
class _ChatRequest:
    """A prompt as it will be sent, and the key under which its reply is kept in the ledger."""

    key: str
    content: str
    max_tokens: int
    answer: AnswerFormat | None


class OpenAIEndpoint:
    """One model of one server; it lives as long as the run, with its connections and its ledger.

    `url` is the full address of its chat completions.
    """

    def __init__(self, model: str, url: str, options: OpenAIOptions, budget: Budget) -> None:
        from rewardlab.models.backends.http_client import HttpClient, RetryPolicy

        self._model, self._url, self._options = model, url, options
        self._ledger = Ledger(budget, f"{model}@{url}")
        policy = RetryPolicy(options.concurrency, options.retries, options.timeout)
        hint = f"check the model's name, the address, and the key in {options.key_env}"
        self._client = HttpClient(policy, options.api_key(), hint)
        self._format = RequestFormat(0 if options.logprobs == "off" else MAX_TOP_LOGPROBS)
        self._format_works = False  # whether the server has answered a request in this format

    def complete(
        self, prompts: Sequence[Prompt], max_tokens: int, answer: AnswerFormat | None = None
    ) -> list[Completion | Failure]:
        """Return what the model writes after each prompt."""
        return [_completion(reply, usage) for reply, usage in self._chat(prompts, max_tokens, answer)]

    def answer_probs(self, prompts: Sequence[Prompt], answer: AnswerFormat) -> list[tuple[float, ...] | Failure]:
        """Return the probabilities of the choices in the place where the model wrote one.

        A server lists only the likeliest tokens; a choice that is not among them gets 0.
        """
        return [_choice_probs(reply, answer) for reply, _ in self._chat(prompts, _ANSWER_TOKENS, answer)]

    def continuation_logprob(self, prompts: Sequence[Prompt], continuation: str) -> list[float | Failure]:
        """Return, per prompt, the log-probability that the reply begins with the continuation, a single token.

        A server lists only the likeliest tokens; where the continuation is not among them there is a Failure.
        """
        return [_first_token_logprob(reply, continuation.strip()) for reply, _ in self._chat(prompts, 1, None)]

    def _chat(self, prompts: Sequence[Prompt], max_tokens: int, answer: AnswerFormat | None) -> list[_PaidReply]:
        """Return the reply to each prompt and its price; one that was paid for before comes from the ledger."""
        from rewardlab.models.backends.http_client import run_async

        return run_async(self._chat_all(prompts, max_tokens, answer))

    async def _chat_all(
        self, prompts: Sequence[Prompt], max_tokens: int, answer: AnswerFormat | None
    ) -> list[_PaidReply]:
        """Ask everything at once, within the limits; on a stop, what is under way is still waited for and kept."""
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
            except Exception as error:  # whatever befalls one prompt, the others are waited for, and paid for once
                replies[index] = Failure(self._client.excerpt(f"{type(error).__name__}: {error}")), ScoreInfo()

        first = 0
        while first < len(prompts) and self._ledger.price_unknown and not stops:
            await ask(first)  # alone, until it is known what a request costs
            first += 1
        await asyncio.gather(*map(ask, range(first, len(prompts))))
        if stops:
            raise stops[0]
        return [replies[index] for index in range(len(prompts))]

    def _request(self, prompt: Prompt, max_tokens: int, answer: AnswerFormat | None) -> _ChatRequest:
        content = message_content(prompt, as_video=self._options.send == "video")
        key = digest(self._url, self._model, max_tokens, self._options.logprobs, content)
        return _ChatRequest(key, content, max_tokens, answer)

    async def _reply(self, request: _ChatRequest, deadline: float) -> ChatReply | Failure:
        reply = known_reply(self._ledger.find(request.key))
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
        """Send in the format known so far; where it is rejected, try the others and remember the one that works."""
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
                other = self._other_format(form, rejection)
                if other is None:
                    raise
                form = other
            else:
                self._format, self._format_works = form, True
                return reply

    def _other_format(self, form: RequestFormat, rejection: "RejectedRequest") -> RequestFormat | None:
        if rejection.status not in (400, 422):
            return None
        if self._format_works:
            return None if form == self._format else self._format
        return fallback_format(form, str(rejection), needs_logprobs=self._options.logprobs == "on")


def _cost(usage: Usage, options: OpenAIOptions) -> float | None:
    """Return what a reply cost, None where its price or its tokens are unknown."""
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


def _choice_probs(reply: ChatReply | Failure, answer: AnswerFormat) -> tuple[float, ...] | Failure:
    if isinstance(reply, Failure):
        return reply
    probs = choice_probs(reply.digit or {}, answer.choices)
    return probs or Failure(f"the server gives no log-probabilities after {answer.opening.strip()!r}", reply.text)


def _first_token_logprob(reply: ChatReply | Failure, token: str) -> float | Failure:
    if isinstance(reply, Failure):
        return reply
    if reply.first is None:
        return Failure("the server gives no log-probabilities of tokens, which this model needs")
    found = [logprob for listed, logprob in reply.first.items() if listed.strip() == token]
    if not found:
        return Failure(f"{token!r} is not among the {len(reply.first)} likeliest tokens that the server lists")
    return float(np.logaddexp.reduce(found))
