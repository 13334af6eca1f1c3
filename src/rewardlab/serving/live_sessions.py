"""Live sessions: a clip that grows while the robot moves, and can be asked about at any time.

The frames of a session stay here. `pocket` recognises frames that it has encoded before, so a question costs only the
frames that are new to it, and the answer is the one that the whole clip would get.
"""

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rewardlab.core.episode import Episode, Frames, in_memory, read_only, whole_clip
from rewardlab.core.errors import DataError
from rewardlab.core.limits import CLIP_FRAMES, CLIP_MB, SERVER_MB
from rewardlab.http_server.refused_request import RefusedRequest

IDLE_SECONDS = 600.0  # a session that nobody touched for so long may be closed for a new one


@dataclass(eq=False)
class Session:
    """One clip under way; `curve` is what was answered so far: after how many frames, and what."""

    id: str
    instruction: str
    fps: float
    touched: float
    curve: list[dict[str, Any]] = field(default_factory=list)
    _buffer: Frames = field(default_factory=lambda: np.empty((0, 0, 0, 3), np.uint8))
    count: int = 0

    @property
    def nbytes(self) -> int:
        """Return the memory that its frames take."""
        return self._buffer.nbytes

    @property
    def last_frame(self) -> Frames | None:
        """Return the frame that came last."""
        return self._buffer[self.count - 1] if self.count else None

    def grown_bytes(self, frames: Frames) -> int:
        """Return the memory that its frames would take with these."""
        needed = self.count + len(frames)
        room = len(self._buffer) if needed <= len(self._buffer) else max(needed, 2 * len(self._buffer))
        return int(room * frames[0].nbytes)

    def append(self, frames: Frames) -> None:
        """Take more frames, of the size of the first."""
        if self.count and frames.shape[1:] != self._buffer.shape[1:]:
            raise DataError(f"the frames of this session are {self._buffer.shape[1:]}, got {frames.shape[1:]}")
        needed = self.count + len(frames)
        if needed > CLIP_FRAMES.value:
            raise DataError(f"{needed:,} frames are more than a session may hold, {CLIP_FRAMES.describe()}")
        if needed * frames[0].nbytes > CLIP_MB.in_bytes:
            size = f"{needed * frames[0].nbytes / 1e6:,.0f} MB"
            raise DataError(f"{size} of frames are more than a session may hold, in MB {CLIP_MB.describe()}")
        if needed > len(self._buffer):
            larger = np.empty((max(needed, 2 * len(self._buffer)), *frames.shape[1:]), np.uint8)
            if self.count:
                larger[: self.count] = self._buffer[: self.count]
            self._buffer = larger
        self._buffer[self.count : needed] = frames
        self.count = needed

    def episode(self) -> Episode:
        """Return the clip so far; frames that come later do not reach into it."""
        if not self.count:
            raise RefusedRequest(409, "this session has no frames yet; append some before asking")
        shown = read_only(self._buffer[: self.count])
        return Episode("", self.instruction, whole_clip(in_memory(shown), self.fps))


@dataclass(eq=False)
class SessionStore:
    """The sessions of a server, bounded in number and in memory."""

    most: int
    _sessions: dict[str, Session] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    @property
    def nbytes(self) -> int:
        """Return the memory of all frames."""
        return sum(session.nbytes for session in self)

    def open(self, instruction: str, fps: float) -> Session:
        """Return a new session; where there are too many, those that are idle make room, else 503."""
        now = time.monotonic()
        if len(self) >= self.most:
            for session in self:
                if now - session.touched > IDLE_SECONDS:
                    self.close(session.id)
        if len(self) >= self.most:
            raise RefusedRequest(503, f"{self.most} sessions are open already; close one or ask again later", 10)
        session = Session(secrets.token_urlsafe(12), instruction, fps, now)
        self._sessions[session.id] = session
        return session

    def find(self, name: str) -> Session:
        """Return a session by its id, and note that it is in use."""
        session = self._sessions.get(name)
        if session is None:
            raise RefusedRequest(404, "there is no session of that id; open one with POST /v1/sessions")
        session.touched = time.monotonic()
        return session

    def append(self, session: Session, frames: Frames) -> None:
        """Append frames to a session as long as all sessions together fit into memory."""
        if self.nbytes - session.nbytes + session.grown_bytes(frames) > SERVER_MB.in_bytes:
            raise RefusedRequest(503, "the frames of all sessions fill the memory of this server; close some", 10)
        session.append(frames)

    def close(self, name: str) -> None:
        """Forget a session and its frames."""
        self._sessions.pop(name, None)
