"""What lives between requests: the batcher with its model, the sessions, the decoder and what is counted."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from fastapi import Depends
from starlette.requests import HTTPConnection

from rewardlab.core.episode import Episode
from rewardlab.serving.answer_json import answer_json
from rewardlab.serving.clip_decoding import ClipDecoder, is_array_file
from rewardlab.serving.dynamic_batching import Batcher
from rewardlab.serving.live_sessions import Session, SessionStore
from rewardlab.serving.server_metrics import ServerMetrics

Result = TypeVar("Result")

_DECODERS = 2  # threads that decode clips, beside the one of the model
_MOST_POINTS = 2_000  # of the curve of a session that are kept


@dataclass(eq=False)
class RewardServer:
    """The state of a server."""

    batcher: Batcher
    sessions: SessionStore
    decoder: ClipDecoder
    metrics: ServerMetrics
    decoding: int = 0  # clips that are decoded now or wait for it
    _decoders: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_DECODERS, "rewardlab decoder"))

    async def decode(self, work: Callable[[], Result], clips: int = 1) -> Result:
        """Run the work of decoding clips in a thread; refuse with 503 where there is no room to score them."""
        self.batcher.require_room(self.decoding + clips)
        self.decoding += clips
        try:
            return await asyncio.get_running_loop().run_in_executor(self._decoders, work)
        finally:
            self.decoding -= clips

    async def decode_sent(self, data: bytes | memoryview, work: Callable[[], Result]) -> Result:
        """Decode what came with a request; for an array that takes less time than to hand it to a thread."""
        if not is_array_file(data):
            return await self.decode(work)
        self.batcher.require_room(self.decoding + 1)
        return work()

    async def answers(self, episodes: Sequence[Episode]) -> list[dict[str, Any]]:
        """Return the answer to each episode as JSON."""
        answers, served = await self.batcher.ask(episodes)
        return [answer_json(answer, served) for answer in answers]

    async def ask_session(self, session: Session) -> dict[str, Any]:
        """Return the answer to the clip of a session so far, and note it on the session's curve."""
        episode = session.episode()
        self.batcher.require_room(1)  # a question that is refused was not asked
        session.asked = session.count
        (answer,) = await self.answers([episode])
        frames = len(episode.clip)
        progress = answer.get("progress")
        point = {"frames": frames, "progress": progress[-1] if progress else None}
        session.curve.append(point | {key: answer.get(key) for key in ("level", "failure", "trust")})
        del session.curve[:-_MOST_POINTS]
        return {**answer, "session": session.id, "frames": frames}


async def server_of(connection: HTTPConnection) -> RewardServer:
    """Return the state of the server that a request came to; a plain function would be run in a thread each time."""
    found: RewardServer = connection.app.state.server
    return found


Server = Annotated[RewardServer, Depends(server_of)]
