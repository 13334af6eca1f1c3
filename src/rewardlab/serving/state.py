"""What lives between requests: decoder threads, sessions, counters, answers as JSON."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from fastapi import Depends
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import HTTPConnection

from rewardlab.core.episode import Episode
from rewardlab.core.records import parse_json, parsed_bytes
from rewardlab.core.trial import Answer, Failure, familiarity_sentence, info_to_json
from rewardlab.serving.batching import Batcher, ScoredBatch, ServedModel
from rewardlab.serving.listening import RequestRejected
from rewardlab.serving.memory import MemoryBudget, MemoryShare
from rewardlab.serving.sessions import Session, SessionStore
from rewardlab.serving.uploads import ClipDecoder, is_array_file


def answer_json(answer: Answer, served: ServedModel) -> dict[str, Any]:
    """Return one answer; a failure has a reason and no level."""
    if isinstance(answer, Failure):
        result: dict[str, Any] = {"failure": answer.reason}
    else:  # not by `asdict`, which copies every number of the progress by itself
        result = {"level": answer.level, "probabilities": answer.probabilities, "progress": answer.progress}
    return {
        **result,
        "raw": answer.raw,
        "familiarity": familiarity_sentence(answer.info) or None,
        "info": info_to_json(answer.info),
        "model": served.name,
        "fingerprint": served.fingerprint,
    }


_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(eq=False)
class ServerMetrics:
    """Requests, batches and answers, counted for Prometheus in a registry of their own."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        registry = self.registry
        labels = ("route", "status")
        self.requests = Counter("rewardlab_requests", "requests by route and status", labels, registry=registry)
        self.latency = Histogram(
            "rewardlab_request_seconds", "seconds from a request to its answer", buckets=_SECONDS, registry=registry
        )
        self.batches = Histogram(
            "rewardlab_batch_clips", "clips that were scored together", buckets=_SIZES, registry=registry
        )
        self.model_seconds = Counter("rewardlab_model_seconds", "seconds that the model took", registry=registry)
        self.answers = Counter("rewardlab_answers", "answers by outcome", ("outcome",), registry=registry)

    def gauge(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Add a number that is read at every scrape."""
        Gauge(name, meaning, registry=self.registry).set_function(read)

    def observe_batch(self, batch: ScoredBatch) -> None:
        """Count a batch and its answers."""
        self.batches.observe(len(batch.answers))
        self.model_seconds.inc(batch.seconds)
        for answer in batch.answers:
            self.answers.labels("failed" if isinstance(answer, Failure) else "scored").inc()

    def observe_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request by its route; paths would give a label each."""
        self.requests.labels(route, str(status)).inc()
        self.latency.observe(seconds)

    def text(self) -> bytes:
        """Return everything in the format of Prometheus."""
        return generate_latest(self.registry)


Result = TypeVar("Result")

_DECODERS = 2  # threads that decode clips, beside the one of the model
_SHORT_TEXT = 1 << 16  # characters that are parsed faster than a thread starts
_MOST_POINTS = 2_000  # of the curve of a session that are kept


@dataclass(eq=False)
class RewardServer:
    """The state of a server."""

    batcher: Batcher
    sessions: SessionStore
    decoder: ClipDecoder
    metrics: ServerMetrics
    memory: MemoryBudget
    decoding: int = 0  # clips that are decoded now or wait for it
    _decoders: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_DECODERS, "rewardlab decoder"))

    async def decode(self, work: Callable[[], Result]) -> Result:
        """Decode a clip in a thread; reject with 503 if there is no room to score it."""
        self.batcher.require_room(self.decoding + 1)
        self.decoding += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._decoders, work)
        finally:
            self.decoding -= 1

    async def parse(self, text: str | bytes, memory: MemoryShare) -> Any:
        """Return what JSON of a request holds, parsed in a thread if it is long; reject with 400 what is no JSON."""

        def work() -> Any:
            memory.take(parsed_bytes(text))
            return parse_json(text)

        try:
            if len(text) < _SHORT_TEXT:
                return work()
            return await asyncio.get_running_loop().run_in_executor(self._decoders, work)
        except ValueError as error:
            raise RequestRejected(400, f"the JSON cannot be read: {error}") from error

    async def decode_sent(self, data: bytes | memoryview, work: Callable[[], Result]) -> Result:
        """Decode a clip that came with a request; an array is decoded at once, for that is faster than a thread."""
        if not is_array_file(data):
            return await self.decode(work)
        self.batcher.require_room(self.decoding + 1)
        return work()

    async def answers(self, episodes: Sequence[Episode]) -> list[dict[str, Any]]:
        """Return the answer to each episode as JSON."""
        answers, served = await self.batcher.score(episodes)
        return [answer_json(answer, served) for answer in answers]

    async def score_session(self, session: Session) -> dict[str, Any]:
        """Score the clip of a session so far, and add the answer to the session's curve."""
        episode = session.episode()
        self.batcher.require_room(1)  # a rejected request leaves the session as it was
        session.scored = session.count
        (answer,) = await self.answers([episode])
        frames, progress = len(episode.clip), answer.get("progress")
        point = {"frames": frames, "progress": progress[-1] if progress else None}
        session.curve.append(
            point | {key: answer.get(key) for key in ("level", "probabilities", "failure", "familiarity", "info")}
        )
        del session.curve[:-_MOST_POINTS]
        return {**answer, "session": session.id, "frames": frames}


async def server_of(connection: HTTPConnection) -> RewardServer:
    """Return the state of the server of a request; async, for FastAPI runs plain functions in a thread each time."""
    found: RewardServer = connection.app.state.server
    return found


async def memory_of(connection: HTTPConnection) -> MemoryShare:
    """Return the share of the memory that a request or a connection has."""
    found: MemoryShare = connection.scope["memory"]
    return found


Server = Annotated[RewardServer, Depends(server_of)]
Memory = Annotated[MemoryShare, Depends(memory_of)]
