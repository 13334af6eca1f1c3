"""The settings of `rewardlab serve`."""

from dataclasses import dataclass
from pathlib import Path

from rewardlab.core.command_settings import setting
from rewardlab.core.errors import PlanError
from rewardlab.data.video_decoding import frame_policy
from rewardlab.http_server.bearer_token import TOKEN_VARIABLE, read_token
from rewardlab.http_server.listening import is_loopback, require_port


@dataclass(frozen=True)
class ServePlan:
    """Serve a model over HTTP: clips, batches and live sessions, with dynamic batching and a bounded queue."""

    model: str = setting("model to serve, e.g. pocket", positional=True)
    host: str = setting(
        f"address to listen on; one that others can reach needs a token in {TOKEN_VARIABLE}", "127.0.0.1"
    )
    port: int = setting("port to listen on; 0 takes a free one", 8000)
    root: Path | None = setting("folder below which requests may name clips; without it none may", None)
    frames: str = setting("frames of a video that are shown: uniform:N, fps:X or all", "uniform:16")
    max_batch: int = setting("clips that are scored together at most", 32)
    max_wait: float = setting("milliseconds that a clip waits for others at most, to be scored with them", 5.0)
    queue: int = setting("clips that wait or are scored at most; more are refused with 503", 128)
    sessions: int = setting("live sessions at most", 64)
    drain: int = setting("seconds for requests under way to be answered after SIGTERM", 30)

    def __post_init__(self) -> None:
        frame_policy(self.frames)
        require_port(self.port)
        if min(self.max_batch, self.queue, self.sessions, self.drain) < 1 or self.max_wait < 0:
            raise PlanError("max-batch, queue, sessions and drain must be at least 1, and max-wait not negative")
        if self.root is not None and not self.root.is_dir():
            raise PlanError(f"--root must be a folder, got {self.root}")
        if not is_loopback(self.host) and not read_token():
            raise PlanError(f"{self.host} can be reached by others; set a token in {TOKEN_VARIABLE} first")
