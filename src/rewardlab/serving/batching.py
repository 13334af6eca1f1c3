"""The model that is served; clips of different requests scored together, bounded wait and queue.

A lone request is not delayed for batching: the last batch was one request, and the model was idle when this one came.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

from rewardlab.core.episode import Episode
from rewardlab.core.errors import RewardlabError
from rewardlab.core.trial import Answer, Failure
from rewardlab.models import name_model
from rewardlab.models.composite import build_model, validated_answers
from rewardlab.models.contract import Budget, RewardModel
from rewardlab.serving.listening import RequestRejected


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model ready to score, its name and what identifies its weights."""

    name: str
    fingerprint: str
    model: RewardModel
    caveat: str


def load_served_model(name: str) -> ServedModel:
    """Load the model that a string names; PlanError for one that needs labels."""
    named = name_model(name)
    named.refuse_truth("a robot")
    return ServedModel(named.name, named.fingerprint, build_model(named, Budget()), named.caveat)


_SMOOTHING = 0.2  # weight of the last batch in the running mean of seconds per clip
_MOST_RETRY_SECONDS = 60  # the longest Retry-After


@dataclass(frozen=True)
class BatchingSettings:
    """How many clips are scored together, how long one waits for others, and how many may be pending at once."""

    max_batch: int
    max_wait: float  # seconds
    capacity: int


@dataclass(frozen=True)
class ScoredBatch:
    """The answers to a batch, and the seconds that the model took."""

    seconds: float
    answers: Sequence[Answer]


@dataclass(frozen=True, eq=False)
class _Waiting:
    episodes: Sequence[Episode]
    arrived: float
    answered: "asyncio.Future[tuple[list[Answer], ServedModel]]"


@dataclass(eq=False)
class Batcher:
    """Holds the model; one thread scores all clips, so that models need not be thread-safe."""

    served: ServedModel
    settings: BatchingSettings
    observe: Callable[[ScoredBatch], None]
    pending: int = 0  # clips that wait or are scored
    _queue: "asyncio.Queue[_Waiting]" = field(default_factory=asyncio.Queue)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "rewardlab model"))
    _seconds_per_clip: float = 0.05
    _shared: bool = False  # the last batch was of several requests
    _idle_since: float = -math.inf

    async def score(self, episodes: Sequence[Episode]) -> tuple[list[Answer], ServedModel]:
        """Return one answer per episode, all of one model, and that model; reject with 503 if too many are pending."""
        self.require_size(len(episodes))
        self.require_room(len(episodes))
        waiting = _Waiting(episodes, time.monotonic(), asyncio.get_running_loop().create_future())
        self.pending += len(episodes)
        self._queue.put_nowait(waiting)
        return await waiting.answered

    def require_size(self, clips: int) -> None:
        """Reject with 413 if one request has so many clips that they never fit."""
        if clips > self.settings.capacity:
            raise RequestRejected(413, f"{clips} clips in one request; at most {self.settings.capacity} are accepted")

    def require_room(self, clips: int) -> None:
        """Reject with 503 and Retry-After if so many more clips are too many."""
        if self.pending + clips > self.settings.capacity:
            seconds = math.ceil(self.pending * self._seconds_per_clip)
            reason = f"this server is full: at most {self.settings.capacity} clips at a time; try again later"
            raise RequestRejected(503, reason, max(1, min(_MOST_RETRY_SECONDS, seconds)))

    async def run(self) -> None:
        """Score batch after batch until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            batch = await self._next_batch()
            served, episodes = self.served, [episode for each in batch for episode in each.episodes]
            scored = await loop.run_in_executor(self._thread, _score, served, episodes)
            self.pending -= len(episodes)
            self._shared, self._idle_since = len(batch) > 1, time.monotonic()
            self._seconds_per_clip += _SMOOTHING * (scored.seconds / len(episodes) - self._seconds_per_clip)
            answers = iter(scored.answers)
            for waiting in batch:
                own = list(islice(answers, len(waiting.episodes)))
                if not waiting.answered.done():  # a client that is gone has cancelled its request
                    waiting.answered.set_result((own, served))
            self.observe(scored)

    async def reload(self, load: Callable[[], ServedModel]) -> None:
        """Replace the model between two batches; if the new one cannot be loaded, the old one stays."""
        self.served = await asyncio.get_running_loop().run_in_executor(None, load)

    def close(self) -> None:
        """End the model's thread."""
        self._thread.shutdown(wait=False)

    async def _next_batch(self) -> list[_Waiting]:
        """Return the requests to score together; the one that fills a batch is the last of it."""
        first = await self._queue.get()
        batch, size = [first], len(first.episodes)
        others = self._shared or first.arrived < self._idle_since
        deadline = first.arrived + (self.settings.max_wait if others else 0.0)
        while size < self.settings.max_batch:
            try:
                if self._queue.empty():
                    async with asyncio.timeout(deadline - time.monotonic()):
                        batch.append(await self._queue.get())
                else:
                    batch.append(self._queue.get_nowait())
            except TimeoutError:
                break
            size += len(batch[-1].episodes)
        return batch


def _score(served: ServedModel, episodes: Sequence[Episode]) -> ScoredBatch:
    started = time.perf_counter()
    try:
        answers = validated_answers(served.model, episodes)
    except RewardlabError as error:  # such as StopRun: there is no run to stop here
        answers = [Failure(str(error))] * len(episodes)
    return ScoredBatch(time.perf_counter() - started, answers)
