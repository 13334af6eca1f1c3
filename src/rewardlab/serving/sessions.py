"""Live sessions: a clip that grows while the robot moves, and can be scored at any time.

The server keeps the frames of a session. `pocket` caches encoded frames, so scoring again costs only the new frames,
and the answer is the same as for the whole clip.
"""

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rewardlab.core.episode import Episode, Frames, GrowingClip
from rewardlab.core.errors import DataError
from rewardlab.core.limits import CLIP_FRAMES, CLIP_MB
from rewardlab.serving.listening import RequestRejected
from rewardlab.serving.memory import MemoryBudget, MemoryShare

IDLE_SECONDS = 600.0  # a session idle for longer may be closed for others
_FRAME_BYTES = 400  # that Python takes for a frame beside its pixels


@dataclass(eq=False)
class Session:
    """One growing clip; `curve` holds the answers so far, each with its number of frames."""

    id: str
    instruction: str
    fps: float
    touched: float
    score_every: int | None = None  # an append that brings so many new frames is scored
    scored: int = 0  # frames at the last score
    curve: list[dict[str, Any]] = field(default_factory=list)
    nbytes: int = 0  # of its frames
    _clip: GrowingClip = field(init=False)

    def __post_init__(self) -> None:
        self._clip = GrowingClip(self.fps)

    @property
    def count(self) -> int:
        """Return how many frames it has."""
        return self._clip.count

    @property
    def last_frame(self) -> Frames | None:
        """Return the frame that came last."""
        return self._clip.last

    def is_score_due(self, frames: int) -> bool:
        """Return whether an append of so many frames is to be answered with the score."""
        return self.score_every is not None and self.count + frames - self.scored >= self.score_every

    def instruct(self, instruction: str) -> None:
        """Ask for something else from now on; the clip stays, and the next append is to be scored."""
        self.instruction, self.scored = instruction, 0

    def append(self, frames: Frames) -> None:
        """Take more frames, of the size of the first."""
        count, size = self.count + len(frames), self.nbytes + frames.nbytes
        if count > CLIP_FRAMES.value:
            raise DataError(f"{count:,} frames are more than a session may hold, {CLIP_FRAMES.describe()}")
        if size > CLIP_MB.in_bytes:
            raise DataError(f"{size / 1e6:,.0f} MB are more than a session may hold: {CLIP_MB.describe(' MB')}")
        for frame in frames:
            self._clip.append(frame)
        self.nbytes = size

    def episode(self) -> Episode:
        """Return the clip so far; later frames do not change it."""
        if not self.count:
            raise RequestRejected(409, "this session has no frames yet; append some first")
        return Episode("", self.instruction, self._clip.clip())


@dataclass(eq=False)
class SessionStore:
    """The sessions of a server, bounded in number and in memory."""

    most: int
    memory: MemoryBudget
    _sessions: dict[str, Session] = field(default_factory=dict)
    _shares: dict[str, MemoryShare] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def open(self, instruction: str, fps: float, score_every: int | None = None) -> Session:
        """Return a new session; at the limit, idle sessions are closed for it, else 503."""
        if len(self) >= self.most:
            self.close_idle()
        if len(self) >= self.most:
            raise RequestRejected(503, f"{self.most} sessions are open already; close one or try again later", 10)
        session = Session(secrets.token_urlsafe(12), instruction, fps, time.monotonic(), score_every)
        self._sessions[session.id], self._shares[session.id] = session, MemoryShare(self.memory)
        return session

    def find(self, name: str) -> Session:
        """Return a session by its id, and reset its idle time."""
        session = self._sessions.get(name)
        if session is None:
            raise RequestRejected(404, "there is no session of that id; open one with POST /v1/sessions")
        session.touched = time.monotonic()
        return session

    def append(self, session: Session, frames: Frames) -> None:
        """Append frames to a session, as long as they fit into the memory of the server."""
        self.find(session.id)  # it may have been closed while the frames were decoded
        share, size = self._shares[session.id], frames.nbytes + _FRAME_BYTES * len(frames)
        share.take(size)
        try:
            session.append(frames)
        except DataError:
            share.give_back(size)
            raise

    def close(self, name: str) -> None:
        """Forget a session and its frames."""
        if self._sessions.pop(name, None) is not None:
            self._shares.pop(name).give_back()

    def close_idle(self) -> None:
        """Close the sessions that have been idle for long."""
        for session in self:
            if time.monotonic() - session.touched > IDLE_SECONDS:
                self.close(session.id)
