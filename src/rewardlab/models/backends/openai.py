"""`openai:MODEL@URL`: options, entry, many prompts at once, none paid for twice."""

import asyncio
import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec

import numpy as np

from rewardlab.core.errors import ModelError, PlanError, StopRun
from rewardlab.core.limits import ANSWER_CHARACTERS
from rewardlab.core.seeding import digest
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
from rewardlab.models.backends.http_client import HttpClient, RejectedRequest, Request, RetryPolicy, run_async
from rewardlab.models.contract import Budget
from rewardlab.models.ledger import Ledger
from rewardlab.models.model_string import one_of, option, read_url
from rewardlab.models.vlm import AnswerFormat, Completion, Prompt, VisionLanguageModel, VlmBackend, choice_probs


@dataclass(frozen=True)
class OpenAIOptions:
    """Options of `openai:`; the key is never among them, only the name of the environment variable that holds it."""

    send: str = option("images", "images: each frame as a JPEG; video: one mp4")
    logprobs: str = option("auto", "ask for log-probabilities: auto (where the server gives them), on or off")
    concurrency: int = option(32, "requests under way at once", speed=True)
    retries: int = option(6, "attempts beyond the first", speed=True)
    timeout: float = option(60.0, "seconds for one attempt", speed=True)
    patience: float = option(110.0, "seconds for one batch with all attempts; keep it below --timeout", speed=True)
    input_price: float = option(-1.0, "price of a million tokens read; below 0 where it is not known", speed=True)
    output_price: float = option(-1.0, "price of a million tokens written; below 0 where it is not known", speed=True)
    key_env: str = option("OPENAI_API_KEY", "environment variable that holds the key; it may be unset", speed=True)

    def __post_init__(self) -> None:
        one_of("send", self.send, ("images", "video"))
        one_of("logprobs", self.logprobs, ("auto", "on", "off"))
        if not re.fullmatch(r"[A-Za-z_]\w*", self.key_env):  # not shown: it may be the key itself
            raise PlanError("option key_env must be the name of an environment variable, such as OPENAI_API_KEY")
        if self.concurrency < 1 or self.timeout <= 0 or self.patience <= 0 or self.retries < 0:
            raise PlanError("concurrency must be at least 1, timeout and patience above 0, retries not negative")


@dataclass(frozen=True)
class OpenAISpec:
    """Which model of which server to ask, and how; `url` is the full address of its chat completions."""

    model: str
    url: str
    options: OpenAIOptions


def parse_endpoint(argument: str, options: OpenAIOptions) -> OpenAISpec:
    """Return what `MODEL@URL` means; the server is not asked."""
    model, _, url = re.sub(r"@(?=https?://)", "\n", argument, count=1).partition("\n")
    parts = read_url(url if model else "", "openai:MODEL@URL such as openai:judge@http://localhost:8000/v1")
    path = parts.path.rstrip("/") or "/v1"
    if not path.endswith("/chat/completions"):
        path += "/chat/completions"
    if find_spec("httpx2") is None:
        raise PlanError("openai: needs the package httpx2; install rewardlab with its extra: rewardlab[api]")
    api_key(options)
    return OpenAISpec(model, parts._replace(path=path, fragment="").geturl(), options)


def api_key(options: OpenAIOptions) -> str:
    """Return the key from the environment, empty where there is none, as for most local servers."""
    key = os.environ.get(options.key_env, "").strip()
    if not all("!" <= letter <= "~" for letter in key):
        raise PlanError(f"the key in {options.key_env} holds a blank or a letter that no key has; set it again")
    return key


def _build(spec: OpenAISpec, budget: Budget) -> VisionLanguageModel:

    if budget.max_cost is not None and min(spec.options.input_price, spec.options.output_price) < 0:
        raise PlanError(
            f"--max-cost needs the prices of {spec.model}: add ?input_price=...&output_price=... per million tokens, "
            "0 where it costs nothing"
        )
    return OpenAIEndpoint(spec, budget)


OPENAI = VlmBackend(
    "a vision-language model behind an OpenAI-compatible endpoint; openai:MODEL@URL, the key in OPENAI_API_KEY",
    parse=parse_endpoint,
    build=_build,
    identify=lambda spec: spec.url,  # the server does not say what weights it holds
    options=OpenAIOptions(),
    server=True,
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
    """One model of one server; it lives as long as the run, with its connections and its ledger."""

    def __init__(self, spec: OpenAISpec, budget: Budget) -> None:
        self._spec = spec
        self._options = spec.options
        self._ledger = Ledger(budget, f"{spec.model}@{spec.url}")
        policy = RetryPolicy(spec.options.concurrency, spec.options.retries, spec.options.timeout)
        hint = f"check the model's name, the address, and the key in {spec.options.key_env}"
        self._client = HttpClient(policy, api_key(spec.options), hint)
        self._format = RequestFormat(0 if spec.options.logprobs == "off" else MAX_TOP_LOGPROBS)
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
        return run_async(self._chat_all(prompts, max_tokens, answer))

    async def _chat_all(
        self, prompts: Sequence[Prompt], max_tokens: int, answer: AnswerFormat | None
    ) -> list[_PaidReply]:
        """Ask everything at once, within the limits; on a stop, what is under way is still waited for and kept."""
        replies: dict[int, _PaidReply] = {}
        stops: list[StopRun] = []
        slots = asyncio.Semaphore(self._options.concurrency)
        by_key: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # the same prompt waits for its reply
        deadline = time.monotonic() + self._options.patience

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
        key = digest(self._spec.url, self._spec.model, max_tokens, self._options.logprobs, content)
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
        form = self._format
        while True:
            http = Request(
                self._spec.url,
                request.key,
                request_body(self._spec.model, request.content, request.max_tokens, form),
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

    def _other_format(self, form: RequestFormat, rejection: RejectedRequest) -> RequestFormat | None:
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
