"""A vision-language model behind an OpenAI-compatible endpoint, asked many turns at once and never twice the same."""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from rewardlab.core.errors import ModelError, StopRun
from rewardlab.core.seeding import digest
from rewardlab.core.trial import Failure
from rewardlab.models.backends.chat_completions import (
    MOST_TOP,
    Dialect,
    Said,
    Usage,
    adapted,
    read_said,
    request_body,
    turn_content,
)
from rewardlab.models.backends.http_client import Line, Manners, Rejected, Request, wait_for
from rewardlab.models.backends.ledger import Ledger
from rewardlab.models.backends.openai import ApiSettings, api_key
from rewardlab.models.contract import Budget
from rewardlab.models.vlm import Reply, Turn


@dataclass(frozen=True, eq=False)
class _Question:
    """A turn as it will be sent, and the key under which its reply is kept."""

    key: str
    content: str
    most_tokens: int


class Endpoint:
    """One model of one server; it lives as long as the run, with its connections and its ledger."""

    def __init__(self, model: str, url: str, settings: ApiSettings, budget: Budget) -> None:
        self._model = model
        self._url = url
        self._settings = settings
        self._ledger = Ledger(budget, f"{model}@{url}")
        manners = Manners(settings.concurrency, settings.retries, settings.timeout)
        hint = f"check the model's name, the address, and the key in {settings.key_env}"
        self._line = Line(manners, api_key(settings), hint)
        self._dialect = Dialect(0 if settings.logprobs == "off" else MOST_TOP)
        self._proven = False  # whether the server has answered in this dialect

    def reply(self, turns: Sequence[Turn], most_tokens: int) -> list[Reply | Failure]:
        """Return what the model writes after each turn."""
        return [_as_reply(said) for said in self.say(turns, most_tokens)]

    def likelihood(self, turns: Sequence[Turn], continuation: str) -> list[float | Failure]:
        """Return, per turn, the log-probability that the answer begins with the continuation, a single token.

        A server tells only the likeliest tokens; where the continuation is not among them there is a Failure.
        """
        return [_first_is(said, continuation.strip()) for said in self.say(turns, 1)]

    def say(self, turns: Sequence[Turn], most_tokens: int) -> list[Said | Failure]:
        """Return the answer to each turn; one that was paid for before comes from the ledger."""
        return wait_for(self._all(turns, most_tokens))

    async def _all(self, turns: Sequence[Turn], most_tokens: int) -> list[Said | Failure]:
        """Ask everything at once, within the limits; on a stop, what is under way is still waited for and kept."""
        answers: dict[int, Said | Failure] = {}
        stops: list[StopRun] = []
        gate = asyncio.Semaphore(self._settings.concurrency)
        alike: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # the same question waits for its reply
        deadline = time.monotonic() + self._settings.patience

        async def one(place: int) -> None:
            try:
                question = await asyncio.to_thread(self._question, turns[place], most_tokens)
                async with gate, alike[question.key]:
                    if not stops:
                        answers[place] = await self._answer(question, deadline)
            except StopRun as stop:
                stops.append(stop)
            except Exception as error:  # whatever befalls one turn, the others are waited for, and paid for once
                answers[place] = Failure(self._line.hide(f"{type(error).__name__}: {error}"))

        first = 0
        while first < len(turns) and self._ledger.price_unknown and not stops:
            await one(first)  # alone, until it is known what a request costs
            first += 1
        await asyncio.gather(*map(one, range(first, len(turns))))
        if stops:
            raise stops[0]
        return [answers[place] for place in range(len(turns))]

    def _question(self, turn: Turn, most_tokens: int) -> _Question:
        content = turn_content(turn, as_video=self._settings.send == "video")
        key = digest(self._url, self._model, most_tokens, self._settings.logprobs, content)
        return _Question(key, content, most_tokens)

    async def _answer(self, question: _Question, deadline: float) -> Said | Failure:
        kept = self._ledger.find(question.key)
        if kept is not None:
            return Said(**kept)
        try:
            said, usage = await self._ask(question, deadline)
        except ModelError as error:
            return Failure(str(error))
        said = Said(**json.loads(self._line.hide(json.dumps(asdict(said), ensure_ascii=False))))
        await self._ledger.keep(question.key, usage, _cost(usage, self._settings), asdict(said))
        return said

    async def _ask(self, question: _Question, deadline: float) -> tuple[Said, Usage]:
        """Ask in the dialect known so far; where it is rejected, try the others and remember the one that works."""
        dialect = self._dialect
        while True:
            body = request_body(self._model, question.content, question.most_tokens, dialect)
            request = Request(
                self._url,
                question.key,
                body,
                sent=lambda: self._ledger.send(question.key),
                refused=lambda: self._ledger.refuse(question.key),
            )
            try:
                answer = await self._line.ask(request, read_said, deadline)
            except Rejected as rejection:
                other = self._other_dialect(dialect, rejection)
                if other is None:
                    raise
                dialect = other
            else:
                self._dialect, self._proven = dialect, True
                return answer

    def _other_dialect(self, dialect: Dialect, rejection: Rejected) -> Dialect | None:
        if rejection.status not in (400, 422):
            return None
        if self._proven:
            return None if dialect == self._dialect else self._dialect
        return adapted(dialect, str(rejection), needs_top=self._settings.logprobs == "on")


def _cost(usage: Usage, settings: ApiSettings) -> float | None:
    """Return what a reply cost, None where its price or its tokens are unknown."""
    prices = (settings.input_price, settings.output_price)
    if prices == (0, 0):
        return 0.0
    if min(prices) < 0 or usage[0] is None or usage[1] is None:
        return None
    return (usage[0] * prices[0] + usage[1] * prices[1]) / 1e6


def _as_reply(said: Said | Failure) -> Reply | Failure:
    if isinstance(said, Failure):
        return said
    return missing(said) if said.text is None else Reply(said.text, said.first)


def missing(said: Said) -> Failure:
    """Return the Failure of an answer without text."""
    return Failure(f"missing answer: the server sent no text (it ended with {said.finish!r})")


def _first_is(said: Said | Failure, token: str) -> float | Failure:
    if isinstance(said, Failure):
        return said
    if said.first is None:
        return Failure("the server gives no log-probabilities of tokens, which this model needs")
    found = [logprob for listed, logprob in said.first.items() if listed.strip() == token]
    if not found:
        return Failure(f"{token!r} is not among the {len(said.first)} likeliest tokens that the server lists")
    return float(np.logaddexp.reduce(found))
